"""Deadlines of the monotonic clock, and waiting for them."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from time import monotonic_ns
from typing import Final

from joulewise.command.linux import Timer
from joulewise.units import NS_PER_MS, NS_PER_S

_AT_ONCE: Final = 1
_TIMER_B: Final = 8


@dataclass
class Deadlines:
    """Every ``period_ns``, counted from the first: one that is late does not move the next."""

    next_ns: int
    period_ns: int

    def reach(self, now_ns: int) -> tuple[int, int]:
        """The newest deadline that has passed, and how many before it went by unserved."""
        missed = (now_ns - self.next_ns) // self.period_ns
        deadline_ns = self.next_ns + missed * self.period_ns
        self.next_ns = deadline_ns + self.period_ns
        return deadline_ns, missed


class Ticks:
    """Waits on a timer of the kernel that goes off at every deadline, whoever is late."""

    def __init__(self) -> None:
        self._timer = Timer()
        os.set_blocking(self._timer.fileno(), True)

    def start(self, deadlines: Deadlines) -> None:
        self._timer.set(deadlines.next_ns, deadlines.period_ns)

    def wait(self, _deadlines: Deadlines) -> None:
        os.read(self._timer.fileno(), _TIMER_B)

    def end(self) -> None:
        self._timer.set(_AT_ONCE, NS_PER_MS)

    def close(self) -> None:
        self._timer.close()


class CoarseTicks:
    """The same with what every system has, as exact as it gets there."""

    def __init__(self) -> None:
        self._over = threading.Event()

    def start(self, deadlines: Deadlines) -> None:
        """Nothing to do before the first wait."""

    def wait(self, deadlines: Deadlines) -> None:
        self._over.wait(max(0.0, (deadlines.next_ns - monotonic_ns()) / NS_PER_S))

    def end(self) -> None:
        self._over.set()

    def close(self) -> None:
        """Nothing is held."""
