"""``joulewise.measure()``: a block of the user's own program as a run.

A recorder process measures this process from start to stop. The program never waits for a device
and never gets an error of ours: where the recorder does not start, or dies, a Python warning says
so, the program goes on, and the energies are None.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from joulewise.data import Energy, RunResult, SpanResult
from joulewise.data.energy import error_words, in_words, joules
from joulewise.errors import JoulewiseError, UsageError
from joulewise.session.spans import (
    MEASURE_MARKS,
    RUN_MARKS,
    OpenSpan,
    add_measurement,
    decorate,
    remove_measurement,
    write_log,
)
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from types import TracebackType

    from joulewise.data import QualityWarning
    from joulewise.hooks.marks import Marks
    from joulewise.session.recorder_client import RecorderProcess


_NO_PID: Final = -1  # of a measurement that was unpickled: no process may stop it

_Function = TypeVar("_Function", bound=Callable[..., Any])


def measure(
    name: str | None = None,
    tags: Sequence[str] = (),
    rate_hz: float | None = None,
    store: str | os.PathLike[str] | None = None,
) -> Measurement:
    """Measure a block: ``with joulewise.measure() as m: …``, or a function, as ``@measure()``.

    Args:
        name: a name for the run, beside its id.
        tags: words to find it by.
        rate_hz: how often power is read, 0.01 to 1000 Hz. None: 10 Hz; for more than two GPUs whose
            drivers keep samples of their own, which are recorded, too, 20 Hz divided by their
            number, but at least 2.5 Hz.
        store: the folder of the runs; None is ``$JOULEWISE_STORE`` or ``./joulewise-runs``.
    """
    return Measurement(*check_options(name, tags, rate_hz, store))


_Options = tuple[str, tuple[str, ...], float | None, Path | None]


def check_options(
    name: str | None,
    tags: Sequence[str],
    rate_hz: float | None,
    store: str | os.PathLike[str] | None,
) -> _Options:
    """The arguments of a :class:`Measurement`; raises UsageError where one cannot be."""
    if name is not None and not isinstance(name, str):
        raise UsageError(
            f"the name of a run must be a str, not {name!r}", "to decorate, write @measure()"
        )
    words = () if isinstance(tags, str) else tuple(tags)
    if isinstance(tags, str) or not all(isinstance(word, str) for word in words):
        raise UsageError(f"tags must be a list of words, not {tags!r}", "write tags=['one', 'two']")
    from joulewise.session.request import check_names, check_rate

    check_names(name or None, words)
    check_rate(rate_hz)
    return name or "", words, rate_hz, None if store is None else Path(store)


class Measurement:
    """One block of a program, from ``start()`` to ``stop()``, and what it took.

    ``id`` and ``path`` (the run's directory) are known while the block runs, everything else once
    it has ended: reading it earlier raises UsageError. ``energy_j`` is None and a warning says why
    where nothing could be recorded.
    """

    def __init__(
        self, name: str, tags: tuple[str, ...], rate_hz: float | None, store: Path | None
    ) -> None:
        self._options: _Options = (name, tags, rate_hz, store)
        self._start_ns = 0
        self._end_ns = 0
        self._result: RunResult | None = None
        self._trouble: QualityWarning | None = None
        self.path: Path | None = None
        self._lock = threading.RLock()
        self._recorder: RecorderProcess | None = None
        self._marks: Marks | None = None
        self._pid = 0
        self._cpu_s = 0.0

    def span(
        self, name: str, index: int | None = None, *, total: int | None = None, sync: bool = False
    ) -> OpenSpan:
        """A named stretch of this measurement alone (see :func:`joulewise.span`)."""
        return OpenSpan(name, index, total, sync, self._own_marks)

    def log(
        self, figures: Mapping[str, Any] | None = None, /, *, epoch: int | None = None, **named: Any
    ) -> None:
        """Figures of the training, in this measurement alone (see :func:`joulewise.log`)."""
        write_log(self._own_marks, figures, epoch, named)

    def start(self) -> Measurement:
        with self._lock:
            if self._start_ns:
                raise UsageError(
                    "this measurement was started before", "call joulewise.measure() again"
                )
            self._pid = os.getpid()
            try:
                self._begin()
            except BaseException as error:
                self._roll_back()
                if not isinstance(error, Exception):
                    raise
                self._start_ns = time.monotonic_ns()
                self._give_up("the recorder could not be started", error)
        return self

    def stop(self) -> Measurement:
        """End the block and get its result; a second call, or one in a fork, does nothing."""
        self._stop(0)
        return self

    def __enter__(self) -> Measurement:  # noqa: PYI034  # typing has Self since 3.11
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop(_exit_code(error))

    def __call__(self, function: _Function) -> _Function:
        """The function, measured at every call; ``function.measured`` is the last measurement.

        Recursive calls are part of the outermost one.
        """
        is_active: ContextVar[bool] = ContextVar("joulewise_inside", default=False)
        decorated = decorate(function, lambda: _call(decorated, self.renewed, is_active), "measure")
        decorated.measured = None  # type: ignore[attr-defined]
        return decorated

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return bool(self._start_ns) and not self._end_ns

    @property
    def has_ended(self) -> bool:
        return bool(self._end_ns)

    @property
    def id(self) -> str | None:
        """The run's id; None where nothing is recorded."""
        return self.path.name if self.path else None

    @property
    def result(self) -> RunResult | None:
        """The whole result; None where the recorder did not start or died."""
        self._check_ended()
        return self._result

    @property
    def time_s(self) -> float:
        self._check_ended()
        return self._result.time_s if self._result else (self._end_ns - self._start_ns) / NS_PER_S

    @property
    def energy_j(self) -> Energies | None:
        """Joules by device, with their ``total``; None where nothing was recorded."""
        return Energies.of(self.result.run, self.result.counted) if self.result else None

    @property
    def spans(self) -> tuple[MeasuredSpan, ...]:
        return list_spans(self.result) if self.result else ()

    @property
    def warnings(self) -> tuple[QualityWarning, ...]:
        """What may be wrong with the figures."""
        of_result = self.result.warnings if self.result else ()
        return (*of_result, self._trouble) if self._trouble else of_result

    def __repr__(self) -> str:
        if not self._start_ns:
            return "<joulewise measurement, not started>"
        if not self._end_ns:
            return f"<joulewise measurement {self.id}, recording>"
        taken = self.energy_j or "nothing was recorded"
        return f"<joulewise measurement {self.id}: {self.time_s:.4g} s, {taken}>"

    def _repr_html_(self) -> str | None:
        if not self._end_ns or self.energy_j is None:
            return None
        head = f"{self.id}: {self.time_s:.4g} s"
        return render_html(head, self.energy_j, [warning.message for warning in self.warnings])

    def _check_ended(self) -> None:
        if self._end_ns:
            return
        if not self._start_ns:
            raise UsageError("this measurement was not started", "use `with`, or call start()")
        raise UsageError(
            "the result is not known before the measurement has ended",
            "read it after the `with` block, or after stop()",
        )

    def __getstate__(self) -> dict[str, Any]:
        """Another process can add spans to the run, or read its result; it cannot stop it."""
        state = self.__dict__.copy()
        del state["_lock"], state["_recorder"], state["_marks"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(
            state, _pid=_NO_PID, _lock=threading.RLock(), _recorder=None, _marks=None
        )
        if self.path and not self._end_ns:
            self._marks = _open_marks(self.path)

    def renewed(self) -> Measurement:
        """Another measurement with the same options, not started."""
        return Measurement(*self._options)

    def _begin(self) -> None:
        from joulewise.session.recorder_client import RecorderProcess
        from joulewise.session.request import Request
        from joulewise.store.runs import default_store

        name, tags, rate_hz, store = self._options
        request = Request(rate_hz=rate_hz, name=name, tags=tags)
        # Not for the recorder: it marks nothing, and would load the hooks of an outer run.
        environ = {k: v for k, v in os.environ.items() if k not in {RUN_MARKS, MEASURE_MARKS}}
        recorder = RecorderProcess.start(store or default_store(), request, environ, apart=True)
        self._recorder, self.path = recorder, recorder.ready.run
        self._marks = _open_marks(self.path)
        add_measurement(self._marks, _marks_folder(self.path))
        atexit.register(self._stop, 0)
        _open_here.add(self)
        self._cpu_s = _cpu_s()
        self._start_ns = time.monotonic_ns()
        recorder.command_started(self._pid, sys.orig_argv, self._start_ns)

    def _roll_back(self) -> None:
        recorder, self._recorder = self._recorder, None
        self._unregister()
        self.path = None
        if recorder:
            recorder.cancel()

    def _unregister(self) -> None:
        atexit.unregister(self._stop)
        _open_here.discard(self)
        if self._marks and self.path:
            remove_measurement(self._marks, _marks_folder(self.path))
            self._marks = None

    def _stop(self, exit_code: int) -> None:
        if self._pid and self._pid != os.getpid():
            return
        with self._lock:
            if not self._start_ns:
                raise UsageError("this measurement was not started", "call start() first")
            if self._end_ns:
                return
            self._end_ns = time.monotonic_ns()
            self._unregister()
            if self._recorder:
                self._finish(self._recorder, exit_code)

    def _finish(self, recorder: RecorderProcess, exit_code: int) -> None:
        self._recorder = None
        try:
            _write_framework_versions(self.path)
            cpu_s = _cpu_s() - self._cpu_s
            recorder.command_ended(self._pid, self._end_ns, exit_code, cpu_s)
            self._result = recorder.finish()
            if recorder.lost:
                self._write_end(exit_code, cpu_s, recorder.remark)
        except Exception as error:  # noqa: BLE001
            self._give_up("the result could not be fetched", error)
        except BaseException:  # Ctrl-C while the result is awaited: the recorder ends alone
            recorder.finish(give_up=lambda: True)
            raise
        if self._result is None and self._trouble is None:
            self._give_up(recorder.remark or "the recorder ended before the measurement did", None)

    def _write_end(self, exit_code: int, cpu_s: float, failure: str) -> None:
        """In place of a recorder that is gone, write how the block ended.

        Only that: the energies of what was recorded are computed by ``joulewise show``. To compute
        them here would load numpy and pyarrow into a program that the kernel may be about to kill
        for its memory, as it may have killed the recorder.
        """
        if self.path is None:
            return
        from joulewise.session.run import write_end
        from joulewise.store.layout import LIVE
        from joulewise.store.manifest import CommandRecord

        with suppress(OSError, JoulewiseError):  # a full disk: the run stays as it is
            arguments = tuple(sys.orig_argv)
            block = CommandRecord(
                self._pid, arguments, self._start_ns, self._end_ns, exit_code, cpu_s
            )
            write_end(self.path, block, failure)
            (self.path / LIVE).unlink(missing_ok=True)

    def _give_up(self, what: str, error: Exception | None) -> None:
        from joulewise.data import QualityWarning, WarningCode

        reason = error.message if isinstance(error, JoulewiseError) else str(error or "")
        hint = error.hint if isinstance(error, JoulewiseError) else ""
        if self.id:
            hint = hint or f"joulewise show {self.id} shows what was recorded until then"
        message = f"{what}: {reason}" if reason else what
        self._trouble = QualityWarning(WarningCode.RECORDER_ENDED, message, hint)
        warnings.warn(
            f"joulewise: {message}; energies are not known" + (f" ({hint})" if hint else ""),
            RuntimeWarning,
            stacklevel=user_stack_level(),
        )

    def _own_marks(self) -> tuple[Marks, ...]:
        return (self._marks,) if self._marks else ()

    def _forget(self) -> None:
        """In a forked child: close our copy, so that the recorder notices the parent's end."""
        recorder, self._recorder = self._recorder, None
        atexit.unregister(self._stop)
        if recorder:
            recorder.leave()


@contextmanager
def _call(
    function: Any, renewed: Callable[[], Measurement], is_active: ContextVar[bool]
) -> Iterator[None]:
    if is_active.get():
        yield
        return
    function.measured = measurement = renewed()
    token = is_active.set(True)
    try:
        with measurement:
            yield
    finally:
        is_active.reset(token)


_open_here: weakref.WeakSet[Measurement] = weakref.WeakSet()


def _forget_all() -> None:
    for measurement in list(_open_here):
        measurement._forget()  # noqa: SLF001  # this is its own module
    _open_here.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _marks_folder(run: Path) -> str:
    from joulewise.store.layout import MARKS

    return str((run / MARKS).absolute())


def _write_framework_versions(run: Path | None) -> None:
    from joulewise.hooks.frameworks import write_versions

    if run is not None:
        with suppress(OSError):  # a full disk: only the versions are lost
            write_versions(_marks_folder(run))


def _open_marks(run: Path) -> Marks:
    from joulewise.hooks.marks import Marks

    return Marks(_marks_folder(run))


def _cpu_s() -> float:
    """CPU time of this process and of the children it has waited for."""
    return sum(os.times()[:4])


def _exit_code(error: BaseException | None) -> int:
    """The exit status of Python if nobody caught this exception."""
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def user_stack_level() -> int:
    """How many frames up the user's code is."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001  # warnings has this only since 3.12
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("joulewise."):
        level, frame = level + 1, frame.f_back
    return level


class Energies(Mapping[str, "Energy | None"]):
    """Energy by device, with their sum as ``total``; None where it could not be read.

    Every visible device has a key; ``total`` sums those in ``counted``, which the program used.
    """

    def __init__(
        self, devices: Mapping[str, Energy | None], total: Energy | None, counted: Sequence[str]
    ) -> None:
        self._devices = dict(devices)
        self.total = total
        self.counted = tuple(counted)

    @classmethod
    def of(cls, result: SpanResult, counted: Sequence[str]) -> Energies:
        return cls({key: use.energy for key, use in result.devices.items()}, result.total, counted)

    def __getitem__(self, device: str) -> Energy | None:
        return self._devices[device]

    def __iter__(self) -> Iterator[str]:
        return iter(self._devices)

    def __len__(self) -> int:
        return len(self._devices)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Energies):
            return NotImplemented
        return (self._devices, self.total, self.counted) == (
            other._devices,
            other.total,
            other.counted,
        )

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        parts = [f"{key} {in_words(self.get(key))}" for key in self.counted]
        total = in_words(self.total, self.sources)
        return f"total {total}" + (f": {', '.join(parts)}" if parts else "")

    def __repr__(self) -> str:
        return f"<{self}>"

    @property
    def sources(self) -> str:
        """Where the total comes from: the sources of the counted devices, each once."""
        parts = [self._devices.get(key) for key in self.counted]
        return ", ".join(dict.fromkeys(part.source.value for part in parts if part))


@dataclass(frozen=True)
class MeasuredSpan:
    """A span, its times (seconds from the start of the measurement), and its joules."""

    name: str
    index: int | None
    start_s: float
    end_s: float
    energy_j: Energies

    @property
    def time_s(self) -> float:
        return self.end_s - self.start_s

    def __str__(self) -> str:
        return f"{span_title(self.name, self.index)}: {self.time_s:.3g} s, {self.energy_j}"


def list_spans(result: RunResult) -> tuple[MeasuredSpan, ...]:
    origin_ns = result.run.span.start_ns
    return tuple(
        MeasuredSpan(
            each.span.name,
            each.span.index,
            (each.span.start_ns - origin_ns) / NS_PER_S,
            (each.span.end_ns - origin_ns) / NS_PER_S,
            Energies.of(each, result.counted),
        )
        for each in result.spans
    )


def span_title(name: str, index: int | None) -> str:
    return name if index is None else f"{name} {index}"


def _energy_cells(energy: Energy) -> str:
    if energy.at_least:
        return f"<td>at least {joules(max(energy.value, 0.0))}</td><td>± {error_words(energy)}</td>"
    return f"<td>{joules(energy.value)}</td><td>± {error_words(energy)}</td>"


def render_html(head: str, energies: Energies, warning_texts: Sequence[str]) -> str:
    """A small HTML table for a notebook."""
    rows = [*((key, energies.get(key)) for key in energies.counted), ("total", energies.total)]
    cells = "".join(
        f"<tr><td>{escape(key)}</td>{_energy_cells(energy)}<td>"
        f"{energies.sources if key == 'total' else energy.source.value}</td></tr>"
        if energy
        else f"<tr><td>{escape(key)}</td><td colspan=3>could not be read</td></tr>"
        for key, energy in rows
    )
    notes = "".join(f"<div>{escape(text)}</div>" for text in warning_texts)
    header = "<tr><th>device</th><th>energy</th><th>error</th><th>source</th></tr>"
    return f"<div><b>{escape(head)}</b></div><table>{header}{cells}</table>{notes}"
