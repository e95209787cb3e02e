"""Steps of a program that marks none, from what its GPUs show: a period of power, or their work.

Both are told, not read: ``LoadReadings`` are what was recorded of the GPUs of a job, on one clock.

- *Period of the power.* A training whose GPUs wait between steps or epochs draws power in waves. A
  step lasts from one rise through the middle between low and high to the next, with a hysteresis,
  as of a Schmitt trigger. It is taken for a period where the power is like itself a period later
  (autocorrelation) and the steps are of nearly one length: :func:`find_load_period`.
- *Activity.* Where the load is steady instead, a pseudo step is a fixed amount of work: utilisation
  times SM clock, integrated over time. Its time is proportional to 1/clock, which is true of a
  program that only computes, and too long of one that waits for memory: a proxy, that never
  promises more speed at a low setting than there is. :func:`find_steady_rate` says where the load
  is steady enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from joulewise.analyse.chunks import Floats, Ints
from joulewise.optimise.live.steps import JobStep
from joulewise.units import NS_PER_S

# A period is believed from so many of its repetitions on, if the power a period later is as much
# alike (autocorrelation) and its lengths differ by no more than this share (standard deviation).
# Chosen on simulated boards: loads at random have an autocorrelation below 0.3 and lengths that
# differ by more than 0.5; a training with a pause between steps has 0.9 and 0.02.
_LEAST_PERIODS: Final = 8
_LEAST_LIKENESS: Final = 0.6
_MOST_SPREAD: Final = 0.15
_SCALES: Final = 8  # of averaging, each twice the one before, from one reading on (chosen)
_NO_WAVES: Final = "its power has no waves"
# Low and high power differ by this share of the high, or there are no waves (chosen).
_LEAST_WAVE: Final = 0.15
_HYSTERESIS: Final = 0.15  # on either side of the middle, as a share of the wave (chosen)
# Readings in a period, so that its rises are known to a few percent of it, and times of averaging,
# so that its waves are not averaged away (chosen).
_LEAST_READINGS: Final = 10
_LEAST_SMOOTHINGS: Final = 4
# A step of another length than this many usual ones is none: something else happened (chosen).
_LEAST_LENGTH, _MOST_LENGTH = 0.5, 2.0
_WAVES_SEEN: Final = 6  # by which low and high are judged: those of the last waves (chosen)

# The load is steady where the work done in windows of this length differs by no more than this
# share (standard deviation), and the GPUs are busy for most of the time. Chosen: that of a steady
# training on the simulated boards differs by 1 to 3 %, that of random loads by over 20 %.
_STEADY_WINDOW_S: Final = 3.0
_MOST_RATE_SPREAD: Final = 0.05
_LEAST_UTILISATION: Final = 0.5
PSEUDO_STEP_S: Final = 0.5
"""Length of a pseudo step at the setting before (chosen): several make a block."""


@dataclass(frozen=True)
class LoadReadings:
    """What the GPUs of a job showed, summed over them, in the order of time.

    ``power_w`` is at ``power_ns``. ``work`` is utilisation (0 to 1) times SM clock, and
    ``utilisation`` that of the least busy GPU, at ``work_ns``. Times are of CLOCK_MONOTONIC.
    """

    power_ns: Ints
    power_w: Floats
    work_ns: Ints
    work: Floats
    utilisation: Floats

    def since(self, t_ns: int) -> LoadReadings:
        power, work = self.power_ns >= t_ns, self.work_ns >= t_ns
        return LoadReadings(
            self.power_ns[power],
            self.power_w[power],
            self.work_ns[work],
            self.work[work],
            self.utilisation[work],
        )


@dataclass(frozen=True)
class LoadPeriod:
    """A period of the power: its length, how alike (0 to 1) its repetitions are, and their spread.

    ``spread`` is the standard deviation of the lengths as a share of their mean, and ``smooth_s``
    the time over which the power was averaged to see it.
    """

    period_s: float
    likeness: float
    spread: float
    smooth_s: float


def find_load_period(readings: LoadReadings) -> LoadPeriod | str:
    """The period of the power, or why none is believed, as the end of a sentence.

    The shortest one that is good enough: power has short waves in long ones (the kernels of a step,
    the steps between two pauses), and is averaged over longer and longer times.
    """
    if len(readings.power_ns) < _LEAST_PERIODS * _LEAST_READINGS:
        return "its power is not known"
    spacing_s = float(np.median(np.diff(readings.power_ns))) / NS_PER_S
    least_s = _LEAST_READINGS * spacing_s
    found = [_judge_waves(readings, spacing_s * 2**scale, least_s) for scale in range(_SCALES)]
    good = [each for each in found if isinstance(each, LoadPeriod)]
    reasons = [each for each in found if isinstance(each, str)]
    # Of the reasons, that of the smoothest power in which there are any waves.
    told = [reason for reason in reasons if reason != _NO_WAVES] or reasons
    return good[0] if good else told[-1]


def _judge_waves(readings: LoadReadings, smooth_s: float, least_s: float) -> LoadPeriod | str:
    """The waves of the power averaged over so long; ``least_s`` is the shortest period."""
    t_ns, power_w = smooth(readings.power_ns, readings.power_w, smooth_s)
    rises_ns = find_rises(t_ns, power_w)
    if len(rises_ns) <= _LEAST_PERIODS:
        return _NO_WAVES
    lengths_s = np.diff(rises_ns) / NS_PER_S
    period_s, spread = float(lengths_s.mean()), float(lengths_s.std(ddof=1) / lengths_s.mean())
    if spread > _MOST_SPREAD:
        return f"waves of its power differ in length by {100 * spread:.0f} %"
    if period_s < max(least_s, _LEAST_SMOOTHINGS * smooth_s):
        return f"waves of its power are as short as {period_s:.2g} s, too short for the sensor"
    likeness = _autocorrelation(t_ns, power_w, period_s)
    if likeness < _LEAST_LIKENESS:
        return f"waves of its power are not alike ({likeness:.2f} of 1)"
    return LoadPeriod(period_s, likeness, spread, smooth_s)


def smooth(t_ns: Ints, power_w: Floats, window_s: float) -> tuple[Ints, Floats]:
    """The mean power around each reading over a window, as far as all of the window is known."""
    half_ns = round(window_s * NS_PER_S / 2)
    energy = accumulate_work(t_ns, power_w)
    inside = (t_ns - half_ns >= t_ns[0]) & (t_ns + half_ns <= t_ns[-1])
    middle_ns = t_ns[inside]
    ends = [np.interp(middle_ns + shift, t_ns, energy) for shift in (-half_ns, half_ns)]
    return middle_ns, (ends[1] - ends[0]) / (2 * half_ns / NS_PER_S)


def find_rises(t_ns: Ints, power_w: Floats) -> Ints:
    """When the power rose through the middle between its low and its high; empty without waves."""
    none = np.zeros(0, np.int64)
    if len(power_w) < _LEAST_READINGS:
        return none
    low_w, high_w = np.percentile(power_w, [10, 90])
    if high_w <= 0 or (high_w - low_w) < _LEAST_WAVE * high_w:
        return none
    middle_w, margin_w = (low_w + high_w) / 2, _HYSTERESIS * (high_w - low_w)
    # 1 above the upper threshold, -1 below the lower, and between what it was before.
    side = np.where(
        power_w > middle_w + margin_w, 1, np.where(power_w < middle_w - margin_w, -1, 0)
    )
    places = np.flatnonzero(side)
    known = side[places]
    ups = places[1:][(known[1:] > 0) & (known[:-1] < 0)]
    # The reading before the rise is the last one below the middle.
    below = np.maximum.accumulate(np.where(power_w < middle_w, np.arange(len(power_w)), -1))[ups]
    share = (middle_w - power_w[below]) / (power_w[below + 1] - power_w[below])
    rises = t_ns[below] + share * (t_ns[below + 1] - t_ns[below])
    return np.asarray(rises, np.int64)


def _autocorrelation(t_ns: Ints, power_w: Floats, lag_s: float) -> float:
    """How alike the power is to itself a lag later: 1 is the same, 0 unrelated."""
    t_s = (t_ns - t_ns[0]) / NS_PER_S
    grid_s = np.arange(0.0, t_s[-1] - lag_s, lag_s / 40)
    now, later = (np.interp(grid_s + shift, t_s, power_w) for shift in (0.0, lag_s))
    if len(grid_s) < 2 or not now.std() or not later.std():
        return 0.0
    return float(np.corrcoef(now, later)[0, 1])


def find_steady_rate(readings: LoadReadings) -> float | str:
    """The work a second of a steady load, or why it is none, as the end of a sentence."""
    t_ns, work = readings.work_ns, readings.work
    if len(t_ns) < 2 or (t_ns[-1] - t_ns[0]) < 4 * _STEADY_WINDOW_S * NS_PER_S:
        return "the activity of the GPU is not known"
    if float(readings.utilisation.mean()) < _LEAST_UTILISATION:
        return f"the GPU is busy for {100 * readings.utilisation.mean():.0f} % of the time only"
    edges = np.arange(t_ns[0], t_ns[-1], round(_STEADY_WINDOW_S * NS_PER_S))
    rates = np.diff(np.interp(edges, t_ns, accumulate_work(t_ns, work))) / _STEADY_WINDOW_S
    mean, spread = float(rates.mean()), float(rates.std(ddof=1))
    if mean <= 0 or spread > _MOST_RATE_SPREAD * mean:
        return f"the activity of the GPU varies by {100 * spread / max(mean, 1e-9):.0f} %"
    return mean


def accumulate_work(t_ns: Ints, work: Floats) -> Floats:
    """The work done since the first reading, by the trapezoidal rule."""
    parts = (work[1:] + work[:-1]) / 2 * np.diff(t_ns) / NS_PER_S
    return np.concatenate([[0.0], np.cumsum(parts)])


class PowerSteps:
    """Steps by the waves of the power, once there is a period; ``add`` takes new readings."""

    def __init__(self, period: LoadPeriod) -> None:
        self._seen_ns = round(_WAVES_SEEN * period.period_s * NS_PER_S)
        self._usual_ns = period.period_s * NS_PER_S
        self._smooth_s = period.smooth_s
        self._last_ns: int | None = None

    def add(self, readings: LoadReadings) -> Iterator[JobStep]:
        """The steps that have ended since the last call, by all readings so far."""
        t_ns, power_w = readings.power_ns, readings.power_w
        if not len(t_ns):
            return
        recent = t_ns >= t_ns[-1] - self._seen_ns
        rises_ns = find_rises(*smooth(t_ns[recent], power_w[recent], self._smooth_s))
        if self._last_ns is not None:  # low and high move with the window: the same rise, a bit off
            rises_ns = rises_ns[rises_ns > self._last_ns + _LEAST_LENGTH * self._usual_ns]
        for rise_ns in rises_ns.tolist():
            last_ns, self._last_ns = self._last_ns, rise_ns
            if last_ns is None:
                continue
            length_ns = rise_ns - last_ns
            if length_ns <= _MOST_LENGTH * self._usual_ns:
                self._usual_ns += 0.1 * (length_ns - self._usual_ns)
                yield JobStep(last_ns, rise_ns)


class ActivitySteps:
    """Pseudo steps of the same work each; ``rate`` is the work a second when it began."""

    def __init__(self, rate: float) -> None:
        self._step_work = rate * PSEUDO_STEP_S
        self._last_ns: int | None = None

    def add(self, readings: LoadReadings) -> Iterator[JobStep]:
        """The pseudo steps that have ended since the last call, by all readings so far."""
        t_ns, work = readings.work_ns, readings.work
        if self._last_ns is not None:
            first = max(int(np.searchsorted(t_ns, self._last_ns)) - 1, 0)
            t_ns, work = t_ns[first:], work[first:]
        if len(t_ns) < 2:
            return
        done = accumulate_work(t_ns, work)
        begun_ns = t_ns[0] if self._last_ns is None else max(self._last_ns, int(t_ns[0]))
        before = float(np.interp(begun_ns, t_ns, done))
        marks = np.arange(before, done[-1], self._step_work)
        # Of a stretch without work only the end counts: it takes time, and adds none.
        ends_ns = np.interp(marks, done + 1e-9 * np.arange(len(done)), t_ns).astype(np.int64)
        ends_ns[:1] = begun_ns
        for start_ns, end_ns in pairwise(ends_ns.tolist()):
            if end_ns > start_ns:
                yield JobStep(start_ns, end_ns)
                self._last_ns = end_ns
        if self._last_ns is None and len(ends_ns):
            self._last_ns = int(ends_ns[0])
