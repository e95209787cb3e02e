"""Deadlines of the monotonic clock, waiting for them, and dense readings at start and end.

A sensor shows nothing between two updates. What was drawn up to an edge (the start or the end of
the command) is known well only if it is known when the counter was updated around it, and if it was
read again after a later update. So a device is read every few milliseconds for about one update
before the command starts, and after its end until such an update has shown.
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

# A GPU's counter is read no less often than this where its driver buffers power (chosen). Doubled,
# the counters of eight such GPUs cost twice the CPU time.
MIN_COUNTER_RATE_HZ: Final = 2.5
_AT_ONCE: Final = 1  # ns of the monotonic clock, long past: a timer set to it goes off at once
_TIMER_B: Final = 8  # bytes that a timerfd gives to a reader (timerfd_create(2))
# Share of a period between the offset of one deadline and the next (chosen): intervals differ from
# even ones by 2 %. Twice as much meets all phases of a counter in half of the time.
_OFFSET_STEP: Final = 0.02


@dataclass
class Deadlines:
    """Deadlines every ``period_ns`` after the first; a late one does not move the next.

    With ``dither_ns`` each is later by an offset that grows to ``dither_ns`` in small steps and
    shrinks again (a triangle wave), so that a counter that is updated as often as it is read is
    met at all phases. On average the period is the same.
    """

    first_ns: int
    period_ns: int
    dither_ns: int = 0
    index: int = 0

    @property
    def next_ns(self) -> int:
        return self.due_ns(self.index)

    @property
    def last_ns(self) -> int:
        """The deadline before the next."""
        return self.due_ns(self.index - 1)

    def due_ns(self, index: int) -> int:
        return self.first_ns + index * self.period_ns + self._offset_ns(index)

    def _offset_ns(self, index: int) -> int:
        if not self.dither_ns:
            return 0
        step_ns = round(_OFFSET_STEP * self.period_ns)
        steps = max(1, self.dither_ns // step_ns)
        return min(index % (2 * steps), -index % (2 * steps)) * step_ns

    def take_due(self, now_ns: int) -> tuple[int, int]:
        """Return the newest deadline that has passed, and how many before it were missed.

        All of them count as served.
        """
        index = max(self.index, (now_ns - self.first_ns) // self.period_ns)
        while index > self.index and self.due_ns(index) > now_ns:
            index -= 1
        missed = index - self.index
        self.index = index + 1
        return self.due_ns(index), missed


class KernelTimer:
    """Waits for a deadline on a timer of the kernel."""

    def __init__(self) -> None:
        self._timer = Timer()
        os.set_blocking(self._timer.fileno(), True)
        self._lock = threading.Lock()
        self._over = False

    def wait(self, due_ns: int) -> None:
        """Wait until then, or until ``end`` is called."""
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


class EventTimer:
    """The same for systems without such timers, less exact."""

    def __init__(self) -> None:
        self._over = threading.Event()

    def wait(self, due_ns: int) -> None:
        self._over.wait(max(0.0, (due_ns - monotonic_ns()) / NS_PER_S))

    def end(self) -> None:
        self._over.set()

    def close(self) -> None:
        """There is nothing to close."""


# Where the update period of a board is unknown: the slowest that is known (Turing, GA100).
_ASSUMED_PERIOD_S: Final = 0.100
# Dense readings in one update period (chosen): the time of an update is known to an eighth of it.
# Twice as many cost twice the calls, for a tenth of a second at each edge.
_READINGS_PER_PERIOD: Final = 8
# Between 200 and 50 readings a second (chosen): a driver takes 0.1 to 1 ms for each call.
_SHORTEST_STEP_NS: Final = 5 * NS_PER_MS
_LONGEST_STEP_NS: Final = 20 * NS_PER_MS
# Chosen: nobody has published how late counters are. A value that is being made at the edge can be
# one update late; on simulated boards of 100 ms, energy was shown 20 to 40 ms late. Twice as much
# delays the end of each run by 40 ms more.
_LONGEST_LAG_NS: Final = 40 * NS_PER_MS
# The most that a command's start is delayed (chosen): preparing files usually takes as long.
_LONGEST_LEAD_NS: Final = 120 * NS_PER_MS
# The most that a run's end is delayed (chosen): twice what the slowest known board needs.
_LONGEST_TAIL_NS: Final = 500 * NS_PER_MS


@dataclass(frozen=True)
class EdgeTiming:
    """How a device is read around an edge.

    Dense readings are ``step_ns`` apart and begin at least ``lead_ns`` before the command. A value
    that a sensor shows less than ``lag_ns`` after the end may be of the time before it. No update
    is waited for longer than ``tail_ns`` after the end.
    """

    step_ns: int = 0
    lead_ns: int = 0
    lag_ns: int = 0
    tail_ns: int = 0


NO_EDGE: Final = EdgeTiming()
"""For what is computed when it is read, such as a model: one reading at the edge is enough."""


def edge_timing(profile: SensorProfile) -> EdgeTiming:
    """How to read a sensor with this profile around an edge."""
    periods_s = [s for s in (profile.update_period_s, profile.counter_period_s) if s is not None]
    period_s = max(periods_s, default=_ASSUMED_PERIOD_S)
    if not period_s:
        return NO_EDGE
    period_ns = round(period_s * NS_PER_S)
    step_ns = min(max(period_ns // _READINGS_PER_PERIOD, _SHORTEST_STEP_NS), _LONGEST_STEP_NS)
    # A reading that averages over a second shows an edge for that long, but its counter does not.
    window_ns = min(round((profile.window_s or 0.0) * NS_PER_S), period_ns)
    lag_ns = max(min(period_ns, _LONGEST_LAG_NS), round((profile.lag_s or 0.0) * NS_PER_S))
    return EdgeTiming(
        step_ns=step_ns,
        lead_ns=min(period_ns + step_ns, _LONGEST_LEAD_NS),
        lag_ns=lag_ns,
        tail_ns=min(period_ns + window_ns + lag_ns + step_ns, _LONGEST_TAIL_NS),
    )
