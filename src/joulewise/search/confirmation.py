"""The runs that confirm a choice: made after it, whole, and in pairs with the reference.

The runs that won are too good on the mean, since they won; these are not. How far runs scatter is
another matter, and all whole runs of the search have a say in it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from math import exp, log
from statistics import fmean
from typing import Any, Final, NamedTuple

import numpy as np

from joulewise.analyse.student_t import student
from joulewise.data.sweeps import CONFIRMING, Planned, Setting, Trial, TrialState
from joulewise.metrics.boundary import Line, View, amount

PAIRS: Final = 3
_SPARE: Final = 2  # pairs that may be lost to runs that fail

Told = dict[tuple[Setting, int, float | None], Trial]
"""Trials by what tells them apart."""


def unconfirmed(
    chosen: Sequence[Setting],
    reference: Setting,
    told: Told,
    *,
    lanes: int,
    seed: int,
    pairs: int = PAIRS,
) -> Iterator[Planned]:
    """Runs of pairs that are missing; a pair one run of which failed is made anew."""
    together = [reference, *(setting for setting in chosen if setting != reference)]
    if len(together) == 1:
        return
    whole = 0
    for number in range(pairs + _SPARE):
        if whole >= pairs:
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
    """What the pairs say that the choice saves and costs; each None without a pair."""
    runs = list(_runs(told, view))
    pairs = list(_pairs(runs, chosen, reference)) if chosen != reference else []
    if not pairs:
        return {"saving": None, "slowdown": None}
    energy = _ratio([its.energy - other.energy for its, other in pairs], _scatter(runs, "energy"))
    time = _ratio([its.time - other.time for its, other in pairs], _scatter(runs, "time"))
    return {
        "saving": _json(len(pairs), [1 - energy[at] for at in (0, 2, 1)]),
        "slowdown": _json(len(pairs), [ratio - 1 for ratio in time]),
    }


class _WholeRun(NamedTuple):
    """Logarithms of s and J of a whole run."""

    setting: Setting
    block: int
    gpu: str
    time: float
    energy: float


def _runs(told: Told, view: View) -> Iterator[_WholeRun]:
    """In an order of their own, in whatever order they came."""
    counted = [
        (trial, found)
        for trial in sorted(told.values(), key=lambda it: (it.block, str(it.setting)))
        if trial.state is TrialState.DONE and trial.look_s is None
        if (found := amount(trial, view))
    ]
    line = Line.around(counted, view)
    for trial, found in counted:
        energy = dict(line.energies(found)).get(view.boundary)
        if energy is not None and energy.value > 0 and found.time_s > 0:
            amounts = log(found.time_s), log(energy.value)
            yield _WholeRun(trial.setting, trial.block, trial.gpu, *amounts)


def _pairs(
    runs: Sequence[_WholeRun], chosen: Setting, reference: Setting
) -> Iterator[tuple[_WholeRun, _WholeRun]]:
    """The choice and the reference, one after the other on one board."""
    fresh = {(run.setting, run.block, run.gpu): run for run in runs if run.block >= CONFIRMING}
    for (setting, block, gpu), its in fresh.items():
        other = fresh.get((reference, block, gpu))
        if setting == chosen and other:
            yield its, other


def _scatter(runs: Sequence[_WholeRun], what: str) -> tuple[float, int]:
    """The variance of runs about what their setting and their board make of them, and its dof."""
    values = np.array([getattr(run, what) for run in runs])
    settings, gpus = (dict.fromkeys(getattr(run, by) for run in runs) for by in ("setting", "gpu"))
    made_by = np.array(
        [[*(run.setting == it for it in settings), *(run.gpu == it for it in gpus)] for run in runs]
    ).astype(float)
    found, _, rank, _ = np.linalg.lstsq(made_by, values)
    dof = len(runs) - int(rank)
    return float(((values - made_by @ found) ** 2).sum() / max(dof, 1)), dof


def _ratio(logarithms: Sequence[float], scatter: tuple[float, int]) -> tuple[float, float, float]:
    """Its mean, and the ends of Student's 95 % interval; NaN where no two runs can be compared."""
    variance, dof = scatter
    mean = fmean(logarithms)
    half = float(student(dof)) * (2 * variance / len(logarithms)) ** 0.5
    return exp(mean), exp(mean - half), exp(mean + half)


def _json(count: int, ends: Sequence[float]) -> dict[str, Any]:
    mean, low, high = (None if np.isnan(it) else it for it in ends)
    return {"mean": mean, "low": low, "high": high, "pairs": count}
