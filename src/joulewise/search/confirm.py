"""The runs that confirm a choice: made after it, whole, and in pairs with the reference.

The runs that won are too good on the mean, since they won; these are not.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from math import exp, isnan, log
from statistics import fmean, stdev
from typing import Any, Final, NamedTuple

from joulewise.data.sweeps import CONFIRMING, Planned, Setting, Trial, TrialState
from joulewise.metrics.amounts import amount
from joulewise.metrics.boundary import Line
from joulewise.metrics.ratios import student
from joulewise.metrics.view import View

PAIRS: Final = 3
_SPARE: Final = 2  # pairs that may be lost to runs that fail

Told = dict[tuple[Setting, int, float | None], Trial]
"""Trials by what tells them apart."""


def unconfirmed(
    chosen: Sequence[Setting], reference: Setting, told: Told, *, lanes: int, seed: int
) -> Iterator[Planned]:
    """Runs of pairs that are missing; a pair one run of which failed is made anew."""
    together = [reference, *(setting for setting in chosen if setting != reference)]
    if len(together) == 1:
        return
    whole = 0
    for number in range(PAIRS + _SPARE):
        if whole >= PAIRS:
            return
        block = CONFIRMING + number
        done = [told.get((setting, block, None)) for setting in together]
        if any(it and it.state is not TrialState.DONE for it in done):
            continue
        whole += 1
        order = random.Random(f"{seed} {block}")  # noqa: S311  # no secret
        for setting in order.sample(together, len(together)):
            if (setting, block, None) not in told:
                yield Planned(setting, block, number % lanes)


def confirmed(chosen: Setting, reference: Setting, told: Told, view: View) -> dict[str, Any]:
    """What the pairs say that the choice saves and costs."""
    pairs = list(_pairs(chosen, reference, told, view)) if chosen != reference else []
    return {"saving": _saving(pairs), "slowdown": _slowdown(pairs)}


class _Pair(NamedTuple):
    """Time and energy of the choice and of the reference, one after the other on one board."""

    time_s: float
    energy_j: float
    reference_time_s: float
    reference_energy_j: float


def _pairs(chosen: Setting, reference: Setting, told: Told, view: View) -> Iterator[_Pair]:
    counted = [
        (trial, found)
        for trial in told.values()
        if trial.block >= CONFIRMING and trial.state is TrialState.DONE
        if (found := amount(trial, view))
    ]
    line = Line.around(counted, view)
    figures = {}
    for trial, found in counted:
        energy = dict(line.energies(found)).get(view.boundary)
        if energy is not None and energy.value > 0 and found.time_s > 0:
            figures[trial.setting, trial.block, trial.gpu] = found.time_s, energy.value
    for (setting, block, gpu), its in figures.items():
        other = figures.get((reference, block, gpu))
        if setting == chosen and other:
            yield _Pair(*its, *other)


def _saving(pairs: Sequence[_Pair]) -> dict[str, Any] | None:
    """The share of the energy that is saved, with Student's 95 % interval; None without a pair."""
    found = _ratio([log(pair.energy_j / pair.reference_energy_j) for pair in pairs])
    return found and _json(len(pairs), *(1 - ratio for ratio in (found[0], found[2], found[1])))


def _slowdown(pairs: Sequence[_Pair]) -> dict[str, Any] | None:
    """The share by which it takes longer; in the same form."""
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
