"""What a counter says of any stretch of time: between its ticks, beyond them, across a jump."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.integral import Integral
from joulewise.analyse.lanes import Rows
from joulewise.analyse.placing import Placed
from joulewise.analyse.shape import Shape
from joulewise.analyse.ticks import ticks_around
from joulewise.units import NS_PER_S, Z95

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Joules by which a counter of whole millijoules may be off.
_QUANTUM_J: Final = 0.001
# A counter that moved half as far as the readings, in so many periods, had stopped in them.
_STOPPED: Final = 0.5
_STOPPED_PERIODS: Final = 4
_CLEARLY: Final = 0.9
_UNSEEN: Final = 0.25
# A counter that goes back by a little may be late rather than broken: what it shows from there on
# was drawn before, and differs from what is drawn now by some of the jump.
_MENDED: Final = 0.05


@dataclass(frozen=True)
class Counted:
    """Joules of some windows, 95 % half-widths, and whether the counter broke in them."""

    energy_j: NDArray[np.float64]
    error_j: NDArray[np.float64]
    broken: NDArray[np.bool_]


@dataclass(frozen=True)
class _Moments:
    """A counter at some moments, each between the points ``at`` and ``after``."""

    energy_j: NDArray[np.float64]
    error_j: NDArray[np.float64]
    at: NDArray[np.intp]
    after: NDArray[np.intp]

    def halves(self) -> tuple[_Moments, _Moments]:
        middle = len(self.at) // 2
        columns = vars(self).values()
        return (
            _Moments(*(column[:middle] for column in columns)),
            _Moments(*(column[middle:] for column in columns)),
        )


def best_counter(
    placed: list[Placed], integral: Integral, *, read: bool, buffer: Rows | None
) -> Counter:
    """Of the ways to place its ticks the first, unless the readings clearly prefer another.

    ``read``: whether there are readings at all.
    """
    first, *others = (Counter(one, integral, read=read, buffer=buffer) for one in placed)
    clearly_j = _CLEARLY * first.shape.misfit_j
    better = (other for other in others if other.shape.misfit_j < clearly_j)
    return next(better, first)


class Counter:
    """A counter whose ticks have been placed, beside the integral of the readings."""

    def __init__(
        self, placed: Placed, integral: Integral, *, read: bool, buffer: Rows | None
    ) -> None:
        self._integral = integral
        self._buffer = buffer
        self._tick = integral.place(placed.tick_ns)
        self._power_j = integral.course.energy_j[self._tick]
        self.placed = _checked(placed, integral, self._power_j) if read else placed
        points = self.placed.points
        # The readings stand in for a step that cannot be, so that the count runs on.
        jumps = np.where(points.broken[1:], np.diff(self._power_j) - np.diff(points.count_j), 0.0)
        self._jump_j = np.abs(jumps)
        self._a_second_j = integral.range_w[1]
        self._total_j = points.count_j + np.append(0.0, np.cumsum(jumps))
        self.shape = Shape(self.placed, self._total_j, self._power_j, read=read)

    def between(self, start: NDArray[np.intp], end: NDArray[np.intp]) -> Counted:
        """Moments are named as the integral does."""
        first, last = self._at(np.concatenate([start, end])).halves()
        broken = self.placed.points.broken
        mended_j2 = np.zeros(len(broken))
        jumps = np.flatnonzero(broken)
        mended_j2[jumps] = self._integral.error_j(self._tick[jumps - 1], self._tick[jumps]) ** 2
        mended_j2[jumps] += (_MENDED * np.minimum(self._jump_j[jumps - 1], self._a_second_j)) ** 2
        total_j2, number = np.cumsum(mended_j2), np.cumsum(broken)
        within_j2 = np.maximum(total_j2[last.after] - total_j2[first.at], 0.0)
        within_j2 += self._integral.unchecked_j(start, end) ** 2
        return Counted(
            last.energy_j - first.energy_j,
            np.sqrt(first.error_j**2 + last.error_j**2 + within_j2),
            number[last.after] > number[first.at],
        )

    def _at(self, moments: NDArray[np.intp]) -> _Moments:
        """Between two ticks the counter's joules are spread as the readings were."""
        tick_ns, total, power_j = self.placed.tick_ns, self._total_j, self._power_j
        t_ns = self._integral.times_ns[moments]
        read_j = self._integral.course.energy_j[moments]
        last = len(tick_ns) - 1
        at = np.clip(np.searchsorted(tick_ns, t_ns, "right") - 1, 0, max(last - 1, 0))
        after = np.minimum(at + 1, last)
        span_s = np.maximum((tick_ns[after] - tick_ns[at]) / NS_PER_S, 1e-9)
        part = np.clip((t_ns - tick_ns[at]) / NS_PER_S / span_s, 0.0, 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = (read_j - power_j[at]) / (power_j[after] - power_j[at])
        share = np.where(np.isfinite(share), np.clip(share, 0.0, 1.0), part)
        # From tick to tick the readings know the shape; within one as far as they see of it.
        timing = self._integral.timing
        trust = np.where(span_s > 1.5 * timing.period_s, 1.0, min(timing.seen, 1.0))
        rise = total[after] - total[at]
        risen = (part + trust * (share - part)) * rise
        low, high = self._feasible(part * span_s, span_s, rise)
        risen = np.clip(risen, low, high)
        within = total[at] + risen
        # What two ticks tell is certain: no more than lies between them can be amiss, and where
        # nothing was read in between, all of that may be.
        half_s = self.placed.half_s
        most = np.maximum(risen - low, high - risen) + _QUANTUM_J
        unread = self._integral.unread_s(self._tick[at], self._tick[after]) / span_s
        error = np.maximum(self._error_j(moments, at, after, part, rise), unread * most)
        certain = (half_s[at] == 0) & (half_s[after] == 0)
        error = np.where(certain, np.minimum(error, most), error)

        beyond = np.where(t_ns < tick_ns[0], 0, last)
        outside = (t_ns < tick_ns[0]) | (t_ns > tick_ns[last])
        energy = np.where(outside, total[beyond] + read_j - power_j[beyond], within)
        ends = self._tick[beyond]
        alone = self._integral.error_j(np.minimum(ends, moments), np.maximum(ends, moments))
        return _Moments(energy, error + np.where(outside, alone, 0.0), at, after)

    def _feasible(
        self,
        into_s: NDArray[np.float64],
        span_s: NDArray[np.float64],
        rise_j: NDArray[np.float64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Between what the count has risen, if power kept to the least and the most.

        Where the whole rise cannot be, by these, nothing is known but that it never falls.
        """
        low_w, high_w = self._integral.range_w
        rest_s = span_s - into_s
        low_j = np.maximum(low_w * into_s, rise_j - high_w * rest_s)
        high_j = np.minimum(high_w * into_s, rise_j - low_w * rest_s)
        possible = (low_w * span_s <= rise_j) & (rise_j <= high_w * span_s)
        return np.where(possible, low_j, 0.0), np.where(possible, high_j, rise_j)

    def _error_j(
        self,
        moments: NDArray[np.intp],
        at: NDArray[np.intp],
        after: NDArray[np.intp],
        part: NDArray[np.float64],
        rise_j: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Three doubts: of the ticks passed over, of the shape between two, of when they were."""
        integral, shape, half_s = self._integral, self.shape, self.placed.half_s
        period_s = integral.timing.period_s
        span_s = np.maximum((self.placed.tick_ns[after] - self.placed.tick_ns[at]) / NS_PER_S, 1e-9)
        rate_w = rise_j / span_s
        between = part * (1 - part)
        swing_w = integral.course.swing_w[moments]
        unseen = max(1 - integral.timing.seen, 0.0)
        passed_s = np.clip(span_s - period_s, 0.0, None)
        apart_j, doubt_w = shape.doubts(at, swing_w, rate_w, integral.timing.seen, integral.range_w)
        passed = (np.sqrt(passed_s) * apart_j) ** 2 * between
        passed += passed_s * period_s * (_UNSEEN * unseen * swing_w) ** 2 * between
        share = self._share(integral.times_ns[moments])
        bow = 4 * share * (1 - share) * (period_s * doubt_w) ** 2
        when_s2 = ((half_s[at] * (1 - part)) ** 2 + (half_s[after] * part) ** 2) / 3
        return np.hypot(Z95 * np.sqrt(passed + bow + rate_w**2 * when_s2), _QUANTUM_J)

    def _share(self, t_ns: NDArray[np.int64]) -> NDArray[np.float64]:
        """How far each moment lies between two ticks of the sensor; the middle if nobody knows."""
        if self._buffer is None:
            return np.full(len(t_ns), 0.5)
        period_ns = self._integral.timing.period_s * NS_PER_S
        unique_ns, which = np.unique(t_ns, return_inverse=True)
        tick_ns, next_ns = ticks_around(self._buffer, unique_ns, period_ns)
        return np.asarray(((unique_ns - tick_ns) / np.maximum(next_ns - tick_ns, 1))[which])


def _checked(placed: Placed, integral: Integral, power_j: NDArray[np.float64]) -> Placed:
    """Breaks the counter also where readings show that it stood still, or ran ahead.

    A poll that got the next tick's value runs ahead too, but its neighbour makes up for it.
    """
    points, timing = placed.points, integral.timing
    lasting_s = np.diff(placed.tick_ns) / NS_PER_S
    rise_j, read_j = np.diff(points.count_j), np.diff(power_j)
    stood = lasting_s > _STOPPED_PERIODS * max(timing.counter_s, timing.poll_s)
    stood &= rise_j < _STOPPED * read_j
    over_j = rise_j - read_j
    beside_j = np.concatenate([[0.0], over_j, [0.0]])
    made_up = np.minimum(beside_j[:-2], beside_j[2:]) < -over_j / 2
    # A model's readings of power are made of its count, and later.
    certain = (placed.half_s[1:] == 0) & (placed.half_s[:-1] == 0) & (timing.counter_s > 0)
    ahead = certain & (rise_j > integral.range_w[1] * lasting_s + _QUANTUM_J) & ~made_up
    broken = points.broken | np.append(False, (stood | ahead) & points.joined[1:])
    return replace(placed, points=replace(points, broken=broken))
