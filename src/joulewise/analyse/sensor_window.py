"""Which averaging window, and how late, makes readings out of a load that goes on and off.

A reading made at tick T is taken for the mean of power over ``window_s`` that ended ``lag_s``
before T. Under a load that is either on or off, that is a straight line in the share of the
window that was on. Window and lag are those that leave the smallest squares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.data import Unavailable
from joulewise.record.cards import Figure

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
class Response:
    """How readings follow the load. ``swing_w`` lies between off and on."""

    window_s: Figure
    lag_s: Figure
    swing_w: float


def fit_response(
    tick_s: Array, value: Array, on_s: Array, off_s: Array, period_s: float
) -> Response | Unavailable:
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
    return Response(
        window_s=Figure(float(shape[_WINDOW]), float(error[_WINDOW])),
        lag_s=Figure(max(0.0, float(shape[_LAG])), float(error[_LAG])),
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
