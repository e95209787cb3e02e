"""The average of several runs' curves, on a common grid of times.

Cubic interpolation overshoots: it is for drawing only, and energies never come from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from joulewise.analyse.arrays import Floats, Ints

# Times of the grid for each new value. Published averages use about twice the raw rate.
_PER_READING: Final = 2


@dataclass(frozen=True)
class Curve:
    """Values at moments that ascend, in seconds since the run's start."""

    t_s: Floats
    values: Floats


@dataclass(frozen=True)
class Average:
    """Mean and standard deviation at each moment, over the ``count`` runs that were still there.

    The deviation of a single run is NaN.
    """

    t_s: Floats
    mean: Floats
    sigma: Floats
    count: Ints


def grid(longest_s: float, effective_hz: float, most: int) -> Floats:
    """Times up to the end of the longest run: twice as many as new values, but at most ``most``.

    With two new values a second it is a grid of 4 Hz.
    """
    times = int(np.clip(longest_s * _PER_READING * effective_hz, 1, most))
    return np.linspace(0.0, longest_s, times + 1)


def average_curves(curves: Sequence[Curve], grid_s: Floats) -> Average:
    """The mean of runs of different length: one that has ended is no longer in it."""
    values = np.stack([cubic(curve, grid_s) for curve in curves])
    is_known = np.isfinite(values)
    count = is_known.sum(axis=0)
    known = np.where(is_known, values, 0.0)
    mean = known.sum(axis=0) / np.where(count, count, np.nan)
    squares = np.square(np.where(is_known, values - mean, 0.0)).sum(axis=0)
    sigma = np.sqrt(squares / np.where(count > 1, count - 1, np.nan))
    return Average(grid_s, mean, sigma, count)


def cubic(curve: Curve, grid_s: Floats) -> Floats:
    """The curve at the grid's times by cubic Hermite pieces; NaN outside of the curve.

    The slope at a point is that of the parabola through it and its neighbours (np.gradient).
    scipy's spline would differ by less than a line is wide, and takes a second to import.
    """
    known = np.isfinite(curve.values)
    t_s, values = curve.t_s[known], curve.values[known]
    if len(t_s) < 2:
        return np.full(len(grid_s), np.nan)
    slopes = np.gradient(values, t_s, edge_order=2 if len(t_s) > 2 else 1)
    at = np.clip(np.searchsorted(t_s, grid_s, "right") - 1, 0, len(t_s) - 2)
    width = t_s[at + 1] - t_s[at]
    part = (grid_s - t_s[at]) / width
    rest = 1 - part
    interpolated = (
        values[at] * (1 + 2 * part) * rest**2
        + values[at + 1] * (1 + 2 * rest) * part**2
        + width * part * rest * (slopes[at] * rest - slopes[at + 1] * part)
    )
    return np.where((grid_s < t_s[0]) | (grid_s > t_s[-1]), np.nan, interpolated)
