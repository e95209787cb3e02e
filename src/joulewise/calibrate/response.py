"""What a board's power sensor does, from polls taken while a load went on and off.

The load is switched at irregular times, so that the sensor's ticks meet its edges at every phase
and nothing beats with anything: see ``sensor_ticks`` for when, ``sensor_window`` for over what.

Which averaging window, and how late, makes readings out of a load that goes on and off.

A reading made at tick T is taken for the mean of power over ``window_s`` that ended ``lag_s``
before T. Under a load that is either on or off, that is a straight line in the share of the
window that was on. Window and lag are those that leave the smallest squares.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.calibrate.update_period import find_ticks
from joulewise.data import Quantity, Unavailable
from joulewise.record.sensor_profiles import CalibratedValue, SensorTiming

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

LONGEST_S: Final = 1.6  # the 1 s average of recent boards, and then some

_LEAST_TICKS: Final = 40
_FOLLOWS: Final = 0.8
_COARSE_TICKS: Final = 400
_WINDOW_RATIO: Final = 1.15
_LAGS_PER_PERIOD: Final = 12
_STRAY: Final = 9.0  # median deviations: six standard ones
_MOST_STRAYS: Final = 0.1
_ITERATIONS: Final = 20
_PARTS: Final = 10
_STUDENT_95: Final = 2.26  # for as many parts


@dataclass(frozen=True)
class SensorResponse:
    """How readings follow the load. ``swing_w`` lies between off and on."""

    window_s: CalibratedValue
    lag_s: CalibratedValue
    swing_w: float


def fit_response(
    tick_s: Array, value: Array, on_s: Array, off_s: Array, period_s: float
) -> SensorResponse | Unavailable:
    """Of readings ``value`` made at ``tick_s`` while the load went on and off."""
    near = (tick_s > on_s[0]) & (tick_s < off_s[-1] + LONGEST_S)
    data = _Data(tick_s[near], value[near], on_s, off_s)
    if data.tick_s.size < _LEAST_TICKS:
        few = f"it showed {data.tick_s.size} new values under load, too few"
        return Unavailable(few, "take more time: --seconds")
    shape = data.refined(_coarse(data, period_s), period_s)
    follows = 1 - data.left(shape)
    data = data.without_strays(shape)
    shape = data.refined(shape, period_s)
    if follows < _FOLLOWS:
        return Unavailable(
            f"its readings follow the load by only {follows:.0%}: something else used the GPU, "
            "it was held back, or its sensor is no average over a window"
        )
    # Each part left out in turn: an error that knows of drift, and of power that is not square.
    without = np.array([data.without(i).refined(shape, period_s) for i in range(_PARTS)])
    spread = np.sqrt((_PARTS - 1) / _PARTS * ((without - without.mean(0)) ** 2).sum(0))
    error = _STUDENT_95 * spread
    return SensorResponse(
        window_s=CalibratedValue(float(shape[_WINDOW]), float(error[_WINDOW])),
        lag_s=CalibratedValue(max(0.0, float(shape[_LAG])), float(error[_LAG])),
        swing_w=data.swing_w(shape),
    )


# What is fitted: the rise is by how much power comes later than the load, clocks going up.
_LAG, _WINDOW, _RISE = range(3)


@dataclass(frozen=True)
class _Data:
    tick_s: Array
    value: Array
    on_s: Array
    off_s: Array

    def kept(self, some: NDArray[np.bool_] | slice) -> _Data:
        return _Data(self.tick_s[some], self.value[some], self.on_s, self.off_s)

    def without(self, part: int) -> _Data:
        return self.kept(np.arange(self.tick_s.size) * _PARTS // self.tick_s.size != part)

    def thinned(self) -> _Data:
        return self.kept(slice(None, None, -(-self.tick_s.size // _COARSE_TICKS)))

    def without_strays(self, shape: Array) -> _Data:
        """Without the few readings that are far off the rest: somebody's blip, a mistaken time."""
        off = np.abs(self.residual(shape))
        return self.kept(off <= max(_STRAY * np.median(off), np.quantile(off, 1 - _MOST_STRAYS)))

    def left(self, shape: Array) -> float:
        """The share of the readings' variance that the load does not explain."""
        return float((self.residual(shape) ** 2).mean() / self.value.var())

    def swing_w(self, shape: Array) -> float:
        _, coefficients = self._solved(shape)
        return float(coefficients[1])

    def residual(self, shape: Array) -> Array:
        columns, coefficients = self._solved(shape)
        return self.value - columns @ coefficients

    def _solved(self, shape: Array) -> tuple[Array, Array]:
        share = self._share_on(shape)
        # Boards warm up: both levels may drift.
        drift = (self.tick_s - self.tick_s[0]) / np.ptp(self.tick_s) - 0.5
        columns = np.column_stack([np.ones_like(share), share, drift, share * drift])
        coefficients, *_ = np.linalg.lstsq(columns, self.value, rcond=None)
        return columns, coefficients

    def _share_on(self, shape: Array) -> Array:
        lag_s, window_s, rise_s = shape
        on_s = np.minimum(self.on_s + rise_s, self.off_s)
        edge_s = np.column_stack([on_s, self.off_s]).ravel()
        edge_s = np.maximum.accumulate(edge_s)
        done_s = np.concatenate(
            [[0.0], np.cumsum(np.diff(edge_s) * (np.arange(edge_s.size - 1) % 2 == 0))]
        )
        end_s = self.tick_s - lag_s
        begin = np.interp(end_s - window_s, edge_s, done_s)
        return np.asarray((np.interp(end_s, edge_s, done_s) - begin) / window_s)

    def refined(self, shape: Array, period_s: float) -> Array:
        """Gauss and Newton's steps, halved where one goes too far."""
        smallest = np.array([-period_s, period_s / 50, -period_s / 2])
        residual = self.residual(shape)
        for _ in range(_ITERATIONS):
            step = 1e-3 * shape[_WINDOW]
            slopes = np.column_stack(
                [(self.residual(shape + d) - residual) / step for d in np.eye(3) * step]
            )
            move, *_ = np.linalg.lstsq(slopes, -residual, rcond=None)
            for halved in (1.0, 0.5, 0.25, 0.125, 0.03):
                tried = np.maximum(shape + halved * move, smallest)
                left = self.residual(tried)
                if left @ left < residual @ residual:
                    break
            else:
                return shape
            moved = np.abs(tried - shape).max()
            shape, residual = tried, left
            if moved < 1e-5 * shape[_WINDOW]:
                break
        return shape


def _coarse(data: _Data, period_s: float) -> Array:
    """The best of a grid, from which the exact one can be found by going downhill."""
    data = data.thinned()
    count = int(np.log(LONGEST_S / (period_s / 20)) / np.log(_WINDOW_RATIO)) + 1
    shapes = [
        np.array([lag_s, window_s, 0.0])
        for window_s in np.geomspace(period_s / 20, LONGEST_S, count)
        for lag_s in np.arange(0, 2 * _LAGS_PER_PERIOD) * (period_s / _LAGS_PER_PERIOD)
    ]
    return min(shapes, key=data.left)


_LEAST_SWING_W: Final = 3.0
_LONG_AVERAGE_S: Final = 0.5


@dataclass(frozen=True)
class SensorPolls:
    """Polls of one device, and when its load went on and off, on one clock.

    ``columns`` is by quantity, NaN where there was no answer. ``faults`` says what makes the
    recording worthless: others on the GPU, heat.
    """

    t_s: Array
    columns: dict[Quantity, Array]
    on_s: Array
    off_s: Array
    faults: tuple[str, ...] = ()

    def under_load(self) -> SensorPolls:
        """From the first edge on: an idle board may update at a pace of its own."""
        keep = self.t_s >= self.on_s[0]
        columns = {quantity: column[keep] for quantity, column in self.columns.items()}
        return replace(self, t_s=self.t_s[keep], columns=columns)


def fit_sensor(recording: SensorPolls, quantity: Quantity) -> SensorTiming | Unavailable:
    """Every figure with its error, or why the recording does not tell."""
    if recording.faults:
        return Unavailable("; ".join(recording.faults))
    loaded = recording.under_load()
    value = loaded.columns.get(quantity)
    if value is None or not np.isfinite(value).any():
        return Unavailable(f"the board told no {quantity.value}")
    low_w, high_w = np.nanquantile(value, [0.02, 0.98])
    if high_w - low_w < _LEAST_SWING_W:
        return Unavailable(f"the load moved its readings by {high_w - low_w:.1f} W, too little")
    ticks = find_ticks(loaded.t_s, value)
    if isinstance(ticks, Unavailable):
        return ticks
    period = ticks.period_s
    found = fit_response(ticks.t_s, ticks.value, loaded.on_s, loaded.off_s, period.value)
    if isinstance(found, Unavailable):
        return found
    window = found.window_s
    seen = window.value / period.value
    relative = np.hypot(window.error / window.value, period.error / period.value)
    # When in the time of a call the driver looked cannot be known.
    poll_s = float(np.median(np.diff(loaded.t_s)))
    return SensorTiming(
        update_period_s=period,
        window_s=window,
        lag_s=CalibratedValue(found.lag_s.value, float(np.hypot(found.lag_s.error, poll_s / 2))),
        unseen_share=CalibratedValue(float(max(0.0, 1 - seen)), float(min(1.0, seen * relative))),
        rate_busy_hz=_rate(recording, quantity, recording.on_s[0], recording.off_s[-1]),
        rate_idle_hz=_rate(recording, quantity, recording.t_s[0], recording.on_s[0]),
    )


def counter_period(recording: SensorPolls) -> CalibratedValue | Unavailable:
    """How often the energy counter moves."""
    column = recording.columns.get(Quantity.ENERGY)
    if column is None:
        return Unavailable("the board has no energy counter")
    ticks = find_ticks(recording.t_s, column)
    return ticks if isinstance(ticks, Unavailable) else ticks.period_s


def is_long_average(timing: SensorTiming) -> bool:
    """Whether such a reading is a mean over about a second, as the plain call's from Ampere on."""
    return timing.window_s is not None and timing.window_s.value > _LONG_AVERAGE_S


def _rate(
    recording: SensorPolls, quantity: Quantity, start_s: float, end_s: float
) -> CalibratedValue | None:
    """New values a second; one more or less may lie beyond the ends."""
    within = (recording.t_s >= start_s) & (recording.t_s < end_s)
    value = recording.columns[quantity][within]
    value = value[np.isfinite(value)]
    if value.size < 2:
        return None
    time_s = float(end_s - start_s)
    return CalibratedValue(int(np.count_nonzero(np.diff(value))) / time_s, 1 / time_s)
