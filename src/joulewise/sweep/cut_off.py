"""Signals that end a sweep before its last run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from joulewise.data.sweeps import Sweep, TrialState
from joulewise.errors import JoulewiseError

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class CutOffError(JoulewiseError):
    """A signal has ended the sweep; what is done is kept, and the status is as of that signal."""

    def __init__(self, number: signal.Signals, sweep: Sweep) -> None:
        done = sum(trial.state is TrialState.DONE for trial in sweep.trials)
        kept = f"its {done} finished runs are kept" if done > 1 else "its finished run is kept"
        super().__init__(
            f"sweep {sweep.id} was ended by {number.name}; "
            f"{kept if done else 'no run was finished'}",
            "the same command goes on with the others",
        )
        self.signal = number
        self.exit_status = 128 + number


class SignalInterrupt(KeyboardInterrupt):
    """A signal has come while no run was being made; ``sweep`` is the one that was made last."""

    def __init__(self, number: signal.Signals, sweep: Sweep | None = None) -> None:
        super().__init__(number.name)
        self.signal = number
        self.sweep = sweep


class BetweenRunsError(JoulewiseError):
    """The same for whoever reads it: what is kept, and how to go on; the status is as of it."""

    def __init__(self, number: signal.Signals, what: str, hint: str) -> None:
        super().__init__(f"ended by {number.name}; {what}", hint)
        self.exit_status = 128 + number


@contextmanager
def raised_signals() -> Iterator[None]:
    """Each raises a :class:`SignalInterrupt` meanwhile, but for those that are ignored."""

    def interrupt(number: int, _: FrameType | None) -> None:
        raise SignalInterrupt(signal.Signals(number))

    with _handled(interrupt):
        yield


@contextmanager
def told_of_signals(tell: Callable[[signal.Signals], None]) -> Iterator[None]:
    """They end nothing meanwhile; those that are ignored stay so."""
    with _handled(lambda number, _: tell(signal.Signals(number))):
        yield


@contextmanager
def _handled(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # they come to another thread
        return
    before = {
        number: signal.signal(number, handle)
        for number in _ENDING
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
