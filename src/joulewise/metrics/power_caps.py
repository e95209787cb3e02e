"""Whether power limits did anything to a load, from what held its clocks down.

Never from the mean power: a load that comes in bursts is held back at the top of each, and still
draws less than its limit on average.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final

import numpy as np

from joulewise.data.sweeps import POWER_LIMIT, SM_CLOCK
from joulewise.metrics.intervals import Ratios, means
from joulewise.metrics.result import SweepCaution, SweepWarning
from joulewise.metrics.trial_table import AxisSlice, TrialTable, slices

_SOME: Final = 0.005
_NEARLY_ALWAYS: Final = 0.95
_LOWER_CLOCK: Final = 0.99
_WELL_ABOVE: Final = 1.05  # beyond what the gain of a board may be off, mostly
_LOCK: Final = "lock the SM clock instead, which reaches lower: --sm-clock"


def binds(table: TrialTable) -> list[bool | None]:
    """Of each setting whether its power limit held the clocks down; None where nobody can say."""
    found: list[bool | None] = [None] * len(table.settings)
    capped, clock = means(table.capped).mean, means(table.clock_mhz).mean
    for along in slices(table.settings, POWER_LIMIT):
        clocks = [clock[row] for row in along.rows if not np.isnan(clock[row])]
        for row in along.rows:
            if not np.isnan(capped[row]):
                found[row] = bool(capped[row] >= _SOME)
            elif not np.isnan(clock[row]) and row != along.rows[-1]:
                found[row] = bool(clock[row] < _LOWER_CLOCK * clocks[-1])
    return found


class UnboundEvidence(Enum):
    """How it is known that neither of two power limits held the clocks down.

    The driver's throttle reasons are a direct observation. Mean clocks that hardly differ are
    weaker: a difference below 1 % may still be the work of a limit.
    """

    THROTTLE_REASONS = "throttle reasons"
    CLOCKS = "clocks"


def find_unbound_evidence(table: TrialTable, row: int, reference: int) -> UnboundEvidence | None:
    """Whether the limit of ``row`` had no other effect than that of the reference.

    None where one of them held the clocks down, or not enough is known of both.
    """
    capped, clock = means(table.capped).mean, means(table.clock_mhz).mean
    shares = np.array([capped[row], capped[reference]])
    if np.any(shares >= _SOME):
        return None
    if not np.any(np.isnan(shares)):
        return UnboundEvidence.THROTTLE_REASONS
    lower, upper = sorted((clock[row], clock[reference]))
    # A comparison with NaN, a clock that was not read, is false.
    return UnboundEvidence.CLOCKS if lower >= _LOWER_CLOCK * upper else None


def below_floor(table: TrialTable, energy: Ratios) -> set[int]:
    """The rows whose limit is so low that even the lowest clocks draw more."""
    capped, clock = means(table.capped).mean, means(table.clock_mhz).mean
    power_w = means(table.power_w).mean
    found = set()
    for along in slices(table.settings, POWER_LIMIT):
        steps = zip(along.rows, along.rows[1:], along.values, strict=False)
        for row, next_up, limit_w in steps:
            held = capped[row] >= _NEARLY_ALWAYS
            if np.isnan(capped[row]):
                held = clock[row] >= _LOWER_CLOCK * clock[next_up]
            if power_w[row] > _WELL_ABOVE * limit_w and held and not _lower(energy, row, next_up):
                found.add(row)
    return found


def cautions(table: TrialTable, energy: Ratios) -> Iterator[SweepWarning]:
    free = [
        along
        for along in slices(table.settings, POWER_LIMIT)
        if len(along.rows) > 1 and along.where.get(SM_CLOCK) is None
    ]
    bound = binds(table)
    idle = [along for along in free if _lowest_known(along, bound) is False]
    if idle:
        low_w = min(along.values[0] for along in idle)
        yield SweepWarning(
            SweepCaution.CAP_NEVER_BINDS,
            f"no power limit down to {low_w:g} W held the clocks down{_where(idle, free)}",
            _LOCK,
        )
    under = below_floor(table, energy)
    low = [along for along in free if under & set(along.rows)]
    if low:
        limits = [
            limit
            for along in low
            for row, limit in zip(along.rows, along.values, strict=True)
            if row in under
        ]
        yield SweepWarning(
            SweepCaution.CAP_BELOW_FLOOR,
            f"limits of {max(limits):g} W and less are below what the lowest clocks draw under "
            f"this load{_where(low, free)}: they cost time and save no more",
            f"take limits above {max(limits):g} W, or {_LOCK}",
        )


def _lower(energy: Ratios, row: int, next_up: int) -> bool:
    """Whether the energy is less than one limit up, beyond noise."""
    apart = means((energy.plain[row] - energy.plain[next_up])[None])
    half = 0.0 if np.isnan(apart.half[0]) else apart.half[0]
    return bool(apart.mean[0] < -half)


def _lowest_known(along: AxisSlice, bound: Sequence[bool | None]) -> bool | None:
    return next((bound[row] for row in along.rows if bound[row] is not None), None)


def _where(these: Sequence[AxisSlice], of_all: Sequence[AxisSlice]) -> str:
    """Which combinations of the other settings, where it is not all of them."""
    if len(these) == len(of_all):
        return ""
    named = "; ".join(str(along.where) for along in these[:3])
    return f" with {named}{'; …' if len(these) > 3 else ''}"
