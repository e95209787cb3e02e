"""Parabolas through single runs against the power limit, and why one is not to be drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from joulewise.analyse.arrays import Floats
from joulewise.data.sweeps import POWER_LIMIT, Setting
from joulewise.metrics.power_caps import binds
from joulewise.metrics.result import ParabolaFit
from joulewise.metrics.trial_table import AxisSlice, TrialTable, slices

_COEFFICIENTS: Final = 3
_HALF: Final = 0.5


def fits(table: TrialTable, boundary: str) -> tuple[ParabolaFit, ...]:
    """Energy, time and EDP for each combination of the other settings."""
    energy_j, time_s = table.energy_j[boundary], table.time_s
    quantities = {"energy": energy_j, "time": time_s, "edp": energy_j * time_s}
    bound = binds(table)
    return tuple(
        fit
        for along in slices(table.settings, POWER_LIMIT)
        if len(along.rows) > 1
        for fit in _of_slice(along, quantities, {bound[row] for row in along.rows})
    )


def parabola(quantity: str, limits_w: Floats, values: Floats) -> ParabolaFit:
    """Least squares on single runs; ``limits_w`` has one entry a run."""
    dof = max(len(values) - _COEFFICIENTS, 0)
    nothing = ParabolaFit(quantity, Setting(()), None, None, None, dof)
    tried_w = np.unique(limits_w)
    if len(tried_w) < _COEFFICIENTS:
        return replace(nothing, problem=_too_few(len(tried_w)))
    middle, width = limits_w.mean(), np.ptp(limits_w) / 2
    (a, b, c), r2 = _least_squares((limits_w - middle) / width, values)
    means = np.array([values[limits_w == limit_w].mean() for limit_w in tried_w])
    _, means_r2 = _least_squares((tried_w - middle) / width, means)
    fit = replace(nothing, r2=r2, means_r2=means_r2)
    if len(tried_w) == _COEFFICIENTS:
        return replace(fit, problem=_too_few(len(tried_w)))
    adjusted = 1 - (1 - r2) * (len(values) - 1) / dof if r2 is not None and dof else None
    lowest = float(middle - b / (2 * a) * width) if a > 0 else None
    found = replace(
        fit,
        coefficients=_in_watts(a, b, c, middle, width),
        adjusted_r2=adjusted,
        # Beyond what was tried it is nobody's to say where the least would be.
        minimum_w=lowest if lowest and limits_w.min() <= lowest <= limits_w.max() else None,
    )
    return replace(found, problem=_problem(found))


def _least_squares(x: Floats, values: Floats) -> tuple[tuple[float, float, float], float | None]:
    """The coefficients of x², x and 1, and R²; None where all values are the same."""
    basis = np.stack([x**2, x, np.ones_like(x)], axis=1)
    (a, b, c), *_ = np.linalg.lstsq(basis, values, rcond=None)
    residual = float(((values - basis @ (a, b, c)) ** 2).sum())
    spread = float(((values - values.mean()) ** 2).sum())
    return (float(a), float(b), float(c)), 1 - residual / spread if spread > 0 else None


def _too_few(limits: int) -> str:
    """A parabola goes through any three points: only a fourth can speak against it."""
    return f"it needs at least 4 limits, and there {'is' if limits == 1 else 'are'} {limits}"


def _of_slice(
    along: AxisSlice, quantities: dict[str, Floats], bound: set[bool | None]
) -> Iterator[ParabolaFit]:
    limits_w = np.array(along.values)[:, None]
    rows = list(along.rows)
    tried = np.unique(limits_w[~np.isnan(quantities["time"][rows]).all(axis=1)])
    for name, values in quantities.items():
        of = values[rows]
        known = ~np.isnan(of)
        fit = parabola(name, np.broadcast_to(limits_w, of.shape)[known], of[known])
        if len(tried) and not known.any():
            fit = replace(fit, problem=f"of {len(tried)} limits that were tried none has an energy")
        if False in bound and True not in bound:
            fit = replace(fit, problem="no limit binds: what differs is noise")
        yield replace(fit, where=along.where)


def _problem(fit: ParabolaFit) -> str:
    if fit.adjusted_r2 is None:
        return "all runs came to the same" if fit.r2 is None else "as many coefficients as runs"
    if fit.adjusted_r2 < _HALF:
        return f"it explains {100 * max(fit.adjusted_r2, 0):.0f} % of the spread"
    if fit.coefficients is not None and fit.coefficients[0] <= 0:
        return "it bends the wrong way: it has a maximum"
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
