"""Whether somebody set the wall clock, and whether the machine slept.

The times of a driver's own samples, on our clock.

Drivers stamp samples with the wall clock, in microseconds. That one may be set while a run
lasts; CLOCK_MONOTONIC may not. Both go at the same pace, so that what lies between them stays
the same until somebody sets the wall clock, and then changes from one sample to the next.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low
from time import monotonic_ns, time_ns
from typing import Final

from joulewise.data import Caution, DriverSample
from joulewise.units import NS_PER_MS, NS_PER_S

STEP_NS: Final = 2 * NS_PER_MS
_NS_PER_US: Final = 1000
_AHEAD_NS: Final = 5 * NS_PER_MS
_OLDEST_NS: Final = 60 * NS_PER_S
_TAIL: Final = 16


def wall_lag_ns(now_ns: Callable[[], int], wall_ns: Callable[[], int]) -> int:
    """Our clock less the wall clock. Of three tries the quickest is the truest."""
    tries = []
    for _ in range(3):
        before_ns, wall, after_ns = now_ns(), wall_ns(), now_ns()
        tries.append((after_ns - before_ns, (before_ns + after_ns) // 2 - wall))
    return min(tries)[1]


class DriverClock:
    """Maps the samples of one device, in the order in which the driver took them."""

    def __init__(
        self, now_ns: Callable[[], int] = monotonic_ns, wall_ns: Callable[[], int] = time_ns
    ) -> None:
        self._now_ns = now_ns
        self._wall_ns = wall_ns
        self._lag_ns: int | None = None  # our clock less the driver's
        self._wall_lag_ns = 0
        self._set_ns: int | None = None  # when the wall clock was found to have been set
        self._all = True
        self._all_until_ns = 0
        self._usual_us = 0
        self._tail: list[DriverSample] = []
        self._last_ns = 0

    def since_us(self) -> int:
        """After which sample to ask.

        After any, for a while after the wall clock was set: times say little about the order then.
        """
        lag_ns = wall_lag_ns(self._now_ns, self._wall_ns)
        now_ns = self._now_ns()
        if self._set_ns is None and abs(lag_ns - self._wall_lag_ns) > STEP_NS:
            self._set_ns = now_ns
            self._all_until_ns = now_ns + _OLDEST_NS
        self._all = not self._tail or now_ns < self._all_until_ns
        return 0 if self._all else self._tail[-1].t_us

    def place(self, samples: Sequence[DriverSample]) -> tuple[list[int], list[float]]:
        """When each new sample was taken (CLOCK_MONOTONIC), and its value; none of them twice."""
        new = self._unknown(samples)
        if not new:
            return [], []
        lag_ns = self._lag_ns
        if lag_ns is None:
            lag_ns = self._anchor(new[-1].t_us * _NS_PER_US)
        step = self._step(new)
        before = len(new) if step is None else step
        times_ns = [sample.t_us * _NS_PER_US + lag_ns for sample in new[:before]]
        if step is not None:
            lag_ns = self._wall_lag_ns
            times_ns += [sample.t_us * _NS_PER_US + lag_ns for sample in new[before:]]
        values = [sample.value for sample in new]
        self._lag_ns = lag_ns
        self._tail = [*self._tail, *new][-_TAIL:]
        return self._ascending(times_ns, values)

    def _ascending(self, times_ns: list[int], values: list[float]) -> tuple[list[int], list[float]]:
        if times_ns[0] <= self._last_ns or times_ns != sorted(times_ns):
            kept = []
            for t_ns, value in zip(times_ns, values, strict=True):
                if t_ns > self._last_ns:
                    kept.append((t_ns, value))
                    self._last_ns = t_ns
            return [t_ns for t_ns, _ in kept], [value for _, value in kept]
        self._last_ns = times_ns[-1]
        return times_ns, values

    def _unknown(self, samples: Sequence[DriverSample]) -> Sequence[DriverSample]:
        """What follows the last that are known, which are told by more than the very last."""
        if not (self._all and self._tail):
            return samples
        for end in range(1, len(samples) + 1):
            length = min(end, len(self._tail))
            if samples[end - 1] == self._tail[-1] and (
                list(samples[end - length : end]) == self._tail[-length:]
            ):
                return samples[end:]
        return samples

    def _anchor(self, newest_ns: int) -> int:
        self._wall_lag_ns = wall_lag_ns(self._now_ns, self._wall_ns)
        self._set_ns = None
        now_ns = self._now_ns()
        age_ns = now_ns - (newest_ns + self._wall_lag_ns)
        # A driver with a clock of its own has just taken its newest sample.
        return self._wall_lag_ns if -_AHEAD_NS < age_ns < _OLDEST_NS else now_ns - newest_ns

    def _step(self, new: Sequence[DriverSample]) -> int | None:
        """The first sample after the wall clock was set; None where there is none."""
        if self._set_ns is None and self._usual_us:
            return None
        times_us = [sample.t_us for sample in (*self._tail[-1:], *new)]
        gaps_us = [after - before for before, after in pairwise(times_us)]
        if self._set_ns is None:
            self._usual_us = median_low(gaps_us or [0])
            return None
        lag_ns = wall_lag_ns(self._now_ns, self._wall_ns)
        step_ns = self._wall_lag_ns - lag_ns
        for index, gap_us in enumerate(gaps_us):
            if abs((gap_us - self._usual_us) * _NS_PER_US - step_ns) < abs(step_ns) / 2:
                self._wall_lag_ns, self._set_ns = lag_ns, None
                return index
        newest_ns = times_us[-1] * _NS_PER_US + (self._lag_ns or 0)
        if newest_ns > self._set_ns:  # taken since then, and not moved: a clock of its own
            self._wall_lag_ns, self._set_ns = lag_ns, None
        return None


# Of so many tries the quickest is the truest. Chosen: on a loaded machine one in a hundred readings
# is interrupted.
_TRIES: Final = 3


def boot_ns() -> int:
    """The clock that goes on while the machine is suspended; where there is none, ours."""
    linux = sys.platform == "linux"
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) if linux else time.monotonic_ns()


@dataclass(frozen=True)
class ClockOffsets:
    """Our clock less the wall clock and less the boot clock, read within ``took_ns``."""

    took_ns: int
    wall_ns: int
    boot_ns: int


class ClockComparison:
    """Compares our clock, which stands still in a suspension, with the two that do not."""

    def __init__(
        self,
        now_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
        awake_or_not_ns: Callable[[], int] = boot_ns,
    ) -> None:
        self._now_ns = now_ns
        self._wall_ns = wall_ns
        self._boot_ns = awake_or_not_ns
        self._before: ClockOffsets | None = None
        self._known()

    def news(self) -> Iterator[tuple[Caution, str]]:
        """What happened since the last time, and in words."""
        before, now = self._before, self._known()
        if before is None or now is None:
            return
        slept_ns = before.boot_ns - now.boot_ns
        slept_ns = slept_ns if slept_ns > STEP_NS else 0
        set_by_ns = before.wall_ns - now.wall_ns - slept_ns
        if slept_ns:
            yield Caution.SUSPENDED, f"the machine was suspended for {slept_ns / NS_PER_S:.1f} s"
        if abs(set_by_ns) > STEP_NS:
            yield Caution.CLOCK_SET, f"the wall clock was set by {set_by_ns / NS_PER_S:+.3f} s"
        if not slept_ns and abs(set_by_ns) <= STEP_NS:
            self._before = before  # slow steps add up

    def _known(self) -> ClockOffsets | None:
        """How the clocks stand; None where this process did not come to read them at once."""
        lags = min((self._read() for _ in range(_TRIES)), key=lambda each: each.took_ns)
        if lags.took_ns > STEP_NS:
            return None
        self._before = lags
        return lags

    def _read(self) -> ClockOffsets:
        """Between the two looks at the boot clock this process, or the machine, may have stopped.

        Our own clock would not tell the one, and the wall clock may be set meanwhile.
        """
        start_ns = self._boot_ns()
        now_ns, wall_ns = self._now_ns(), self._wall_ns()
        end_ns = self._boot_ns()
        return ClockOffsets(end_ns - start_ns, now_ns - wall_ns, now_ns - (start_ns + end_ns) // 2)
