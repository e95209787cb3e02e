"""The best setting of one knob with few runs: choose, be sure of it, then confirm it afresh."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from joulewise.data.sweeps import Planned, Setting
from joulewise.metrics.boundary import View
from joulewise.metrics.metric import Metric
from joulewise.search.confirmation import confirmed
from joulewise.search.one_axis.acquisition import most_telling
from joulewise.search.one_axis.problem import SURE, OneAxisProblem, OneAxisState
from joulewise.search.strategy import Asked, Search

BUDGET: Final = 24
PAIRS: Final = 2  # with the noise of all runs, as telling as three on their own
_PER_METRIC: Final = 4  # runs more, where several metrics are asked for
_BLOCK: Final = 6  # runs, one of them the reference
_LEAST: Final = 7  # runs before a choice: fewer can agree by luck
_FIRST_BAR: Final = 0.97  # how likely a choice has to be by then
_FALLS: Final = 0.006  # with every run more, since each helps less
_LAST_BAR: Final = 0.9
_STAYS: Final = 0.9


class Adaptive(Search):
    """A :class:`~joulewise.search.strategy.Strategy` along one axis, for one metric or several.

    ``max_power_w`` is that of :class:`~joulewise.metrics.metric.Reference`. Without a tolerance it
    takes 1 %, or what the noise allows.
    """

    def __init__(
        self,
        settings: Sequence[Setting],
        reference: Setting,
        metrics: Sequence[Metric],
        *,
        tolerance: float | None = None,
        budget: int | None = None,
        view: View | None = None,
        max_power_w: float | None = None,
        lanes: int = 1,
        warm_up: int = 0,
        seed: int = 0,
    ) -> None:
        self._problem = OneAxisProblem.of(
            settings,
            reference,
            metrics,
            tolerance=tolerance,
            view=view,
            max_power_w=max_power_w,
            seed=seed,
        )
        count = len(self._problem.metrics)
        super().__init__(
            reference,
            budget=BUDGET + _PER_METRIC * (count - 1) if budget is None else budget,
            least=_LEAST,
            metrics=count,
            lanes=lanes,
            warm_up=warm_up,
            seed=seed,
            pairs=PAIRS,
        )
        self._chosen_by: OneAxisState | None = None

    @property
    def sure(self) -> Mapping[str, Any]:
        made = self._counts
        if not self._known.has_belief:
            return {**made, "metrics": {}, "reason": "too few runs succeeded"}
        known = OneAxisState.of(self._problem, self._told.values())
        noise = dict(zip(("time", "power"), self._known.noise, strict=True))
        return {**made, "noise": noise, "metrics": dict(self._verdicts(known))}

    @property
    def _known(self) -> OneAxisState:
        """By the runs before the choice alone."""
        if self._chosen_by is None:
            self._chosen_by = OneAxisState.of(self._problem, self._explored)
        return self._chosen_by

    def _forget(self) -> None:
        self._chosen_by = None

    @property
    def _has_chosen(self) -> bool:
        if len(self._explored) >= self._exploring:
            return True
        more = len(self._known.runs) - _LEAST
        bar = max(_FIRST_BAR - _FALLS * more, _LAST_BAR)
        return more >= 0 and all(each.probability >= bar for each in self._known.judged)

    def _explore(self, under_way: Sequence[Planned], lane: int) -> Planned:
        asked, block = self._open_block(under_way, lane, _BLOCK)
        place = sum(it == block for _, it, _ in asked)
        setting = self._setting(under_way, asked, block, place)
        while (setting, block, None) in asked:
            block += self._lanes
        return Planned(setting, block, lane)

    def _setting(
        self,
        under_way: Sequence[Planned],
        asked: Asked,
        block: int,
        place: int,
    ) -> Setting:
        problem, known = self._problem, self._known
        order = random.Random(f"{problem.seed} {block}")  # noqa: S311  # no secret
        if (self._reference, block, None) not in asked and place >= order.randrange(_BLOCK):
            return self._reference
        first = [at for at in self._first if at not in known.shut]
        for at in first:
            if all(setting != problem.points[at] for setting, _, _ in asked):
                return problem.points[at]
        if not known.has_belief:
            return problem.points[order.choice(first)]
        points = [problem.points.index(it.setting) for it in under_way]
        draws, judged = known.with_under_way(points)
        return problem.points[most_telling(draws, judged, known.open_to)]

    @property
    def _first(self) -> list[int]:
        """The ends and a point between them, in an order of their own."""
        last = len(self._problem.points) - 1
        first = list(dict.fromkeys((self._problem.reference, 0, round(0.4 * last))))
        random.Random(self._problem.seed).shuffle(first)  # noqa: S311  # no secret
        return first

    def _chosen(self) -> list[Setting]:
        known = self._known
        return [self._problem.points[it.chosen] for it in known.judged] if known.has_belief else []

    def _verdicts(self, known: OneAxisState) -> Iterator[tuple[str, dict[str, Any]]]:
        for judged in self._known.judged:
            chosen, tolerance = self._problem.points[judged.chosen], self._known.tolerance
            probability = known.probability(judged.metric, judged.chosen, tolerance)
            yield (
                judged.metric.name,
                {
                    "settings": chosen.as_json(),
                    "is_reference": chosen == self._reference,
                    "tolerance": tolerance,
                    "probability": probability,
                    "sure": self._has_chosen and _sure(judged.probability, probability),
                    **confirmed(chosen, self._reference, self._told, self._problem.view),
                },
            )


def _sure(chosen_by: float, confirmed: float) -> bool:
    """Who was sure stays so unless the confirmation speaks against it."""
    return confirmed >= (SURE if chosen_by < SURE else _STAYS)
