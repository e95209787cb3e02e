"""The best setting of one power limit or clock with few runs."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Final

from joulewise.data.sweeps import Planned, Setting, Trial
from joulewise.search.objective import SURE, Objective, TrialKey
from joulewise.search.one_axis.acquisition import next_by_information_gain
from joulewise.search.one_axis.problem import OneAxisProblem, OneAxisState
from joulewise.search.strategy import Search

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
        usual = BUDGET + _PER_METRIC * (len(objective.metrics) - 1)
        super().__init__(
            self._problem.points,
            reference,
            objective,
            budget=usual if budget is None else budget,
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
