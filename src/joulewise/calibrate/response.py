"""Averaging window and lag of a power sensor, from polls while a load went on and off.

A value that the sensor makes at time T is modelled as the mean power over ``window_s`` seconds that
ended ``lag_s`` before T. Under a load that is either on or off, that is linear in the share of the
window in which it was on. Window and lag are fitted by least squares: a grid, then Gauss-Newton.
The load is switched at random times, so that the sensor's updates meet its edges at every phase.
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
# The share of the readings' variance that the load has to explain, here and at a wall meter.
# Chosen: another load on the GPU, or a throttled one, leaves far less.
LEAST_EXPLAINED_SHARE: Final = 0.8
_COARSE_TICKS: Final = 400  # readings at most for the grid, whose cost is in proportion to them
_WINDOW_RATIO: Final = 1.15  # of neighbouring windows of the grid
_LAGS_PER_PERIOD: Final = 12  # of the grid
_OUTLIER: Final = 9.0  # median absolute deviations: six standard ones
_MOST_OUTLIERS: Final = 0.1  # share of the readings
_ITERATIONS: Final = 20  # of Gauss-Newton, which needs about five
# Blocks of the jackknife, and Student's 97.5 % quantile for one less degrees of freedom.
JACKKNIFE_BLOCKS: Final = 10
_STUDENT_95: Final = 2.26
_LEAST_SWING_W: Final = 3.0  # of the readings under load
_LONG_AVERAGE_S: Final = 0.5  # between the 1 s averages of recent boards and the 0.1 s of others

# The fitted parameters. The rise is by how much power comes later than the load, as clocks go up.
_LAG, _WINDOW, _RISE = range(3)


def jackknife_error(estimates: Array) -> Array:
    """95 % error of an estimate, from those with one block of the data left out at a time (rows).

    Neighbouring readings share a block, so that the error includes drift (block jackknife).
    """
    count = len(estimates)
    squares = ((estimates - estimates.mean(0)) ** 2).sum(0)
    return np.asarray(_STUDENT_95 * np.sqrt((count - 1) / count * squares))


@dataclass(frozen=True)
class SensorResponse:
    """How readings follow the load; ``swing_w`` is the power between off and on."""

    window_s: CalibratedValue
    lag_s: CalibratedValue
    swing_w: float


def fit_response(
    tick_s: Array, value: Array, on_s: Array, off_s: Array, period_s: float
) -> SensorResponse | Unavailable:
    """Fit values that the sensor made at ``tick_s`` while the load went on and off."""
    near = (tick_s > on_s[0]) & (tick_s < off_s[-1] + LONGEST_S)
    data = _Data(tick_s[near], value[near], on_s, off_s)
    if data.tick_s.size < _LEAST_TICKS:
        few = f"it had {data.tick_s.size} new values under load, too few"
        return Unavailable(few, "use more --seconds")
    shape = data.refine(_search_grid(data, period_s), period_s)
    explained = 1 - data.unexplained(shape)
    data = data.without_outliers(shape)
    shape = data.refine(shape, period_s)
    if explained < LEAST_EXPLAINED_SHARE:
        return Unavailable(
            f"the load explains only {explained:.0%} of its readings: something else used the GPU, "
            "its clocks were lowered, or its sensor does not average over a window"
        )
    blocks = range(JACKKNIFE_BLOCKS)
    error = jackknife_error(np.array([data.without(i).refine(shape, period_s) for i in blocks]))
    return SensorResponse(
        window_s=CalibratedValue(float(shape[_WINDOW]), float(error[_WINDOW])),
        lag_s=CalibratedValue(max(0.0, float(shape[_LAG])), float(error[_LAG])),
        swing_w=data.swing_w(shape),
    )


@dataclass(frozen=True)
class _Data:
    """Values of the sensor with their times, and when the load went on and off."""

    tick_s: Array
    value: Array
    on_s: Array
    off_s: Array

    def select(self, some: NDArray[np.bool_] | slice) -> _Data:
        return _Data(self.tick_s[some], self.value[some], self.on_s, self.off_s)

    def without(self, part: int) -> _Data:
        return self.select(
            np.arange(self.tick_s.size) * JACKKNIFE_BLOCKS // self.tick_s.size != part
        )

    def without_outliers(self, shape: Array) -> _Data:
        """Without the few readings far from the fit: another program's load, a wrong time."""
        off = np.abs(self.residual(shape))
        limit = max(_OUTLIER * np.median(off), np.quantile(off, 1 - _MOST_OUTLIERS))
        return self.select(off <= limit)

    def unexplained(self, shape: Array) -> float:
        """The share of the readings' variance that the load does not explain."""
        return float((self.residual(shape) ** 2).mean() / self.value.var())

    def swing_w(self, shape: Array) -> float:
        _, coefficients = self._solve(shape)
        return float(coefficients[1])

    def residual(self, shape: Array) -> Array:
        columns, coefficients = self._solve(shape)
        return self.value - columns @ coefficients

    def _solve(self, shape: Array) -> tuple[Array, Array]:
        share = self._share_on(shape)
        # Boards warm up: the power of both states may drift.
        drift = (self.tick_s - self.tick_s[0]) / np.ptp(self.tick_s) - 0.5
        columns = np.column_stack([np.ones_like(share), share, drift, share * drift])
        coefficients, *_ = np.linalg.lstsq(columns, self.value, rcond=None)
        return columns, coefficients

    def _share_on(self, shape: Array) -> Array:
        """The share of each value's window in which the load was on."""
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

    def refine(self, shape: Array, period_s: float) -> Array:
        """Gauss-Newton steps, shortened where one goes too far."""
        smallest = np.array([-period_s, period_s / 50, -period_s / 2])
        residual = self.residual(shape)
        for _ in range(_ITERATIONS):
            step = 1e-3 * shape[_WINDOW]
            slopes = np.column_stack(
                [(self.residual(shape + d) - residual) / step for d in np.eye(3) * step]
            )
            move, *_ = np.linalg.lstsq(slopes, -residual, rcond=None)
            for factor in (1.0, 0.5, 0.25, 0.125, 0.03):
                tried = np.maximum(shape + factor * move, smallest)
                tried_residual = self.residual(tried)
                if tried_residual @ tried_residual < residual @ residual:
                    break
            else:
                return shape
            moved = np.abs(tried - shape).max()
            shape, residual = tried, tried_residual
            if moved < 1e-5 * shape[_WINDOW]:
                break
        return shape


def _search_grid(data: _Data, period_s: float) -> Array:
    """The best parameters of a grid, near enough for Gauss-Newton."""
    data = data.select(slice(None, None, -(-data.tick_s.size // _COARSE_TICKS)))
    count = int(np.log(LONGEST_S / (period_s / 20)) / np.log(_WINDOW_RATIO)) + 1
    shapes = [
        np.array([lag_s, window_s, 0.0])
        for window_s in np.geomspace(period_s / 20, LONGEST_S, count)
        for lag_s in np.arange(0, 2 * _LAGS_PER_PERIOD) * (period_s / _LAGS_PER_PERIOD)
    ]
    return min(shapes, key=data.unexplained)


@dataclass(frozen=True)
class SensorPolls:
    """Polls of one device, and when its load went on and off, on one clock.

    ``columns`` is by quantity, NaN where there was no answer. ``faults`` says in words why the
    polls cannot be used: other processes on the GPU, lowered clocks.
    """

    t_s: Array
    columns: dict[Quantity, Array]
    on_s: Array
    off_s: Array
    faults: tuple[str, ...] = ()

    def under_load(self) -> SensorPolls:
        """The polls from the first load on: an idle board may update at another rate."""
        keep = self.t_s >= self.on_s[0]
        columns = {quantity: column[keep] for quantity, column in self.columns.items()}
        return replace(self, t_s=self.t_s[keep], columns=columns)


def fit_sensor(recording: SensorPolls, quantity: Quantity) -> SensorTiming | Unavailable:
    """Fit update period, window and lag of one sensor, or say why it cannot be done."""
    if recording.faults:
        return Unavailable("; ".join(recording.faults))
    loaded = recording.under_load()
    value = loaded.columns.get(quantity)
    if value is None or not np.isfinite(value).any():
        return Unavailable(f"the board reports no {quantity.value}")
    low_w, high_w = np.nanquantile(value, [0.02, 0.98])
    if high_w - low_w < _LEAST_SWING_W:
        return Unavailable(f"the load moved its readings by {high_w - low_w:.1f} W, too little")
    ticks = find_ticks(loaded.t_s, value)
    if isinstance(ticks, Unavailable):
        return ticks
    period = ticks.period_s
    response = fit_response(ticks.t_s, ticks.value, loaded.on_s, loaded.off_s, period.value)
    if isinstance(response, Unavailable):
        return response
    window, lag = response.window_s, response.lag_s
    seen = window.value / period.value
    relative = np.hypot(window.error / window.value, period.error / period.value)
    # At which moment of a call the driver read the sensor is unknown.
    poll_s = float(np.median(np.diff(loaded.t_s)))
    return SensorTiming(
        update_period_s=period,
        window_s=window,
        lag_s=CalibratedValue(lag.value, float(np.hypot(lag.error, poll_s / 2))),
        unseen_share=CalibratedValue(float(max(0.0, 1 - seen)), float(min(1.0, seen * relative))),
        rate_busy_hz=_rate(recording, quantity, recording.on_s[0], recording.off_s[-1]),
        rate_idle_hz=_rate(recording, quantity, recording.t_s[0], recording.on_s[0]),
    )


def counter_period(recording: SensorPolls) -> CalibratedValue | Unavailable:
    """The update period of the energy counter."""
    column = recording.columns.get(Quantity.ENERGY)
    if column is None:
        return Unavailable("the board has no energy counter")
    ticks = find_ticks(recording.t_s, column)
    return ticks if isinstance(ticks, Unavailable) else ticks.period_s


def is_long_average(timing: SensorTiming) -> bool:
    """Whether readings are averages over about a second, as NVML's power is from Ampere on."""
    return timing.window_s is not None and timing.window_s.value > _LONG_AVERAGE_S


def _rate(
    recording: SensorPolls, quantity: Quantity, start_s: float, end_s: float
) -> CalibratedValue | None:
    """New values per second in an interval; one more or less may lie beyond its ends."""
    within = (recording.t_s >= start_s) & (recording.t_s < end_s)
    value = recording.columns[quantity][within]
    value = value[np.isfinite(value)]
    if value.size < 2:
        return None
    time_s = float(end_s - start_s)
    return CalibratedValue(int(np.count_nonzero(np.diff(value))) / time_s, 1 / time_s)
