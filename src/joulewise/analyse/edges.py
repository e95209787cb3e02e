"""What a counter says at moments between its own, and how far that may be off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.counter import AROUND, Points
from joulewise.analyse.timing import Timing
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

Z95: Final = 1.96
_NEAR: Final = 12
# Joules by which a counter of whole millijoules may be off.
_QUANTUM_J: Final = 0.001
# What the shape of power between two ticks may be off by, in shares of a period, for each watt
# of what can be seen of it; docs/explanation/error.md tells how they were found.
_SWING = 0.1
_BEND = 0.65
_TREND = 0.06
_BOUND = 0.45
# A wave in step with the sensor shows only as a difference between the means of counter and
# readings: the smaller, the more of the period a reading averages.
_SEEN = (0.25, 0.5, 0.7, 0.8, 0.9)
_HIDDEN = (0.7, 1.6, 2.4, 4.0, 12.0)


@dataclass(frozen=True)
class Ticks:
    """When the counter made the value that a poll got (``t_ns``, give or take ``half_s``)."""

    t_ns: NDArray[np.int64]
    half_s: NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """Some moments, with the power lane's joules up to them and its swing around them.

    ``share`` is how far each lies between two ticks of the sensor, 0.5 where nobody knows.
    """

    t_ns: NDArray[np.int64]
    power_j: NDArray[np.float64]
    swing_w: NDArray[np.float64]
    share: NDArray[np.float64]


@dataclass(frozen=True)
class Count:
    """A counter at some moments: joules, and 95 % half-widths.

    The moment lies between the points ``at`` and ``after``; ``beyond`` is -1 or 1 where it lies
    before or after all of them, and the readings alone had to serve.
    """

    energy_j: NDArray[np.float64]
    error_j: NDArray[np.float64]
    beyond: NDArray[np.int64]
    at: NDArray[np.intp]
    after: NDArray[np.intp]


@dataclass(frozen=True)
class Counter:
    """A counter's points, at what are taken for its ticks, and the readings' joules up to each."""

    points: Points
    ticks: Ticks
    power_j: NDArray[np.float64]

    @property
    def total_j(self) -> NDArray[np.float64]:
        """The count as if it had never jumped: the readings stand in for a step that cannot be."""
        points = self.points
        jumps = np.where(points.broken[1:], np.diff(self.power_j) - np.diff(points.count_j), 0.0)
        return points.count_j + np.append(0.0, np.cumsum(jumps))

    @property
    def misfit_j(self) -> float:
        """How much the counter's steps differ from the readings', if these are its ticks."""
        good = self.points.joined[1:] & ~self.points.broken[1:]
        if not good.any():
            return 0.0
        off_j = (np.diff(self.points.count_j) - np.diff(self.power_j))[good]
        lasting = np.maximum(np.diff(self.ticks.t_ns)[good], 1)
        return float(np.std(off_j - off_j.sum() / lasting.sum() * lasting))


def count_at(
    moments: Moments, counter: Counter, timing: Timing, range_w: tuple[float, float]
) -> Count:
    """The counter's joules between two ticks are spread as the readings were.

    ``range_w`` is between what the device's power lies at all times.
    """
    tau, total, power_j = counter.ticks.t_ns, counter.total_j, counter.power_j
    last = len(tau) - 1
    at = np.clip(np.searchsorted(tau, moments.t_ns, "right") - 1, 0, max(last - 1, 0))
    after = np.minimum(at + 1, last)
    span_s = np.maximum((tau[after] - tau[at]) / NS_PER_S, 1e-9)
    part = np.clip((moments.t_ns - tau[at]) / NS_PER_S / span_s, 0.0, 1.0)
    rise = total[after] - total[at]
    with np.errstate(divide="ignore", invalid="ignore"):
        shape = (moments.power_j - power_j[at]) / (power_j[after] - power_j[at])
    shape = np.where(np.isfinite(shape), np.clip(shape, 0.0, 1.0), part)
    beyond = (moments.t_ns > tau[last]).astype(np.int64) - (moments.t_ns < tau[0])
    end = np.where(beyond < 0, 0, last)
    energy = np.where(
        beyond == 0, total[at] + rise * shape, total[end] + moments.power_j - power_j[end]
    )

    off = _Differences(counter, total)
    wander, hidden = off.around(at, _NEAR)
    hidden = np.maximum(hidden, off.around(at, AROUND)[1])
    bend, trend = off.course(at)
    rate_w = rise / span_s
    seen_w = (
        (_SWING * moments.swing_w) ** 2
        + (_BEND * bend) ** 2
        + (_TREND * trend) ** 2
        + (np.interp(timing.seen, _SEEN, _HIDDEN) * hidden) ** 2
    )
    low_w, high_w = range_w
    room_w = (high_w - rate_w) * (rate_w - low_w) / (high_w - low_w)
    most_w = _BOUND * np.clip(room_w, 0.0, None)
    bow = 4 * moments.share * (1 - moments.share)
    unknown_s2 = (counter.ticks.half_s[at] * (1 - part)) ** 2
    unknown_s2 += (counter.ticks.half_s[after] * part) ** 2
    variance = (
        wander**2 * part * (1 - part) * np.clip(1 - timing.period_s / span_s, 0.0, None)
        + bow * timing.period_s**2 * np.minimum(seen_w, most_w**2)
        + rate_w**2 * unknown_s2 / 3
    )
    error = np.hypot(Z95 * np.sqrt(variance), _QUANTUM_J)
    # What a tick tells is certain: no more than all that lies between two of them can be amiss.
    inside = np.maximum(energy - total[at], total[after] - energy) + _QUANTUM_J
    certain = (beyond == 0) & (unknown_s2 == 0)
    return Count(energy, np.where(certain, np.minimum(error, inside), error), beyond, at, after)


class _Differences:
    """What sets the counter apart from the readings, and from a straight course."""

    def __init__(self, counter: Counter, total_j: NDArray[np.float64]) -> None:
        self._joined = counter.points.joined[1:]
        self._lasting_s = np.maximum(np.diff(counter.ticks.t_ns) / NS_PER_S, 1e-9)
        self._rise_j = np.diff(total_j)
        self._off_j = np.nan_to_num(self._rise_j - np.diff(counter.power_j))

    def around(
        self, at: NDArray[np.intp], reach: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """How counter and readings differ around a point: by the step (J), on the mean (W)."""
        lasting, off = self._lasting_s * self._joined, self._off_j * self._joined
        columns = [lasting, off, lasting**2, lasting * off, off**2, self._joined]
        sums = np.concatenate([np.zeros((1, 6)), np.cumsum(np.stack(columns, axis=1), axis=0)])
        low, high = np.maximum(at - reach, 0), np.minimum(at + reach, len(lasting))
        time, gone, time2, cross, gone2, number = (sums[high] - sums[low]).T
        time, number = np.maximum(time, 1e-9), np.maximum(number, 1)
        mean_w = gone / time
        wander2 = np.maximum(gone2 - 2 * mean_w * cross + mean_w**2 * time2, 0.0)
        wander2 /= np.maximum(number - 1, 1)
        doubt_w2 = 4 * wander2 * number / time**2
        return np.sqrt(wander2), np.sqrt(np.maximum(mean_w**2 - doubt_w2, 0.0))

    def course(self, at: NDArray[np.intp]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """How the mean power from tick to tick bends and how it climbs, around a point."""
        rate_w = self._rise_j / self._lasting_s
        if len(rate_w) < 3:
            return np.zeros(len(at)), np.zeros(len(at))
        bends = np.abs(rate_w[2:] - 2 * rate_w[1:-1] + rate_w[:-2]) / 2
        climbs = np.abs(rate_w[2:] - rate_w[:-2]) / 2
        whole = self._joined[2:] & self._joined[1:-1] & self._joined[:-2]
        bends, climbs = bends * whole, climbs * whole
        far = np.clip(at[:, None] + np.arange(-_NEAR, _NEAR - 1), 0, len(bends) - 1)
        near = np.clip(at[:, None] + np.arange(-2, 1), 0, len(bends) - 1)
        usual = 1.5 * np.median(bends[far], axis=1)
        return np.maximum(bends[near].max(axis=1), usual), climbs[near].max(axis=1)
