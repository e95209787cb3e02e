"""Joules of any stretches of time on one device, with what sampling may have missed of them.

From the counter where there is one, spread between its ticks as the power readings were; the
integral of those readings stands beside it, or alone. docs/explanation/error.md has the why.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.analyse.counter import Points, points_around
from joulewise.analyse.course import Course, follow
from joulewise.analyse.edges import Z95, Count, Counter, Moments, Ticks, count_at
from joulewise.analyse.highest import highest_between
from joulewise.analyse.lanes import Rows
from joulewise.analyse.ticks import ticks_around
from joulewise.analyse.timing import Timing, timing_of
from joulewise.data import Energy, Source
from joulewise.record.manifest import RecordedDevice
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

_STUCK_PERIODS: Final = 20
_CLOSE: Final = 0.05
_CLOSE_S: Final = 0.001
# Where no lower reading was seen, what a device draws at least, as a share of the most.
_LEAST: Final = 0.1


@dataclass(frozen=True)
class WindowEnergy:
    """Of each window, in its order. NaN is what could not be had.

    ``energy_j`` has the card's gain divided out; ``error_sampling_j`` is a 95 % half-width.
    ``counter_j`` and ``integral_j`` are the two ways to it. ``gap_s`` is time without a reading.
    ``too_short``: shorter than the sensor can tell. ``disagree``: the two ways differ by more
    than both may be off, and the error spans them. ``counter_broken``: the counter went back or
    jumped. ``stuck``: power did not move for longer than it ever should.
    ``power_hz`` and ``counter_hz`` are new values a second (None without that lane).
    """

    energy_j: NDArray[np.float64]
    error_sampling_j: NDArray[np.float64]
    mean_w: NDArray[np.float64]
    peak_w: NDArray[np.float64]
    gap_s: NDArray[np.float64]
    counter_j: NDArray[np.float64]
    integral_j: NDArray[np.float64]
    too_short: NDArray[np.bool_]
    disagree: NDArray[np.bool_]
    counter_broken: NDArray[np.bool_]
    stuck: NDArray[np.bool_]
    power_hz: float | None = None
    counter_hz: float | None = None


def energy_of(found: WindowEnergy, i: int, device: RecordedDevice) -> Energy | None:
    """The joules of window ``i`` with both parts of their error; None where there are none."""
    value = float(found.energy_j[i])
    if not np.isfinite(value):
        return None
    sources = device.sources
    source = sources.get("energy_j" if np.isfinite(found.counter_j[i]) else "power_w")
    return Energy(
        value,
        float(found.error_sampling_j[i]),
        Z95 * device.card.gain_sigma * abs(value),
        source or next(iter(sources.values()), Source.MEASURED),
    )


def window_energy(
    device: RecordedDevice,
    fast: Rows | None,
    buffer: Rows | None,
    windows_ns: NDArray[np.int64],
) -> WindowEnergy:
    """What ``device`` drew in each window ``(start, end)``, as its lanes tell."""
    windows_ns = np.asarray(windows_ns, np.int64).reshape(-1, 2)
    edges_ns = np.unique(windows_ns)
    power = _first_with("power_w", buffer, fast)
    timing = timing_of(device.card, fast, buffer)
    points = None
    if fast is not None and "energy_j" in fast.columns and len(edges_ns):
        points = points_around(
            fast,
            edges_ns,
            most_w=device.maximum_w,
            period_ns=timing.counter_s * NS_PER_S,
        )
    ticks = _possible_ticks(points, buffer, timing)
    times_ns = np.unique(np.concatenate([edges_ns, *(some.t_ns for _, some in ticks)]))
    course = None
    if power is not None and len(times_ns):
        shift_ns = round(timing.shift_s * NS_PER_S)
        course = follow(
            power,
            times_ns + shift_ns,
            step_ns=timing.step_s * NS_PER_S,
            period_ns=timing.period_s * NS_PER_S,
        )
    return _Reckoning(device, timing, windows_ns, times_ns, course, ticks, buffer).result()


def _first_with(column: str, *lanes: Rows | None) -> Rows | None:
    return next((lane for lane in lanes if lane is not None and column in lane.columns), None)


def _possible_ticks(
    points: Points | None, buffer: Rows | None, timing: Timing
) -> list[tuple[Points, Ticks]]:
    """When the counter made its values: with the driver's samples, or just any time before."""
    if points is None:
        return []
    longest_ns = round(timing.counter_s * (1 + timing.spread) * NS_PER_S)
    since_ns = np.maximum(points.before_ns, points.t_ns - longest_ns)
    half_ns = (points.t_ns - since_ns) // 2
    loose = Ticks(points.t_ns - half_ns, half_ns / NS_PER_S)
    if buffer is None:
        return [(points, loose)]
    tick_ns, next_ns = ticks_around(buffer, points.t_ns, timing.period_s * NS_PER_S)
    # A poll takes a little while: one that asked just before a tick may have got the next value.
    # Alone among others it can be spared; many in a row are kept, as unsure as they are.
    close_ns = min(_CLOSE * timing.period_s, _CLOSE_S) * NS_PER_S
    close = (next_ns - points.t_ns < close_ns) & ~points.broken
    among = np.convolve(close, np.ones(3), "same") > 1
    kept = ~close | among
    unsure_s = np.where(close, timing.period_s, 0.0)
    tied = Ticks(tick_ns[kept], unsure_s[kept])
    return [(points.only(kept), tied), (points, loose)]


class _Reckoning:
    """Everything is known at ``times_ns``; windows are differences between two of them."""

    def __init__(
        self,
        device: RecordedDevice,
        timing: Timing,
        windows_ns: NDArray[np.int64],
        times_ns: NDArray[np.int64],
        course: Course | None,
        ticks: list[tuple[Points, Ticks]],
        buffer: Rows | None,
    ) -> None:
        self._device = device
        self._timing = timing
        self._times_ns = times_ns
        self._course = course
        self._ticks = ticks
        self._buffer = buffer
        self._start, self._end = np.searchsorted(times_ns, windows_ns).T
        self._time_s = (windows_ns[:, 1] - windows_ns[:, 0]) / NS_PER_S
        self._none = np.full(len(windows_ns), np.nan)
        self._no = np.zeros(len(windows_ns), bool)

    def result(self) -> WindowEnergy:
        integral_j, integral_error_j = self._integral()
        counter_j, counter_error_j, broken = self._counter()
        has_counter = np.isfinite(counter_j)
        energy_j = np.where(has_counter, counter_j, integral_j)
        error_j = np.where(has_counter, counter_error_j, integral_error_j)
        apart_j = np.abs(counter_j - integral_j)
        disagree = apart_j > counter_error_j + integral_error_j + self._blind_j()
        error_j = np.where(disagree, np.maximum(error_j, apart_j), error_j)
        shortest_s = max(self._timing.period_s, self._timing.window_s, self._timing.counter_s)
        gain = self._device.card.gain
        with np.errstate(divide="ignore", invalid="ignore"):
            mean_w = np.where(self._time_s > 0, energy_j / self._time_s, np.nan) / gain
        return WindowEnergy(
            energy_j=energy_j / gain,
            error_sampling_j=error_j / gain,
            mean_w=mean_w,
            peak_w=self._peak_w(),
            gap_s=self._gap_s(),
            counter_j=counter_j / gain,
            integral_j=integral_j / gain,
            too_short=self._time_s < 2 * shortest_s,
            disagree=disagree,
            counter_broken=broken,
            stuck=self._stuck(),
        )

    def _between(self, column: NDArray[Any]) -> NDArray[Any]:
        return column[self._end] - column[self._start]

    def _integral(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self._course is None:
            return self._none, self._none
        error = self._spread_j(self._start, self._end)
        return self._between(self._course.energy_j), error

    def _spread_j(self, start: NDArray[np.intp], end: NDArray[np.intp]) -> NDArray[np.float64]:
        """How far the integral of the readings between two times may be off."""
        course, timing = self._course, self._timing
        if course is None:
            return np.full(len(start), np.nan)
        time_s = (self._times_ns[end] - self._times_ns[start]) / NS_PER_S
        news = np.maximum(course.news[end] - course.news[start], 1)
        hold_s = np.clip(time_s / news, timing.step_s, None)
        rough = np.maximum(course.rough_w2[end] - course.rough_w2[start], 0.0) / 2
        unseen = 1 - 0.8 * np.minimum(timing.window_s / hold_s, 1.0)
        swing = course.swing_w[start], course.swing_w[end]
        place_s = timing.place_s
        random = Z95 * np.sqrt(
            rough * hold_s**2 * unseen + (place_s * swing[0]) ** 2 + (place_s * swing[1]) ** 2
        )
        gap_s = course.gap_s[end] - course.gap_s[start]
        gap_j = course.gap_j[end] - course.gap_j[start]
        least_w, most_w = self._range_w
        gap = np.maximum(most_w * gap_s - gap_j, gap_j - least_w * gap_s)
        return np.asarray(random + np.maximum(gap, 0.0))

    def _counter(
        self,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
        if not self._ticks:
            return self._none, self._none, self._no
        counters = [Counter(*pair, self._power_j(pair[1].t_ns)) for pair in self._ticks]
        # Two ways to place the counter's ticks: the data themselves tell which is right.
        counter = min(counters, key=lambda one: one.misfit_j)
        start, end = (
            count_at(self._moments(at), counter, self._timing, self._range_w)
            for at in (self._start, self._end)
        )
        tick = np.searchsorted(self._times_ns, counter.ticks.t_ns)
        mended, broken = self._mended(counter.points, tick, start.at, end.after)
        beyond = self._beyond_j(self._start, start, tick) + self._beyond_j(self._end, end, tick)
        error = np.sqrt(start.error_j**2 + end.error_j**2 + mended) + beyond
        return end.energy_j - start.energy_j, error, broken

    def _power_j(self, times_ns: NDArray[np.int64]) -> NDArray[np.float64]:
        if self._course is None:
            return np.full(len(times_ns), np.nan)
        return self._course.energy_j[np.searchsorted(self._times_ns, times_ns)]

    def _moments(self, at: NDArray[np.intp]) -> Moments:
        t_ns = self._times_ns[at]
        swing_w = np.zeros(len(at)) if self._course is None else self._course.swing_w[at]
        share = np.full(len(at), 0.5)
        if self._buffer is not None:
            unique_ns, which = np.unique(t_ns, return_inverse=True)
            tick, after = ticks_around(self._buffer, unique_ns, self._timing.period_s * NS_PER_S)
            share = ((unique_ns - tick) / np.maximum(after - tick, 1))[which]
        return Moments(t_ns, self._power_j(t_ns), swing_w, share)

    def _beyond_j(
        self, at: NDArray[np.intp], count: Count, tick: NDArray[np.intp]
    ) -> NDArray[np.float64]:
        """What the readings may be off by where they had to go on for the counter."""
        early = self._spread_j(np.minimum(at, tick[0]), np.full_like(at, tick[0]))
        late = self._spread_j(np.full_like(at, tick[-1]), np.maximum(at, tick[-1]))
        return np.where(count.beyond < 0, early, np.where(count.beyond > 0, late, 0.0))

    def _mended(
        self,
        points: Points,
        tick: NDArray[np.intp],
        first: NDArray[np.intp],
        last: NDArray[np.intp],
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The squared error of what stands in for the counter's jumps, and whether it jumped."""
        if not points.broken.any():
            return np.zeros(len(self._start)), self._no
        jumps = np.flatnonzero(points.broken)
        error = np.zeros(len(points.broken))
        error[jumps] = self._spread_j(tick[jumps - 1], tick[jumps])
        number, squares = np.cumsum(points.broken), np.cumsum(error**2)
        return squares[last] - squares[first], number[last] > number[first]

    @property
    def _range_w(self) -> tuple[float, float]:
        """The least and the most that the device may draw."""
        highest, lowest = 0.0, math.inf
        if self._course is not None:
            highest, lowest = self._course.highest_w, self._course.lowest_w
        most_w = max(self._device.maximum_w or 0.0, highest)
        return min(lowest, _LEAST * most_w), most_w

    def _blind_j(self) -> NDArray[np.float64]:
        """What the readings cannot exclude: any power between lowest and most, while unseen."""
        if self._course is None:
            return self._none
        timing, course = self._timing, self._course
        unseen = 1 - min(0.67 * timing.seen, 1.0)
        mean_w = self._between(course.energy_j) / np.maximum(self._time_s, 1e-9)
        least_w, most_w = self._range_w
        swing = np.maximum(most_w - mean_w, mean_w - least_w)
        return np.asarray(unseen * self._time_s * np.maximum(swing, 0.0))

    def _peak_w(self) -> NDArray[np.float64]:
        if self._course is None:
            return self._none
        return highest_between(self._course.peak_w, self._course.reading_w, self._start, self._end)

    def _gap_s(self) -> NDArray[np.float64]:
        return self._none if self._course is None else self._between(self._course.gap_s)

    def _stuck(self) -> NDArray[np.bool_]:
        course = self._course
        if course is None or course.news[-1] == 0:
            return self._no
        return (self._between(course.news) == 0) & (
            self._time_s > _STUCK_PERIODS * max(self._timing.period_s, self._timing.step_s)
        )
