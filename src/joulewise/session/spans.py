"""``joulewise.span()`` and ``joulewise.log()``: what the user's program marks in its run.

A span is a named stretch of the run, and ``log`` writes figures. Both are written to everything
that measures the code: the ``measure()`` blocks around it, and the ``joulewise run`` around the
program. Where nothing measures, a span costs a timestamp. A mark is one ``os.write``; no device is
read.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import partial, wraps
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from joulewise.errors import UsageError

if TYPE_CHECKING:
    from joulewise.hooks.marks import Marks

    _Open = tuple["OpenSpan", list[tuple[Marks, int]]]

RUN_MARKS: Final = "JOULEWISE_MARKS"
# The folders of the measure() blocks in which a process was started, one a line, for its children.
MEASURE_MARKS: Final = "JOULEWISE_MEASURE_MARKS"
_COROUTINE, _GENERATOR, _ASYNC_GENERATOR = 0x80, 0x20, 0x200  # flags of code objects, see inspect

_Function = TypeVar("_Function", bound=Callable[..., Any])

# What is open in this thread or task. A thread that the program started elsewhere, or a notebook's
# next cell, has none of its own: for those, everything that is open in the process counts.
_measured_here: ContextVar[tuple[Marks, ...]] = ContextVar("joulewise_measured", default=())
_measured_anywhere: list[Marks] = []
_spans_here: ContextVar[tuple[_Open, ...]] = ContextVar("joulewise_spans", default=())
_outer_marks: tuple[Marks, ...] | None = None


def span(
    name: str, index: int | None = None, *, total: int | None = None, sync: bool = False
) -> OpenSpan:
    """A named stretch of the run, as a context manager or a decorator.

    A span that an exception leaves counts as interrupted: it is shown, and left out of means.

    Args:
        name: what it is called; the forecast counts those named ``epoch``.
        index: which one of its kind, from 0.
        total: how many of its kind there will be, where that is known.
        sync: wait at both ends for the GPU work that is in flight (torch with CUDA).
    """
    return OpenSpan(name, index, total, sync)


def log(
    figures: Mapping[str, Any] | None = None, /, *, epoch: int | None = None, **named: Any
) -> None:
    """Write figures of the training, such as its loss or accuracy, to the run.

    ``joulewise.log(val_acc=0.61)`` or ``joulewise.log({"val/acc": 0.61})``. Values are numbers,
    also of numpy or torch; what is none is left out. Outside of a run it does nothing, and it
    never raises.

    Args:
        figures: values by name, for names that cannot be written as arguments.
        epoch: the number of their epoch, from 0. None: that of the last epoch that began.
        named: values by name.
    """
    write_log(current_targets, figures, epoch, named)


def write_log(
    targets: Callable[[], tuple[Marks, ...]],
    figures: Mapping[str, Any] | None,
    epoch: int | None,
    named: Mapping[str, Any],
) -> None:
    """Write figures to the marks of measurements; an error never reaches the program."""
    with suppress(Exception):
        if found := targets():
            from joulewise.hooks.figures import write_figures

            write_figures(found, {**(figures or {}), **named}, epoch)


@final
class OpenSpan:
    """A span to enter, repeatedly and from any thread or task, also while it is open."""

    def __init__(
        self,
        name: str,
        index: int | None = None,
        total: int | None = None,
        sync: bool = False,
        targets: Callable[[], tuple[Marks, ...]] | None = None,
    ) -> None:
        if not isinstance(name, str):
            raise UsageError(
                f"the name of a span must be a str, not {name!r}",
                'write span("name") or @span("name")',
            )
        self._name = name
        self._index = index
        self._total = total
        self._sync = sync
        self._targets = targets or current_targets

    def __enter__(self) -> OpenSpan:
        if self._sync:
            synchronise_gpus()
        start_ns = time.monotonic_ns()
        if targets := self._targets():
            name, index, total = self._name, self._index, self._total
            tokens = [(marks, marks.begin(name, index, total, start_ns)) for marks in targets]
            _spans_here.set((*_spans_here.get(), (self, tokens)))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._sync:
            synchronise_gpus()
        end_ns = time.monotonic_ns()
        open_spans = _spans_here.get()
        position = len(open_spans) - 1
        while position >= 0 and open_spans[position][0] is not self:
            position -= 1
        if position >= 0:
            _spans_here.set(open_spans[:position] + open_spans[position + 1 :])
            for marks, token in open_spans[position][1]:
                marks.end(token, end_ns, cut=kind is not None)

    def __call__(self, function: _Function) -> _Function:
        return decorate(function, lambda: self, "span")

    def __repr__(self) -> str:
        index = "" if self._index is None else f", {self._index}"
        return f"span({self._name!r}{index})"


def decorate(function: _Function, manager: Callable[[], Any], verb: str) -> _Function:
    """The function with ``manager()`` entered around each of its calls."""
    if not callable(function):
        raise UsageError(
            f"@{verb}() decorates a function, not {function!r}", f"or write: with {verb}(…):"
        )
    flags = _flags(function)
    if flags & (_GENERATOR | _ASYNC_GENERATOR):
        raise UsageError(
            f"@{verb}() cannot separate the work of a generator from that of its consumer",
            f"write `with {verb}(…):` where the work is done",
        )
    if flags & _COROUTINE:

        @wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with manager():
                return await function(*args, **kwargs)

        return awaited  # type: ignore[return-value]

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        with manager():
            return function(*args, **kwargs)

    return called  # type: ignore[return-value]


def synchronise_gpus() -> None:
    """Wait for the work that torch has in flight, on the GPUs that it already uses.

    An error of that work is not raised here: torch raises it at the program's next call.
    """
    torch = sys.modules.get("torch")
    try:
        cuda = torch.cuda  # type: ignore[union-attr]
        if cuda.is_initialized():
            current = cuda.current_device()
            for device in range(cuda.device_count()):
                # Synchronising a GPU that is not in use would create a context on it.
                if device == current or cuda.memory_reserved(device):
                    cuda.synchronize(device)
    except Exception:  # noqa: BLE001
        return


def add_measurement(marks: Marks, folder: str) -> None:
    """Write spans to a measurement from now on, those of processes started later as well."""
    _find_outer_marks()  # before our own folder is in the environment
    _measured_here.set((*_measured_here.get(), marks))
    _measured_anywhere.append(marks)
    os.environ[MEASURE_MARKS] = "\n".join((*_folders(), folder))


def remove_measurement(marks: Marks, folder: str) -> None:
    """Stop writing spans to a measurement that has ended."""
    _measured_here.set(tuple(each for each in _measured_here.get() if each is not marks))
    if marks in _measured_anywhere:
        _measured_anywhere.remove(marks)
    folders = [each for each in _folders() if each != folder]
    if folders:
        os.environ[MEASURE_MARKS] = "\n".join(folders)
    else:
        os.environ.pop(MEASURE_MARKS, None)


def current_targets() -> tuple[Marks, ...]:
    """The measurements to which spans are written now."""
    if not _measured_anywhere:
        return _find_outer_marks()
    # A measurement that another thread stopped may still be in this context.
    here = tuple(marks for marks in _measured_here.get() if marks in _measured_anywhere)
    return (here or tuple(_measured_anywhere)) + _find_outer_marks()


def _find_outer_marks() -> tuple[Marks, ...]:
    """What measured this process from outside when it started."""
    global _outer_marks  # noqa: PLW0603
    if _outer_marks is None:
        folders = {os.environ.get(RUN_MARKS, ""), *_folders()} - {""}
        if folders:
            from joulewise.hooks.marks import Marks

            _outer_marks = tuple(Marks(folder) for folder in sorted(folders))
        else:
            _outer_marks = ()
    return _outer_marks


def _folders() -> list[str]:
    return [line for line in os.environ.get(MEASURE_MARKS, "").split("\n") if line]


def _flags(function: Any) -> int:
    """Flags of the function's code object; importing ``inspect`` would take milliseconds."""
    while isinstance(function, partial | MethodType):
        function = function.func if isinstance(function, partial) else function.__func__
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return getattr(code, "co_flags", 0)
