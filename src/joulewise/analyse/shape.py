"""What can be told of the shape of power between two ticks of a counter.

Everything is judged by what stands around: how counter and readings differ from step to step and
on the mean, how the counter's own mean power bends and climbs. The shares below turn watts of
that into watts of doubt; docs/explanation/error.md tells how they were found.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.placing import Placed
from joulewise.analyse.points import AROUND
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NEAR: Final = 12
_SWING: Final = 0.12
_BEND: Final = 0.9
_USUAL: Final = 1.2
_CLIMB: Final = 0.06
# Of the stretches around a point, in order, the two that the upper quartile lies midway between.
_QUARTILE: Final = [3 * (AROUND - 1) // 2, 3 * (AROUND - 1) // 2 + 1]
# No wave between the least and the most that the device may draw is further off.
_BOUND: Final = 0.45
# A wave in step with the sensor shows only in the mean by which counter and readings differ,
# and the less so the more of the period a reading averages.
_SEEN: Final = (0.25, 0.5, 0.7, 0.8, 0.9)
_HIDDEN: Final = (0.7, 1.6, 2.4, 4.0, 12.0)


class Shape:
    """Points are named by their number; a stretch by that of the point before it."""

    def __init__(
        self,
        placed: Placed,
        total_j: NDArray[np.float64],
        power_j: NDArray[np.float64],
        *,
        read: bool,
    ) -> None:
        self._read = read
        self._joined = placed.points.joined[1:]
        self._sound = self._joined & ~placed.points.broken[1:]
        self._lasting_s = np.maximum(np.diff(placed.tick_ns) / NS_PER_S, 1e-9)
        self._rise_j = np.diff(total_j)
        self._off_j = self._rise_j - np.diff(power_j)

    @property
    def misfit_j(self) -> float:
        """How much steps of the counter and of the readings differ, beyond a constant power."""
        if not self._sound.any():
            return 0.0
        off_j, lasting_s = self._off_j[self._sound], self._lasting_s[self._sound]
        return float(np.std(off_j - off_j.sum() / lasting_s.sum() * lasting_s))

    def doubts(
        self,
        at: NDArray[np.intp],
        swing_w: NDArray[np.float64],
        rate_w: NDArray[np.float64],
        seen: float,
        range_w: tuple[float, float],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of a stretch, one standard deviation each.

        By how much counter and readings go apart in a second (J), by what they do near it; and how
        far power may be from its supposed course for one period (W). ``swing_w`` is that of the
        readings there, ``rate_w`` the counter's mean power, ``seen`` the share of a period that
        readings average, ``range_w`` what may be drawn at all.
        """
        bend_w, climb_w = self._course(at)
        apart_j, near_w = self._differences(at, _NEAR)
        hidden_w = np.zeros(len(at))
        if self._read:
            far_w = self._differences(at, AROUND)[1]
            hidden_w = np.interp(seen, _SEEN, _HIDDEN) * np.maximum(near_w, far_w)
        doubt_w = np.sqrt(
            (_SWING * swing_w) ** 2 + (_BEND * bend_w) ** 2 + (_CLIMB * climb_w) ** 2 + hidden_w**2
        )
        low_w, high_w = range_w
        room_w = (high_w - rate_w) * (rate_w - low_w) / max(high_w - low_w, 1e-9)
        return apart_j, np.minimum(doubt_w, _BOUND * np.maximum(room_w, 0.0))

    def _differences(
        self, at: NDArray[np.intp], reach: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of counter and readings around a stretch: in a second (J), and surely on the mean (W)."""
        sums = self._sums
        low, high = np.maximum(at - reach, 0), np.minimum(at + reach, len(sums) - 1)
        time, gone, time2, cross, gone2, number = (sums[high] - sums[low]).T
        time, number = np.maximum(time, 1e-9), np.maximum(number, 1)
        mean_w = gone / time
        wander_j2 = np.maximum(gone2 - 2 * mean_w * cross + mean_w**2 * time2, 0.0)
        wander_j2 /= np.maximum(number - 1, 1)
        unsure_w2 = 4 * wander_j2 * number / time**2
        in_a_second_j2 = wander_j2 * number / time
        return np.sqrt(in_a_second_j2), np.sqrt(np.maximum(mean_w**2 - unsure_w2, 0.0))

    @cached_property
    def _sums(self) -> NDArray[np.float64]:
        """Up to each point, of all that :meth:`_differences` needs of a stretch."""
        lasting, off = self._lasting_s * self._joined, self._off_j * self._joined
        columns = [lasting, off, lasting**2, lasting * off, off**2, self._joined]
        sums = np.zeros((len(lasting) + 1, len(columns)))
        np.cumsum(np.stack(columns, axis=1), axis=0, out=sums[1:])
        return sums

    def _course(self, at: NDArray[np.intp]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """How the mean power from tick to tick bends and how it climbs, around a stretch."""
        rate_w = self._rise_j / self._lasting_s
        if len(rate_w) < 3:
            return np.zeros(len(at)), np.zeros(len(at))
        at, which = np.unique(at, return_inverse=True)  # many windows may end in one stretch
        whole = self._joined[2:] & self._joined[1:-1] & self._joined[:-2]
        bends = np.abs(rate_w[2:] - 2 * rate_w[1:-1] + rate_w[:-2]) / 2 * whole
        climbs = np.abs(rate_w[2:] - rate_w[:-2]) / 2 * whole
        far = np.clip(at[:, None] + np.arange(-AROUND, AROUND - 1), 0, len(bends) - 1)
        near = np.clip(at[:, None] + np.arange(-2, 1), 0, len(bends) - 1)
        # The upper quartile; numpy's own quantile costs more than all the rest here.
        low, high = np.partition(bends[far], _QUARTILE, axis=1)[:, _QUARTILE].T
        usual = _USUAL * (high - (high - low) / 2)
        bend_w = np.maximum(bends[near].max(axis=1), usual)
        return bend_w[which], climbs[near].max(axis=1)[which]
