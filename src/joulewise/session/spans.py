"""``joulewise.span()``: the user's own named stretches of a run.

A span is written to everything that measures the code in it: the ``measure()`` blocks around it,
and the ``joulewise run`` around the program. Where nothing measures, it costs a timestamp. Marks
are one ``os.write`` each; nothing is read from a device.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial, wraps
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from joulewise.errors import UsageError

if TYPE_CHECKING:
    from types import TracebackType

    from joulewise.hooks.marks import Marks

    _Open = tuple["OpenSpan", list[tuple[Marks, int]]]

RUN_MARKS: Final = "JOULEWISE_MARKS"
# Folders of the measure() blocks that a process was started in, one a line, for its children.
MEASURE_MARKS: Final = "JOULEWISE_MEASURE_MARKS"
_COROUTINE, _GENERATOR, _ASYNC_GENERATOR = 0x80, 0x20, 0x200

_Function = TypeVar("_Function", bound=Callable[..., Any])

# What is open in this thread or task. A thread that somebody else started knows of none, and a
# notebook's next cell neither: for those, whatever the process has open counts.
_measured_here: ContextVar[tuple[Marks, ...]] = ContextVar("joulewise_measured", default=())
_measured_anywhere: list[Marks] = []
_spans_here: ContextVar[tuple[_Open, ...]] = ContextVar("joulewise_spans", default=())
_around: tuple[Marks, ...] | None = None


def span(
    name: str, index: int | None = None, *, total: int | None = None, sync: bool = False
) -> OpenSpan:
    """A named stretch of the run, as a context manager or a decorator.

    One that an exception leaves was broken off: it is told of, and enters no mean of its kind.

    Args:
        name: what it is called; ``epoch`` is what the outlook counts.
        index: which one of its kind, from 0.
        total: how many of its kind there will be, where that is known.
        sync: wait at both ends for the GPU work that is in flight (torch with CUDA).
    """
    return OpenSpan(name, index, total, sync)


@final
class OpenSpan:
    """May be entered again and again, from any thread or task, also while it is open."""

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
                f"a span is named by a text, not by {name!r}", 'write span("name") or @span("name")'
            )
        self._name = name
        self._index = index
        self._total = total
        self._sync = sync
        self._targets = targets or measuring

    def __enter__(self) -> OpenSpan:
        if self._sync:
            await_gpu()
        start_ns = time.monotonic_ns()
        if targets := self._targets():
            name, index, total = self._name, self._index, self._total
            tokens = [(marks, marks.begin(name, index, total, start_ns)) for marks in targets]
            _spans_here.set((*_spans_here.get(), (self, tokens)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._sync:
            await_gpu()
        end_ns = time.monotonic_ns()
        opened = _spans_here.get()
        place = len(opened) - 1
        while place >= 0 and opened[place][0] is not self:
            place -= 1
        if place >= 0:
            _spans_here.set(opened[:place] + opened[place + 1 :])
            for marks, token in opened[place][1]:
                marks.end(token, end_ns, cut=kind is not None)

    def __call__(self, function: _Function) -> _Function:
        return around(function, lambda: self, "span")

    def __repr__(self) -> str:
        index = "" if self._index is None else f", {self._index}"
        return f"span({self._name!r}{index})"


def around(function: _Function, manager: Callable[[], Any], verb: str) -> _Function:
    """The function with ``manager()`` entered around each of its calls."""
    if not callable(function):
        raise UsageError(
            f"@{verb}() decorates a function, not {function!r}", f"or write: with {verb}(…):"
        )
    flags = _flags(function)
    if flags & (_GENERATOR | _ASYNC_GENERATOR):
        raise UsageError(
            f"@{verb}() cannot tell the work of a generator from that of its consumer",
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


def await_gpu() -> None:
    """Wait for the work that torch has in flight, on the GPUs that it uses already.

    An error of that work is not ours to raise: torch raises it at the next call of the program.
    """
    torch = sys.modules.get("torch")
    try:
        cuda = torch.cuda  # type: ignore[union-attr]
        if cuda.is_initialized():
            current = cuda.current_device()
            for device in range(cuda.device_count()):
                # To await a GPU that nobody uses would make a context on it.
                if device == current or cuda.memory_reserved(device):
                    cuda.synchronize(device)
    except Exception:  # noqa: BLE001
        return


def opened(marks: Marks, folder: str) -> None:
    """A measurement has begun: spans go there from now on, those of new processes too."""
    _around_this()  # before our own folder stands beside it
    _measured_here.set((*_measured_here.get(), marks))
    _measured_anywhere.append(marks)
    os.environ[MEASURE_MARKS] = "\n".join((*_folders(), folder))


def closed(marks: Marks, folder: str) -> None:
    _measured_here.set(tuple(each for each in _measured_here.get() if each is not marks))
    if marks in _measured_anywhere:
        _measured_anywhere.remove(marks)
    folders = [each for each in _folders() if each != folder]
    if folders:
        os.environ[MEASURE_MARKS] = "\n".join(folders)
    else:
        os.environ.pop(MEASURE_MARKS, None)


def measuring() -> tuple[Marks, ...]:
    """Where the spans of this moment go."""
    if not _measured_anywhere:
        return _around_this()
    # One that was stopped elsewhere may still stand in this context.
    here = tuple(marks for marks in _measured_here.get() if marks in _measured_anywhere)
    return (here or tuple(_measured_anywhere)) + _around_this()


def _around_this() -> tuple[Marks, ...]:
    """What measured this process from outside when it began."""
    global _around  # noqa: PLW0603
    if _around is None:
        folders = {os.environ.get(RUN_MARKS, ""), *_folders()} - {""}
        if folders:
            from joulewise.hooks.marks import Marks

            _around = tuple(Marks(folder) for folder in sorted(folders))
        else:
            _around = ()
    return _around


def _folders() -> list[str]:
    return [line for line in os.environ.get(MEASURE_MARKS, "").split("\n") if line]


def _flags(function: Any) -> int:
    """Of its code: what ``inspect`` would tell, without the price of importing it."""
    while isinstance(function, partial | MethodType):
        function = function.func if isinstance(function, partial) else function.__func__
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return getattr(code, "co_flags", 0)
