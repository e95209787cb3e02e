"""What fresh pairs of runs say of a choice, made after it: the winner and the reference, in turn.

The runs that won are too good on the mean, since they won; these are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, isnan, log
from statistics import fmean, stdev
from typing import Any, NamedTuple

from joulewise.metrics.ratios import student


class Pair(NamedTuple):
    """Time and energy of the choice and of the reference, one after the other on one board."""

    time_s: float
    energy_j: float
    reference_time_s: float
    reference_energy_j: float


def saving(pairs: Sequence[Pair]) -> dict[str, Any] | None:
    """The share of the energy that is saved, with Student's 95 % interval; None without a pair."""
    found = _ratio([log(pair.energy_j / pair.reference_energy_j) for pair in pairs])
    return found and _json(len(pairs), *(1 - ratio for ratio in (found[0], found[2], found[1])))


def slowdown(pairs: Sequence[Pair]) -> dict[str, Any] | None:
    """The share by which it takes longer; as :func:`saving`."""
    found = _ratio([log(pair.time_s / pair.reference_time_s) for pair in pairs])
    return found and _json(len(pairs), *(ratio - 1 for ratio in found))


def _ratio(logarithms: Sequence[float]) -> tuple[float, float, float] | None:
    """Its mean, low and high end; the ends are NaN with one pair alone."""
    if not logarithms:
        return None
    mean, half = fmean(logarithms), float("nan")
    if len(logarithms) > 1:
        error = stdev(logarithms) / len(logarithms) ** 0.5
        half = float(student(len(logarithms) - 1)) * error
    return exp(mean), exp(mean - half), exp(mean + half)


def _json(count: int, mean: float, low: float, high: float) -> dict[str, Any]:
    ends = (None, None) if isnan(low) else (low, high)
    return {"mean": mean, "low": ends[0], "high": ends[1], "pairs": count}
