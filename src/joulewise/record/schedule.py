"""Deadlines of the monotonic clock, and waiting for them.

Dense readings where a measurement begins and ends.

A sensor shows nothing between two updates. What was drawn up to an edge (the start or the end of
the command) is known well only if it is known when the counter ticked around it, and if it was
read again after an update that was made later. So a device is read every few milliseconds for
about one update before the command starts, and after its end until such an update has shown.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from time import monotonic_ns
from typing import Final

from joulewise.data import SensorProfile
from joulewise.process.linux import Timer
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


class KernelTicks:
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


# Where nobody has said how often a board updates: the slowest that is known (Turing, GA100).
_UPDATE_PERIOD_S: Final = 0.100
# Dense readings in one update period: a tick is placed to an eighth of it. Twice as many cost
# twice the calls, in a tenth of a second at each edge.
_STEPS_A_PERIOD: Final = 8
# Between 200 and 50 readings a second: one takes a driver 0.1 to 1 ms for each call.
_SHORTEST_STEP_NS: Final = 5 * NS_PER_MS
_LONGEST_STEP_NS: Final = 20 * NS_PER_MS
# Chosen: nobody has published how late counters are. One update is what a value that was being made
# at the edge can be late by; on simulated boards of 100 ms joules were placed 20 to 40 ms late.
# Twice as much delays the end of each run by as much.
_LONGEST_LAG_NS: Final = 40 * NS_PER_MS
# What a command's start may be delayed by, at most: as a rule, making files ready takes as long.
_LONGEST_LEAD_NS: Final = 120 * NS_PER_MS
# What a run's end may be delayed by: twice what the slowest known board needs.
_LONGEST_TAIL_NS: Final = 500 * NS_PER_MS


@dataclass(frozen=True)
class EdgeTiming:
    """How a device is read around an edge.

    ``step_ns`` lies between dense readings, which begin ``lead_ns`` before the command at least.
    What a sensor shows less than ``lag_ns`` after the end may be of the time before it. No update
    is waited for beyond ``tail_ns`` after the end.
    """

    step_ns: int = 0
    lead_ns: int = 0
    lag_ns: int = 0
    tail_ns: int = 0


NO_EDGE: Final = EdgeTiming()
"""Of what can be read at any moment: once is enough."""


def edge_timing(card: SensorProfile) -> EdgeTiming:
    """What a sensor with this card asks for."""
    periods_s = [s for s in (card.update_period_s, card.counter_period_s) if s is not None]
    period_s = max(periods_s, default=_UPDATE_PERIOD_S)
    if not period_s:
        return NO_EDGE
    period_ns = round(period_s * NS_PER_S)
    step_ns = min(max(period_ns // _STEPS_A_PERIOD, _SHORTEST_STEP_NS), _LONGEST_STEP_NS)
    # An average over a second shows an edge for that long: its counter does not.
    window_ns = min(round((card.window_s or 0.0) * NS_PER_S), period_ns)
    lag_ns = max(min(period_ns, _LONGEST_LAG_NS), round((card.lag_s or 0.0) * NS_PER_S))
    return EdgeTiming(
        step_ns=step_ns,
        lead_ns=min(period_ns + step_ns, _LONGEST_LEAD_NS),
        lag_ns=lag_ns,
        tail_ns=min(period_ns + window_ns + lag_ns + step_ns, _LONGEST_TAIL_NS),
    )
