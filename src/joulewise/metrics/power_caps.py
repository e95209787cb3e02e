"""Power limits of a sweep: whether they had an effect, and quadratic fits against them.

Whether a limit had an effect is judged by what held the clocks down, not by the mean power: a load
that comes in bursts is held back at the top of each, and still draws less than its limit on
average.

Energy, time and EDP are fitted by least squares of y = a·P² + b·P + c on the single runs, not on
the means (with four means and three coefficients the fit proves nothing), with R², adjusted R² and
the degrees of freedom. A fit that does not hold says why, and is not drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum
from typing import Final

import numpy as np

from joulewise.analyse.chunks import Floats
from joulewise.data import QualityWarning
from joulewise.data.sweeps import POWER_LIMIT, SM_CLOCK, Setting
from joulewise.metrics.intervals import Ratios, means
from joulewise.metrics.result import ParabolaFit, SweepWarningCode
from joulewise.metrics.trial_table import AxisSlice, TrialTable, slices

# All of these are chosen. A limit binds if it held the clocks down in one poll of 200; doubled,
# loads with rare bursts seem unaffected by their limit.
_BINDS_SHARE: Final = 0.005
# It does so nearly always from this share on: start and end of a run are idle.
_NEARLY_ALWAYS_SHARE: Final = 0.95
# Mean clocks that differ by less than 1 % are the same: boost steps are 15 of some 1,500 MHz.
_SAME_CLOCK_SHARE: Final = 0.99
# Power this much above its limit is beyond what the gain of most boards may be off.
_WELL_ABOVE_FACTOR: Final = 1.05
_LOCK_HINT: Final = "lock the SM clock instead, which reaches lower: --sm-clock"


def binds(table: TrialTable) -> list[bool | None]:
    """Of each setting whether its power limit held the clocks down; None where not known."""
    bound: list[bool | None] = [None] * len(table.settings)
    capped, clock = means(table.capped).mean, means(table.clock_mhz).mean
    for axis_slice in slices(table.settings, POWER_LIMIT):
        clocks = [clock[row] for row in axis_slice.rows if not np.isnan(clock[row])]
        for row in axis_slice.rows:
            if not np.isnan(capped[row]):
                bound[row] = bool(capped[row] >= _BINDS_SHARE)
            elif not np.isnan(clock[row]) and row != axis_slice.rows[-1]:
                bound[row] = bool(clock[row] < _SAME_CLOCK_SHARE * clocks[-1])
    return bound


class UnboundEvidence(Enum):
    """How it is known that neither of two power limits held the clocks down.

    The driver's throttle reasons are a direct observation. Mean clocks that hardly differ are
    weaker: a difference below 1 % may still be the work of a limit.
    """

    THROTTLE_REASONS = "throttle reasons"
    CLOCKS = "clocks"


def find_unbound_evidence(table: TrialTable, row: int, reference: int) -> UnboundEvidence | None:
    """The evidence that the limit of ``row`` had no other effect than that of the reference.

    None where one of them held the clocks down, or not enough is known of both.
    """
    capped, clock = means(table.capped).mean, means(table.clock_mhz).mean
    shares = np.array([capped[row], capped[reference]])
    if np.any(shares >= _BINDS_SHARE):
        return None
    if not np.any(np.isnan(shares)):
        return UnboundEvidence.THROTTLE_REASONS
    lower, upper = sorted((clock[row], clock[reference]))
    # A comparison with NaN, a clock that was not read, is false.
    return UnboundEvidence.CLOCKS if lower >= _SAME_CLOCK_SHARE * upper else None


def below_floor(table: TrialTable, energy: Ratios) -> set[int]:
    """The rows whose limit is so low that even the lowest clocks draw more."""
    capped, clock = means(table.capped).mean, means(table.clock_mhz).mean
    power_w = means(table.power_w).mean
    rows = set()
    for axis_slice in slices(table.settings, POWER_LIMIT):
        steps = zip(axis_slice.rows, axis_slice.rows[1:], axis_slice.values, strict=False)
        for row, next_up, limit_w in steps:
            held = capped[row] >= _NEARLY_ALWAYS_SHARE
            if np.isnan(capped[row]):
                held = clock[row] >= _SAME_CLOCK_SHARE * clock[next_up]
            if (
                power_w[row] > _WELL_ABOVE_FACTOR * limit_w
                and held
                and not _is_lower(energy, row, next_up)
            ):
                rows.add(row)
    return rows


def find_warnings(table: TrialTable, energy: Ratios) -> Iterator[QualityWarning]:
    """Limits that never held the clocks down, and limits below what the lowest clocks draw."""
    free = [
        axis_slice
        for axis_slice in slices(table.settings, POWER_LIMIT)
        if len(axis_slice.rows) > 1 and axis_slice.where.get(SM_CLOCK) is None
    ]
    bound = binds(table)
    idle = [axis_slice for axis_slice in free if _lowest_known(axis_slice, bound) is False]
    if idle:
        low_w = min(axis_slice.values[0] for axis_slice in idle)
        yield QualityWarning(
            SweepWarningCode.CAP_NEVER_BINDS,
            f"no power limit down to {low_w:g} W held the clocks down{_where(idle, free)}",
            _LOCK_HINT,
        )
    under = below_floor(table, energy)
    low = [axis_slice for axis_slice in free if under & set(axis_slice.rows)]
    if low:
        limits = [
            limit
            for axis_slice in low
            for row, limit in zip(axis_slice.rows, axis_slice.values, strict=True)
            if row in under
        ]
        yield QualityWarning(
            SweepWarningCode.CAP_BELOW_FLOOR,
            f"limits of {max(limits):g} W and less are below what the lowest clocks draw under "
            f"this load{_where(low, free)}: they cost time and save no more",
            f"choose limits above {max(limits):g} W, or {_LOCK_HINT}",
        )


def _is_lower(energy: Ratios, row: int, next_up: int) -> bool:
    """Whether the energy is less than one limit up, beyond noise."""
    apart = means((energy.plain[row] - energy.plain[next_up])[None])
    half = 0.0 if np.isnan(apart.half[0]) else apart.half[0]
    return bool(apart.mean[0] < -half)


def _lowest_known(axis_slice: AxisSlice, bound: Sequence[bool | None]) -> bool | None:
    return next((bound[row] for row in axis_slice.rows if bound[row] is not None), None)


def _where(these: Sequence[AxisSlice], of_all: Sequence[AxisSlice]) -> str:
    """Which combinations of the other settings, where it is not all of them."""
    if len(these) == len(of_all):
        return ""
    named = "; ".join(str(axis_slice.where) for axis_slice in these[:3])
    return f" with {named}{'; …' if len(these) > 3 else ''}"


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
    averages = np.array([values[limits_w == limit_w].mean() for limit_w in tried_w])
    _, means_r2 = _least_squares((tried_w - middle) / width, averages)
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
    return f"at least 4 limits with finished runs are needed, not {limits}"


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
