"""The best setting along several axes with few runs: by Optuna, and by looks where those will do.

Which setting to try next is Optuna's to say; which is best by all that was seen, and how surely,
is weighed apart from it (:mod:`joulewise.search.several_known`), and confirmed by fresh whole runs.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Final

from joulewise.data.sweeps import Planned, Setting, TrialState
from joulewise.metrics.rules import Metric
from joulewise.metrics.view import View
from joulewise.search.adaptive_known import SURE
from joulewise.search.confirm import PAIRS, confirmed
from joulewise.search.searching import Asked, Search
from joulewise.search.several_known import TOLERANCE, Known, Problem
from joulewise.search.several_space import Places
from joulewise.search.several_study import TPE, find_sampler, suggest

_PER_AXIS: Final = 10
_BESIDES: Final = 10
_PER_SETTING: Final = 3  # where there are few settings
_LEAST_PER_AXIS: Final = 5  # runs before a choice: fewer can agree by luck
_BLOCK: Final = 6  # runs, one of them the reference
_LOOKS: Final = 3  # for each whole run, at least


class Several(Search):
    """A :class:`~joulewise.search.strategy.Strategy` along several axes, for some metrics in turn.

    ``max_power_w`` is that of :class:`~joulewise.metrics.rules.Reference`. With ``may_look`` false
    there are whole runs only; ``sampler`` is found by itself.
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
        may_look: bool = True,
        sampler: str | None = None,
    ) -> None:
        places = Places.of(settings, reference)
        unique = {metric.name: metric for metric in metrics}
        self._problem = Problem(
            places,
            tuple(unique.values()),
            TOLERANCE if tolerance is None else tolerance,
            view or View(),
            max_power_w,
            seed,
            may_look,
        )
        axes = len(places.axes)
        usual = min(_PER_AXIS * axes + _BESIDES, _PER_SETTING * len(places.points))
        self._least = min(_LEAST_PER_AXIS * axes + 1, usual)
        super().__init__(
            reference,
            budget=usual + PAIRS * (1 + len(unique)) if budget is None else budget,
            least=self._least,
            metrics=len(unique),
            lanes=lanes,
            warm_up=warm_up,
            seed=seed,
        )
        self._often = ceil(self._exploring / len(places.points))  # to try others tells more
        self._sampler = find_sampler() if sampler is None else sampler
        self._chosen_by: Known | None = None

    @property
    def sure(self) -> Mapping[str, Any]:
        known = self._known
        made = {**self._counts, "sampler": self._sampler, "remarks": self._remarks()}
        if not known.has_belief:
            return {**made, "metrics": {}, "reason": "too few runs succeeded"}
        every = Known.of(self._problem, self._told.values())
        metrics = {}
        for judged in known.judged:
            chosen = self._problem.places.points[judged.chosen]
            probability = every.probability(judged.metric, judged.chosen)
            metrics[judged.metric.name] = {
                "settings": chosen.as_json(),
                "is_reference": chosen == self._problem.reference,
                "tolerance": self._problem.tolerance,
                "probability": probability,
                "sure": probability >= SURE and self._has_chosen,
                **confirmed(chosen, self._problem.reference, self._told, self._problem.view),
            }
        return {**made, "noise": every.noise, "metrics": metrics}

    def _remarks(self) -> list[str]:
        """What is not as one might expect it, as far as is known."""
        known, found = self._known, []
        if self._sampler == TPE:
            found.append("torch is not installed: Optuna's TPE searches, not its Gaussian process")
        if known.first and known.why_whole and self._problem.places.has_knobs:
            found.append(f"every setting takes a whole run: {known.why_whole}")
        return found

    @property
    def _known(self) -> Known:
        """By the runs before the choice alone."""
        if self._chosen_by is None:
            self._chosen_by = Known.of(self._problem, self._explored)
        return self._chosen_by

    def _forget(self) -> None:
        self._chosen_by = None

    @property
    def _has_chosen(self) -> bool:
        known, explored = self._known, len(self._explored)
        if known.first is None or explored < self._least:
            return self._is_exhausted
        if explored >= self._exploring or self._is_exhausted:
            return True
        return known.has_belief and all(each.probability >= SURE for each in known.judged)

    @property
    def _is_exhausted(self) -> bool:
        known = self._known
        if known.first is None:
            return False
        return known.first.state is not TrialState.DONE or not known.may_run(self._often)

    def _explore(self, under_way: Sequence[Planned], lane: int) -> Planned | None:
        asked, block = self._open_block(under_way, lane, _BLOCK)
        if self._known.first is None:
            return self._first(asked, lane)
        place = sum(it == block for _, it, _ in asked)
        found = self._setting(under_way, asked, block, place)
        if found is None:
            return None
        setting, look_s = found
        while (setting, block, look_s) in asked:
            block += self._lanes
        return Planned(setting, block, lane, look_s)

    def _first(self, asked: Asked, lane: int) -> Planned | None:
        """The whole run of the reference; beside it, those of other works, needed in any case."""
        places = self._problem.places
        homes = (places.points[at] for at in places.homes)
        tried = {setting for setting, _, _ in asked}
        for setting in dict.fromkeys((self._problem.reference, *homes)):
            if setting not in tried:
                return Planned(setting, lane, lane)
        return None

    def _setting(
        self,
        under_way: Sequence[Planned],
        asked: Asked,
        block: int,
        place: int,
    ) -> tuple[Setting, float | None] | None:
        known, places, reference = self._known, self._problem.places, self._problem.reference
        look_s = known.look_s
        order = random.Random(f"{self._problem.seed} {block}")  # noqa: S311  # no secret
        if (reference, block, look_s) not in asked and place >= order.randrange(_BLOCK):
            return reference, look_s
        may_run = known.may_run(self._often, under_way)
        if not may_run:
            return None
        wanted = self._wanted(under_way, len(asked))
        at = places.nearest(wanted, may_run)
        if look_s is None:
            return places.points[at], None
        opened = [each for each in may_run if int(places.works[each]) in known.steps]
        if at not in opened:
            home = places.points[places.homes[places.works[at]]]
            looks = sum(it is not None for _, _, it in asked)
            is_asked = any(it.setting == home and it.look_s is None for it in under_way)
            if not is_asked and (not opened or looks >= _LOOKS * (len(asked) - looks)):
                return home, None
            if not opened:
                return None
            at = places.nearest(wanted, opened)
        return places.points[at], look_s

    def _wanted(self, under_way: Sequence[Planned], number: int) -> list[int]:
        """Spread over the space at first, then where Optuna says, for each metric in turn."""
        known, places, problem = self._known, self._problem.places, self._problem
        first = 2 * len(places.axes) + 1
        if not known.has_belief or len(known.scores[problem.metrics[0].name]) < first:
            from scipy.stats.qmc import Halton

            spread = Halton(len(places.axes), seed=problem.seed).random(number + 1)[-1]
            return [
                min(int(share * len(axis.values)), len(axis.values) - 1)
                for share, axis in zip(spread, places.axes, strict=True)
            ]
        metric = problem.metrics[number % len(problem.metrics)]
        busy = [places.numbers[it.setting] for it in under_way]
        return suggest(
            places,
            known.scores[metric.name],
            busy,
            sampler=self._sampler,
            seed=problem.seed + 1009 * number,
        )

    def _chosen(self) -> list[Setting]:
        known = self._known
        points = self._problem.places.points
        return [points[it.chosen] for it in known.judged] if known.has_belief else []
