"""``joulewise run --pid``: measuring what somebody else started, without touching it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Final

from joulewise.errors import UsageError
from joulewise.process import linux
from joulewise.process.linux import is_alive, started_ticks, stat_fields
from joulewise.process.signals import Signals, take_signals
from joulewise.session.budget import Budget
from joulewise.session.recorder_client import RecorderProcess
from joulewise.session.request import Request
from joulewise.session.run import BudgetEnforcer, CommandOutcome, Voice, asked_to_end, attend
from joulewise.store.manifest import CommandRecord

_LEFT: Final = "measuring was ended, the process goes on"
_CPU_TICKS: Final = slice(11, 15)  # of /proc/PID/stat, after the name: its own, and those it reaped
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


def attach(
    pid: int, store: Path, request: Request, budgets: Sequence[Budget], voice: Voice
) -> CommandOutcome:
    """Measure the process until it ends, or until we are asked to stop."""
    if any(budget.stop for budget in budgets):
        raise UsageError(
            "a process that joulewise did not start is not stopped by it",
            "give the budget without :stop",
        )
    if not started_ticks(pid):
        raise UsageError(f"there is no process {pid}", "see: ps aux")
    recorder = RecorderProcess.start(store, request)
    with ExitStack() as stack:
        try:
            voice.opening(recorder.ready)
            # For good: all that is left is to tell, and to exit.
            signals = take_signals(with_job_control=False)
            left = partial(recorder.tell, "stopped", message=_LEFT)
            attached = stack.enter_context(closing(Attached(pid, signals, left)))
        except BaseException:
            recorder.cancel()
            raise
        started = CommandRecord(pid, tuple(attached.arguments), time.monotonic_ns())
        recorder.command_started(pid, started.arguments, started.start_ns)
        limits = BudgetEnforcer(budgets, attached, started.start_ns, recorder, voice.say)
        return attend(attached, started, recorder, limits, voice.turned)


class Attached:
    """A process that is none of our children. The signals that we get are for us alone.

    ``left`` is called where one of them ends the measuring and not the process.
    """

    # Its CPU time can be read only while it is there.
    look_s: float | None = 0.5
    exit_status = None

    def __init__(self, pid: int, signals: Signals, left: Callable[[], None]) -> None:
        self.pid = pid
        self.signals = signals
        self._left = left
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
        if asked_to_end(self.signals):
            self._left()
            return True
        return False

    def send(self, number: int) -> None:
        """It is not ours to end."""

    def close(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)


def _cpu_s(pid: int) -> float | None:
    ticks = stat_fields(pid)[_CPU_TICKS]
    return sum(map(int, ticks)) / _TICKS_PER_S if ticks else None
