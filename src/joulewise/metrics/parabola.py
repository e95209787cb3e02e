"""Quadratic fits of energy, time and EDP against the power limit.

Method: least squares of y = a·P² + b·P + c on the single runs, not on the means (with four means
and three coefficients the fit proves nothing), with R², adjusted R² and the degrees of freedom. A
fit that does not hold says why, and is not drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from joulewise.analyse.chunks import Floats
from joulewise.data.sweeps import POWER_LIMIT, Setting
from joulewise.metrics.power_caps import binds
from joulewise.metrics.result import ParabolaFit
from joulewise.metrics.trial_table import AxisSlice, TrialTable, slices

# Of a parabola.
_COEFFICIENTS: Final = 3
# Below this adjusted R² the fit explains less of the spread than it leaves (chosen).
_MIN_ADJUSTED_R2: Final = 0.5


def fits(table: TrialTable, boundary: str) -> tuple[ParabolaFit, ...]:
    """The fits of energy, time and EDP for each combination of the other settings."""
    energy_j, time_s = table.energy_j[boundary], table.time_s
    quantities = {"energy": energy_j, "time": time_s, "edp": energy_j * time_s}
    bound = binds(table)
    return tuple(
        fit
        for axis_slice in slices(table.settings, POWER_LIMIT)
        if len(axis_slice.rows) > 1
        for fit in _of_slice(axis_slice, quantities, {bound[row] for row in axis_slice.rows})
    )


def parabola(quantity: str, limits_w: Floats, values: Floats) -> ParabolaFit:
    """The fit of one quantity; ``limits_w`` has one entry a run.

    Limits are scaled to -1 … 1 for the arithmetic, and coefficients given in watts.
    """
    dof = max(len(values) - _COEFFICIENTS, 0)
    unfitted = ParabolaFit(quantity, Setting(()), None, None, None, dof)
    tried_w = np.unique(limits_w)
    if len(tried_w) < _COEFFICIENTS:
        return replace(unfitted, problem=_too_few(len(tried_w)))
    middle, width = limits_w.mean(), np.ptp(limits_w) / 2
    (a, b, c), r2 = _least_squares((limits_w - middle) / width, values)
    means = np.array([values[limits_w == limit_w].mean() for limit_w in tried_w])
    _, means_r2 = _least_squares((tried_w - middle) / width, means)
    fit = replace(unfitted, r2=r2, means_r2=means_r2)
    if len(tried_w) == _COEFFICIENTS:
        return replace(fit, problem=_too_few(len(tried_w)))
    adjusted = 1 - (1 - r2) * (len(values) - 1) / dof if r2 is not None and dof else None
    lowest = float(middle - b / (2 * a) * width) if a > 0 else None
    complete = replace(
        fit,
        coefficients=_in_watts(a, b, c, middle, width),
        adjusted_r2=adjusted,
        # A minimum outside of the limits that were tried would be an extrapolation.
        minimum_w=lowest if lowest and limits_w.min() <= lowest <= limits_w.max() else None,
    )
    return replace(complete, problem=_problem(complete))


def _least_squares(x: Floats, values: Floats) -> tuple[tuple[float, float, float], float | None]:
    """The coefficients of x², x and 1, and R²; None where all values are the same."""
    basis = np.stack([x**2, x, np.ones_like(x)], axis=1)
    (a, b, c), *_ = np.linalg.lstsq(basis, values, rcond=None)
    residual = float(((values - basis @ (a, b, c)) ** 2).sum())
    spread = float(((values - values.mean()) ** 2).sum())
    return (float(a), float(b), float(c)), 1 - residual / spread if spread > 0 else None


def _too_few(limits: int) -> str:
    """A parabola goes through any three points: only a fourth can contradict it."""
    return f"at least 4 limits are needed, and there {'is' if limits == 1 else 'are'} {limits}"


def _of_slice(
    axis_slice: AxisSlice, quantities: dict[str, Floats], bound: set[bool | None]
) -> Iterator[ParabolaFit]:
    limits_w = np.array(axis_slice.values)[:, None]
    rows = list(axis_slice.rows)
    tried = np.unique(limits_w[~np.isnan(quantities["time"][rows]).all(axis=1)])
    for name, values in quantities.items():
        of_rows = values[rows]
        known = ~np.isnan(of_rows)
        fit = parabola(name, np.broadcast_to(limits_w, of_rows.shape)[known], of_rows[known])
        if len(tried) and not known.any():
            fit = replace(fit, problem=f"no energy is known at any of the {len(tried)} limits")
        if False in bound and True not in bound:
            fit = replace(fit, problem="no limit binds: the differences are noise")
        yield replace(fit, where=axis_slice.where)


def _problem(fit: ParabolaFit) -> str:
    if fit.adjusted_r2 is None:
        return "all runs have the same value" if fit.r2 is None else "as many coefficients as runs"
    if fit.adjusted_r2 < _MIN_ADJUSTED_R2:
        return f"the fit explains only {100 * max(fit.adjusted_r2, 0):.0f} % of the spread"
    if fit.coefficients is not None and fit.coefficients[0] <= 0:
        return "the fit has a maximum instead of a minimum"
    return ""


def _in_watts(
    a: float, b: float, c: float, middle: float, width: float
) -> tuple[float, float, float]:
    square, slope = a / width**2, b / width
    return (
        float(square),
        float(slope - 2 * square * middle),
        float(c - slope * middle + square * middle**2),
    )
