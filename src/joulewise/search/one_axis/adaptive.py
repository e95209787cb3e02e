"""The best setting of one power limit or clock with few runs.

The next run is at the setting that is expected to make the choice most certain.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from joulewise.data.sweeps import Planned, Setting, Trial
from joulewise.search.objective import SURE, MetricJudgement, Objective, PosteriorSamples, TrialKey
from joulewise.search.one_axis.problem import OneAxisProblem, OneAxisState
from joulewise.search.strategy import Search

# Simulated outcomes of a run, over which the gain is averaged. Chosen: the time to ask, some 10 ms,
# is in proportion to it, and the settings that compete differ little in gain.
_OUTCOMES: Final = 16
# How many runs of a setting are looked ahead: what a single one would change is mostly nothing.
_RUNS_AHEAD: Final = 2.0


def next_by_information_gain(
    samples: PosteriorSamples, judgements: Sequence[MetricJudgement], candidates: Sequence[int]
) -> int:
    """The candidate whose next run raises the expected probability of a correct choice most.

    A knowledge-gradient acquisition. The run is simulated: its outcome is that of some posterior
    samples plus noise. Given an outcome, all samples are weighted by their likelihood, and the best
    choice by these weights is as probable as its weighted mean of ``within``.
    """
    noise = np.random.default_rng(0).standard_normal((2, _OUTCOMES)) / np.sqrt(_RUNS_AHEAD)
    outcomes = np.linspace(0, len(samples.log_time) - 1, _OUTCOMES).astype(int)
    # In units of the noise of a run, so that likelihoods are those of standard normal numbers.
    scaled = np.stack(
        [
            samples.log_time / np.median(samples.time_noise),
            samples.log_power / np.median(samples.power_noise),
        ]
    )
    scaled -= scaled.mean(axis=1, keepdims=True)
    gains = []
    for candidate in candidates:
        expected = scaled[:, :, candidate]
        simulated = expected[:, outcomes] + noise
        log_likelihood = simulated.T @ expected - 0.5 * (expected**2).sum(axis=0)
        most = log_likelihood.max(axis=1, keepdims=True)
        weights = np.exp(_RUNS_AHEAD * (log_likelihood - most))
        correct = sum((weights @ judgement.within).max(axis=1) for judgement in judgements)
        gains.append((correct / weights.sum(axis=1)).mean())
    return candidates[int(np.argmax(gains))]


# The constants were tuned on simulated boards and on every second curve of Zeus' traces, and judged
# on the others: see docs/explanation/adaptive.md.
BUDGET: Final = 24  # runs at most; the aim was 16 on average, and more help little
PAIRS: Final = 2  # with the scatter of all runs, an interval narrower than that of three alone
_PER_METRIC: Final = 4  # further runs for each further metric
_LEAST_RUNS: Final = 7  # before a choice: fewer can agree by luck
# The probability that a choice needs after the least number of runs. It falls with every further
# run, since each helps less than the one before, down to a last one.
_FIRST_BAR: Final = 0.97
_BAR_STEP: Final = 0.006
_LAST_BAR: Final = 0.9
_STAYS_SURE: Final = 0.9  # a choice that was sure stays so unless the pairs bring it below
_FIRST_POINT: Final = 0.4  # of the axis, from its lower end: the third setting that is run


class OneAxisSearch(Search[OneAxisState]):
    """A :class:`~joulewise.search.strategy.Strategy` along one axis, for one metric or several.

    Without a tolerance it takes 1 %, or what the noise allows.
    """

    def __init__(
        self,
        settings: Sequence[Setting],
        reference: Setting,
        objective: Objective,
        *,
        budget: int | None = None,
        slots: int = 1,
        warm_up: int = 0,
    ) -> None:
        self._problem = OneAxisProblem.of(settings, reference, objective)
        default_budget = BUDGET + _PER_METRIC * (len(objective.metrics) - 1)
        super().__init__(
            self._problem.points,
            reference,
            objective,
            budget=default_budget if budget is None else budget,
            least=_LEAST_RUNS,
            pairs=PAIRS,
            slots=slots,
            warm_up=warm_up,
        )

    def _derive_state(self, trials: Iterable[Trial]) -> OneAxisState:
        return OneAxisState.of(self._problem, trials)

    @property
    def _has_chosen(self) -> bool:
        if len(self._explored) >= self._exploring:
            return True
        further = len(self._state.runs) - _LEAST_RUNS
        bar = max(_FIRST_BAR - _BAR_STEP * further, _LAST_BAR)
        return further >= 0 and all(one.probability >= bar for one in self._state.judgements)

    def _choose_run(
        self, under_way: Sequence[Planned], keys: set[TrialKey], rng: random.Random
    ) -> tuple[Setting, float | None]:
        points, state = self._problem.points, self._state
        first = [at for at in self._first_points if at not in state.excluded]
        tried = {setting for setting, _, _ in keys}
        for at in first:
            if points[at] not in tried:
                return points[at], None
        if not state.has_posterior:
            return points[rng.choice(first)], None
        samples, judgements = state.assume([points.index(run.setting) for run in under_way])
        return points[next_by_information_gain(samples, judgements, state.candidates)], None

    @property
    def _first_points(self) -> list[int]:
        """The ends of the axis and a point between them, in random order."""
        last = len(self._problem.points) - 1
        first = list(dict.fromkeys((self._problem.reference, 0, round(_FIRST_POINT * last))))
        random.Random(self._objective.seed).shuffle(first)  # noqa: S311  # no secret
        return first

    def _is_sure(self, chosen_by: float, confirmed: float) -> bool:
        return confirmed >= (SURE if chosen_by < SURE else _STAYS_SURE)

    def _noise(self, state: OneAxisState, updated: OneAxisState) -> dict[str, float]:  # noqa: ARG002
        return state.noise
