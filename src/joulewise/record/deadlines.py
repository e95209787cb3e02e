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
# Of a period, between one offset and the next: so many percent the intervals differ from even ones.
# Twice as much meets the phases of a counter in half of the time.
_OFFSET_STEP: Final = 0.02


@dataclass
class Deadlines:
    """Every ``period_ns``, counted from the first: one that is late does not move the next.

    With ``dither_ns`` each is later than that by an offset that grows to ``dither_ns`` in small
    steps and shrinks again (a triangle), so that a counter that ticks as often as it is read is
    met at all phases. On average the period is the same.
    """

    first_ns: int
    period_ns: int
    dither_ns: int = 0
    slot: int = 0

    @property
    def next_ns(self) -> int:
        return self.due_ns(self.slot)

    @property
    def last_ns(self) -> int:
        """The one before the next."""
        return self.due_ns(self.slot - 1)

    def due_ns(self, slot: int) -> int:
        return self.first_ns + slot * self.period_ns + self._offset_ns(slot)

    def _offset_ns(self, slot: int) -> int:
        if not self.dither_ns:
            return 0
        step_ns = round(_OFFSET_STEP * self.period_ns)
        steps = max(1, self.dither_ns // step_ns)
        return min(slot % (2 * steps), -slot % (2 * steps)) * step_ns

    def reach(self, now_ns: int) -> tuple[int, int]:
        """The newest deadline that has passed, and how many before it went by unserved."""
        slot = max(self.slot, (now_ns - self.first_ns) // self.period_ns)
        while slot > self.slot and self.due_ns(slot) > now_ns:
            slot -= 1
        missed = slot - self.slot
        self.slot = slot + 1
        return self.due_ns(slot), missed


class Ticks:
    """Waits on a timer of the kernel that goes off at a deadline."""

    def __init__(self) -> None:
        self._timer = Timer()
        os.set_blocking(self._timer.fileno(), True)
        self._lock = threading.Lock()
        self._over = False

    def wait(self, due_ns: int) -> None:
        """Until then, or until ``end``."""
        with self._lock:
            if not self._over:
                self._timer.set(due_ns)
        os.read(self._timer.fileno(), _TIMER_B)

    def end(self) -> None:
        with self._lock:
            self._over = True
            self._timer.set(_AT_ONCE, NS_PER_MS)

    def close(self) -> None:
        self._timer.close()


class CoarseTicks:
    """The same with what every system has, as exact as it gets there."""

    def __init__(self) -> None:
        self._over = threading.Event()

    def wait(self, due_ns: int) -> None:
        self._over.wait(max(0.0, (due_ns - monotonic_ns()) / NS_PER_S))

    def end(self) -> None:
        self._over.set()

    def close(self) -> None:
        """Nothing is held."""
