"""Comparing clocks: times of a driver's samples on ours, a clock that was set, a suspension.

Drivers stamp samples with the wall clock, in microseconds. That may be set during a run;
CLOCK_MONOTONIC ("our clock") may not. Both run at the same rate, so that their difference is
constant until somebody sets the wall clock, and then changes from one sample to the next.
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

from joulewise.data import DriverSample, WarningCode
from joulewise.units import NS_PER_MS, NS_PER_S, NS_PER_US

STEP_NS: Final = 2 * NS_PER_MS
"""A smaller change between two clocks is not reported as a set clock. Chosen: above the jitter of
reading them, and below what moves a sample by more than a sensor's update."""

# A sample may be stamped this much ahead of our clock, and be this old, and still be on the wall
# clock (chosen). A driver outside of that has a clock of its own.
_AHEAD_NS: Final = 5 * NS_PER_MS
_OLDEST_NS: Final = 60 * NS_PER_S
# Known samples that are compared with a driver's whole buffer to find where the new ones begin.
# Chosen: values repeat, but hardly 16 times in a row with the same times.
_TAIL: Final = 16
# Two clocks are compared so many times, and the quickest comparison is taken. Chosen: on a loaded
# machine one in a hundred readings is interrupted.
_TRIES: Final = 3


def wall_lag_ns(now_ns: Callable[[], int], wall_ns: Callable[[], int]) -> int:
    """Our clock minus the wall clock; of several tries the quickest is the most exact."""
    tries = []
    for _ in range(_TRIES):
        before_ns, wall, after_ns = now_ns(), wall_ns(), now_ns()
        tries.append((after_ns - before_ns, (before_ns + after_ns) // 2 - wall))
    return min(tries)[1]


class DriverClock:
    """Maps the times of one device's samples to our clock, in the order the driver took them.

    The difference of the clocks is taken once, at the first sample. If the wall clock is set, the
    sample is found at which the driver's times jump by the same amount.
    """

    def __init__(
        self, now_ns: Callable[[], int] = monotonic_ns, wall_ns: Callable[[], int] = time_ns
    ) -> None:
        self._now_ns = now_ns
        self._wall_ns = wall_ns
        self._lag_ns: int | None = None  # our clock minus the driver's
        self._wall_lag_ns = 0
        self._set_ns: int | None = None  # when the wall clock was found to have been set
        self._is_whole = True  # the next answer is the driver's whole buffer
        self._whole_until_ns = 0
        self._period_us = 0
        self._tail: list[DriverSample] = []
        self._last_ns = 0

    def since_us(self) -> int:
        """The time of the last known sample, after which to request; 0 for the whole buffer.

        That is requested for a while after the wall clock was set: times give no order then.
        """
        lag_ns = wall_lag_ns(self._now_ns, self._wall_ns)
        now_ns = self._now_ns()
        if self._set_ns is None and abs(lag_ns - self._wall_lag_ns) > STEP_NS:
            self._set_ns = now_ns
            self._whole_until_ns = now_ns + _OLDEST_NS
        self._is_whole = not self._tail or now_ns < self._whole_until_ns
        return 0 if self._is_whole else self._tail[-1].t_us

    def place(self, samples: Sequence[DriverSample]) -> tuple[list[int], list[float]]:
        """The times (CLOCK_MONOTONIC) and values of the new samples; none of them twice."""
        new = self._drop_known(samples)
        if not new:
            return [], []
        lag_ns = self._lag_ns
        if lag_ns is None:
            lag_ns = self._anchor(new[-1].t_us * NS_PER_US)
        step = self._find_step(new)
        before = len(new) if step is None else step
        times_ns = [sample.t_us * NS_PER_US + lag_ns for sample in new[:before]]
        if step is not None:
            lag_ns = self._wall_lag_ns
            times_ns += [sample.t_us * NS_PER_US + lag_ns for sample in new[before:]]
        values = [sample.value for sample in new]
        self._lag_ns = lag_ns
        self._tail = [*self._tail, *new][-_TAIL:]
        return self._drop_descending(times_ns, values)

    def _drop_descending(
        self, times_ns: list[int], values: list[float]
    ) -> tuple[list[int], list[float]]:
        """Only the samples that are later than all before them."""
        if times_ns[0] <= self._last_ns or times_ns != sorted(times_ns):
            ascending = []
            for t_ns, value in zip(times_ns, values, strict=True):
                if t_ns > self._last_ns:
                    ascending.append((t_ns, value))
                    self._last_ns = t_ns
            return [t_ns for t_ns, _ in ascending], [value for _, value in ascending]
        self._last_ns = times_ns[-1]
        return times_ns, values

    def _drop_known(self, samples: Sequence[DriverSample]) -> Sequence[DriverSample]:
        """The samples after the known ones, which are recognised by the last ``_TAIL`` of them."""
        if not (self._is_whole and self._tail):
            return samples
        for end in range(1, len(samples) + 1):
            length = min(end, len(self._tail))
            if samples[end - 1] == self._tail[-1] and (
                list(samples[end - length : end]) == self._tail[-length:]
            ):
                return samples[end:]
        return samples

    def _anchor(self, newest_ns: int) -> int:
        """Our clock minus the driver's, from the first samples."""
        self._wall_lag_ns = wall_lag_ns(self._now_ns, self._wall_ns)
        self._set_ns = None
        now_ns = self._now_ns()
        age_ns = now_ns - (newest_ns + self._wall_lag_ns)
        # Of a driver with a clock of its own, the newest sample is taken to be of now.
        return self._wall_lag_ns if -_AHEAD_NS < age_ns < _OLDEST_NS else now_ns - newest_ns

    def _find_step(self, new: Sequence[DriverSample]) -> int | None:
        """The index of the first sample after the wall clock was set; None where it was not."""
        if self._set_ns is None and self._period_us:
            return None
        times_us = [sample.t_us for sample in (*self._tail[-1:], *new)]
        gaps_us = [after - before for before, after in pairwise(times_us)]
        if self._set_ns is None:
            self._period_us = median_low(gaps_us or [0])
            return None
        lag_ns = wall_lag_ns(self._now_ns, self._wall_ns)
        step_ns = self._wall_lag_ns - lag_ns
        for index, gap_us in enumerate(gaps_us):
            if abs((gap_us - self._period_us) * NS_PER_US - step_ns) < abs(step_ns) / 2:
                self._wall_lag_ns, self._set_ns = lag_ns, None
                return index
        newest_ns = times_us[-1] * NS_PER_US + (self._lag_ns or 0)
        if newest_ns > self._set_ns:  # taken since, and did not jump: a clock of its own
            self._wall_lag_ns, self._set_ns = lag_ns, None
        return None


def boot_ns() -> int:
    """The clock that runs on while the machine is suspended; our clock where there is none."""
    linux = sys.platform == "linux"
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) if linux else time.monotonic_ns()


@dataclass(frozen=True)
class ClockOffsets:
    """Our clock minus the wall clock, and minus the boot clock, read within ``took_ns``."""

    took_ns: int
    wall_ns: int
    boot_ns: int


class ClockComparison:
    """Compares our clock, which stops during a suspension, with the two that do not."""

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
        self._compare()

    def events(self) -> Iterator[tuple[WarningCode, str]]:
        """What happened since the last call: the code of a warning, and its message."""
        before, now = self._before, self._compare()
        if before is None or now is None:
            return
        slept_ns = before.boot_ns - now.boot_ns
        slept_ns = slept_ns if slept_ns > STEP_NS else 0
        set_by_ns = before.wall_ns - now.wall_ns - slept_ns
        if slept_ns:
            yield (
                WarningCode.SUSPENDED,
                f"the machine was suspended for {slept_ns / NS_PER_S:.1f} s",
            )
        if abs(set_by_ns) > STEP_NS:
            yield WarningCode.CLOCK_SET, f"the wall clock was set by {set_by_ns / NS_PER_S:+.3f} s"
        if not slept_ns and abs(set_by_ns) <= STEP_NS:
            self._before = before  # so that many small steps add up

    def _compare(self) -> ClockOffsets | None:
        """The offsets of the clocks; None where this process was interrupted in between."""
        offsets = min((self._read() for _ in range(_TRIES)), key=lambda one: one.took_ns)
        if offsets.took_ns > STEP_NS:
            return None
        self._before = offsets
        return offsets

    def _read(self) -> ClockOffsets:
        """Read all clocks once.

        The boot clock is read before and after, because it shows both an interruption of this
        process and a suspension: our clock does not show these, and the wall clock may be set.
        """
        start_ns = self._boot_ns()
        now_ns, wall_ns = self._now_ns(), self._wall_ns()
        end_ns = self._boot_ns()
        return ClockOffsets(end_ns - start_ns, now_ns - wall_ns, now_ns - (start_ns + end_ns) // 2)
