"""What a counter says at moments between its own, and how far that may be off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.counter import AROUND, Points
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

Z95: Final = 1.96
# Joules by which a counter of whole millijoules may be off.
QUANTUM_J: Final = 0.001
# Of the swing around a moment, the share of a period by which the shape between two ticks may be
# off; likewise of the mean by which counter and readings differ. See docs/explanation/error.md.
_SWING: Final = 0.2
_HIDDEN: Final = 0.5


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

    ``error_j`` is that of the moment itself, ``beyond_j`` that of going on where the counter had
    ended. The moment lies between the points ``at`` and ``after``.
    """

    energy_j: NDArray[np.float64]
    error_j: NDArray[np.float64]
    beyond_j: NDArray[np.float64]
    at: NDArray[np.intp]
    after: NDArray[np.intp]
    tick_ns: NDArray[np.int64]


def count_at(
    moments: Moments,
    points: Points,
    ticks: Ticks,
    power_j: NDArray[np.float64],
    period_s: float,
    beyond_j: NDArray[np.float64],
) -> Count:
    """``power_j`` is what the power lane has drawn up to each tick, for the shape in between.

    Between two ticks the counter's joules are spread as the readings were; where a step of the
    counter cannot be, the readings stand in for it.
    """
    tau, total = ticks.t_ns, _mended(points, power_j)
    last = len(tau) - 1
    at = np.clip(np.searchsorted(tau, moments.t_ns, "right") - 1, 0, max(last - 1, 0))
    after = np.minimum(at + 1, last)
    span_s = np.maximum((tau[after] - tau[at]) / NS_PER_S, 1e-9)
    part = np.clip((moments.t_ns - tau[at]) / NS_PER_S / span_s, 0.0, 1.0)
    rise, drawn = total[after] - total[at], power_j[after] - power_j[at]
    with np.errstate(divide="ignore", invalid="ignore"):
        shape = np.clip((moments.power_j - power_j[at]) / drawn, 0.0, 1.0)
    shape = np.where(np.isfinite(shape), shape, part)
    early, late = moments.t_ns < tau[0], moments.t_ns > tau[last]
    energy = np.where(
        early,
        total[0] + moments.power_j - power_j[0],
        np.where(late, total[last] + moments.power_j - power_j[last], total[at] + rise * shape),
    )

    wander, hidden = _residuals(points, tau, total, power_j, at)
    rate_w = rise / span_s
    unknown_s2 = (ticks.half_s[at] * (1 - part)) ** 2 + (ticks.half_s[after] * part) ** 2
    bow = 4 * moments.share * (1 - moments.share)
    variance = (
        wander**2 * part * (1 - part)
        + bow * (period_s * _SWING * moments.swing_w) ** 2
        + bow * (period_s * _HIDDEN * hidden) ** 2
        + rate_w**2 * unknown_s2 / 3
    )
    error = Z95 * np.sqrt(variance)
    inside = np.maximum(energy - total[at], total[after] - energy)
    tied = ~early & ~late & (unknown_s2 == 0)
    error = np.where(tied, np.minimum(error, inside), error)
    return Count(
        energy,
        np.hypot(error, QUANTUM_J),
        np.where(early | late, beyond_j, 0.0),
        at,
        after,
        tau,
    )


def misfit(points: Points, ticks: Ticks, power_j: NDArray[np.float64]) -> float:
    """How much the counter's steps differ from the readings', if these are its ticks."""
    good = points.joined[1:] & ~points.broken[1:]
    if not good.any():
        return 0.0
    off_j = (np.diff(points.count_j) - np.diff(power_j))[good]
    lasting = np.maximum(np.diff(ticks.t_ns)[good], 1)
    return float(np.median(np.abs(off_j - np.median(off_j / lasting) * lasting)))


def _mended(points: Points, power_j: NDArray[np.float64]) -> NDArray[np.float64]:
    """The counter as if it had never jumped."""
    jumps = np.where(points.broken[1:], np.diff(power_j) - np.diff(points.count_j), 0.0)
    return points.count_j + np.append(0.0, np.cumsum(jumps))


def _residuals(
    points: Points,
    tau: NDArray[np.int64],
    total: NDArray[np.float64],
    power_j: NDArray[np.float64],
    at: NDArray[np.intp],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Around each moment: how counter and readings differ, by the step (J) and on the mean (W)."""
    good = points.joined[1:]
    lasting = np.where(good, np.diff(tau) / NS_PER_S, 0.0)
    off = np.where(good, np.diff(total) - np.diff(power_j), 0.0)
    columns = np.stack([lasting, off, lasting**2, lasting * off, off**2, good], axis=1)
    sums = np.concatenate([np.zeros((1, 6)), np.cumsum(columns, axis=0)])
    low, high = np.maximum(at - AROUND, 0), np.minimum(at + AROUND, len(lasting))
    time, gone, time2, cross, gone2, number = (sums[high] - sums[low]).T
    mean_w = gone / np.maximum(time, 1e-9)
    spread2 = gone2 - 2 * mean_w * cross + mean_w**2 * time2
    wander = np.sqrt(np.maximum(spread2, 0.0) / np.maximum(number - 1, 1))
    return wander, np.abs(mean_w)
