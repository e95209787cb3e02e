"""``joulewise run --pid``: measures a process that somebody else started, without touching it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Final

from joulewise.budget import Budget
from joulewise.errors import UsageError
from joulewise.process import linux
from joulewise.process.linux import is_alive, started_ticks, stat_fields
from joulewise.process.signals import Signals, take_signals
from joulewise.session.recorder_client import RecorderProcess
from joulewise.session.request import Request
from joulewise.session.run import (
    BudgetEnforcer,
    CommandOutcome,
    RunCallbacks,
    await_result,
    is_end_requested,
)
from joulewise.store.manifest import CommandRecord

_DETACHED: Final = "measuring was stopped; the process goes on"
_CPU_TICKS: Final = slice(11, 15)  # utime to cstime in /proc/PID/stat after the name, see proc(5)
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


def attach(
    pid: int, store: Path, request: Request, budgets: Sequence[Budget], callbacks: RunCallbacks
) -> CommandOutcome:
    """Measure the process until it ends, or until a signal tells us to stop measuring."""
    if any(budget.stop for budget in budgets):
        raise UsageError(
            "joulewise does not stop a process that it did not start",
            "give the budget without :stop",
        )
    if not started_ticks(pid):
        raise UsageError(f"there is no process {pid}", "see: ps aux")
    recorder = RecorderProcess.start(store, request)
    with ExitStack() as stack:
        try:
            callbacks.opening(recorder.ready)
            # Never given back: what follows is showing the result and exiting.
            signals = take_signals(with_job_control=False)
            on_detach = partial(recorder.tell, "stopped", message=_DETACHED)
            attached = stack.enter_context(closing(AttachedProcess(pid, signals, on_detach)))
        except BaseException:
            recorder.cancel()
            raise
        started = CommandRecord(pid, tuple(attached.arguments), time.monotonic_ns())
        recorder.command_started(pid, started.arguments, started.start_ns)
        enforcer = BudgetEnforcer(budgets, attached, started.start_ns, recorder, callbacks.say)
        return await_result(attached, started, recorder, enforcer, callbacks)


class AttachedProcess:
    """A process that is not our child. Signals sent to us are not passed on to it.

    ``on_detach`` is called where a signal ends the measuring and not the process.
    """

    # Its CPU time can be read only while it runs. Chosen: doubled, up to 1 s of it may be missed.
    poll_s: float | None = 0.5
    exit_status = None

    def __init__(self, pid: int, signals: Signals, on_detach: Callable[[], None]) -> None:
        self.pid = pid
        self.signals = signals
        self._on_detach = on_detach
        self.arguments = linux.arguments(pid)
        self.cpu_s: float | None = None
        self._started_ticks = started_ticks(pid)
        self._cpu_before_s = _cpu_s(pid) or 0.0
        self._pidfd: int | None = None
        with suppress(AttributeError, OSError):  # Linux has it since 5.3
            self._pidfd = os.pidfd_open(pid)

    @property
    def descriptors(self) -> Sequence[int]:
        signals = self.signals.fileno()
        return [signals] if self._pidfd is None else [signals, self._pidfd]

    def ended(self) -> bool:
        cpu_s = _cpu_s(self.pid)
        if started_ticks(self.pid) in {self._started_ticks, 0} and cpu_s is not None:
            self.cpu_s = cpu_s - self._cpu_before_s
        if not is_alive(self.pid, self._started_ticks):
            return True
        if is_end_requested(self.signals):
            self._on_detach()
            return True
        return False

    def send(self, number: int) -> None:
        """Do nothing: the process is not ours to end."""

    def close(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)


def _cpu_s(pid: int) -> float | None:
    ticks = stat_fields(pid)[_CPU_TICKS]
    return sum(map(int, ticks)) / _TICKS_PER_S if ticks else None
