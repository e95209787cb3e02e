"""Runs that confirm a choice: made after it, whole, and in pairs with the reference.

The runs that led to the choice are too good on average, because they won (the winner's curse); the
fresh pairs are not. The scatter between runs is not affected by that: it is estimated from all
whole runs of the search.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from math import exp, log
from statistics import fmean
from typing import Any, Final, NamedTuple

import numpy as np

from joulewise.analyse.student_t import student
from joulewise.data.sweeps import CONFIRMING, Planned, Setting, TrialState
from joulewise.metrics.boundary import View
from joulewise.search.objective import Trials, observe

_SPARE_PAIRS: Final = 2  # pairs that may be lost to runs that fail; more fail for a reason


def missing_pairs(
    chosen: Sequence[Setting],
    reference: Setting,
    trials: Trials,
    *,
    slots: int,
    seed: int,
    pairs: int,
) -> Iterator[Planned]:
    """The runs still to make until each choice has ``pairs``; a failed one spoils its pair."""
    together = [reference, *(setting for setting in chosen if setting != reference)]
    if len(together) == 1:
        return
    sound = 0
    for number in range(pairs + _SPARE_PAIRS):
        if sound >= pairs:
            return
        block = CONFIRMING + number
        made = [trials.get((setting, block, None)) for setting in together]
        if any(trial and trial.state is not TrialState.DONE for trial in made):
            continue
        sound += 1
        order = random.Random(f"{seed} {block}")  # noqa: S311  # no secret
        for setting in order.sample(together, len(together)):
            if (setting, block, None) not in trials:
                yield Planned(setting, block, number % slots)


def confirm(chosen: Setting, reference: Setting, trials: Trials, view: View) -> dict[str, Any]:
    """Saving and slowdown of the choice by the fresh pairs, as JSON; None without a pair."""
    runs = list(_full_runs(trials, view))
    pairs = list(_pair(runs, chosen, reference)) if chosen != reference else []
    if not pairs:
        return {"saving": None, "slowdown": None}
    energy = _interval([a.energy - b.energy for a, b in pairs], _residual_variance(runs, "energy"))
    time = _interval([a.time - b.time for a, b in pairs], _residual_variance(runs, "time"))
    return {
        "saving": _as_json(len(pairs), [1 - energy[end] for end in (0, 2, 1)]),
        "slowdown": _as_json(len(pairs), [ratio - 1 for ratio in time]),
    }


class _FullRun(NamedTuple):
    """A whole run, with the logarithms of its s and J."""

    setting: Setting
    block: int
    gpu: str
    time: float
    energy: float


def _full_runs(trials: Trials, view: View) -> Iterator[_FullRun]:
    """Whole runs in an order that does not depend on that of the trials."""
    done = [
        trial
        for trial in sorted(trials.values(), key=lambda trial: (trial.block, str(trial.setting)))
        if trial.state is TrialState.DONE and trial.look_s is None
    ]
    for trial, time_s, energy_j in observe(done, view):
        yield _FullRun(trial.setting, trial.block, trial.gpu, log(time_s), log(energy_j))


def _pair(
    runs: Sequence[_FullRun], chosen: Setting, reference: Setting
) -> Iterator[tuple[_FullRun, _FullRun]]:
    """Fresh runs of the choice and the reference, of one block on one board."""
    fresh = {(run.setting, run.block, run.gpu): run for run in runs if run.block >= CONFIRMING}
    for (setting, block, gpu), run in fresh.items():
        other = fresh.get((reference, block, gpu))
        if setting == chosen and other:
            yield run, other


def _residual_variance(runs: Sequence[_FullRun], quantity: str) -> tuple[float, int]:
    """Variance of runs about setting and board (two-way ANOVA), and its degrees of freedom."""
    values = np.array([getattr(run, quantity) for run in runs])
    settings, gpus = (dict.fromkeys(getattr(run, by) for run in runs) for by in ("setting", "gpu"))
    design = np.array(
        [[*(run.setting == it for it in settings), *(run.gpu == it for it in gpus)] for run in runs]
    ).astype(float)
    effects, _, rank, _ = np.linalg.lstsq(design, values)
    dof = len(runs) - int(rank)
    return float(((values - design @ effects) ** 2).sum() / max(dof, 1)), dof


def _interval(
    log_ratios: Sequence[float], residual: tuple[float, int]
) -> tuple[float, float, float]:
    """The mean ratio and Student's 95 % interval; NaN where there are no degrees of freedom."""
    variance, dof = residual
    mean = fmean(log_ratios)
    half = float(student(dof)) * (2 * variance / len(log_ratios)) ** 0.5
    return exp(mean), exp(mean - half), exp(mean + half)


def _as_json(count: int, ends: Sequence[float]) -> dict[str, Any]:
    mean, low, high = (None if np.isnan(end) else end for end in ends)
    return {"mean": mean, "low": low, "high": high, "pairs": count}
