"""The best setting of one knob with few runs: choose, be sure of it, then confirm it afresh."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from joulewise.data.sweeps import CONFIRMING, WARM_UP, Planned, Setting, Trial, TrialState
from joulewise.errors import UsageError
from joulewise.metrics.rules import Metric
from joulewise.metrics.view import View
from joulewise.search.adaptive_confirm import Pair, saving, slowdown
from joulewise.search.adaptive_known import SURE, Known, Problem
from joulewise.search.adaptive_next import most_telling

BUDGET: Final = 24
PAIRS: Final = 3
_PER_METRIC: Final = 4  # runs more, where several metrics are asked for
_BLOCK: Final = 6  # runs, one of them the reference
_LEAST: Final = 7  # runs before a choice: fewer can agree by luck
_LONG: Final = 10  # runs after which it will hardly get sure
_HARDLY: Final = 0.8  # that is no likelier than this by then
_STAYS: Final = 0.9
_SPARE: Final = 2  # pairs that may be lost to runs that fail


class Adaptive:
    """A :class:`~joulewise.search.strategy.Strategy` along one axis, for one metric or several.

    ``max_power_w`` is that of :class:`~joulewise.metrics.rules.Reference`. Without a tolerance it
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
        self._problem = Problem.of(
            settings,
            reference,
            metrics,
            tolerance=tolerance,
            view=view,
            max_power_w=max_power_w,
            seed=seed,
        )
        count = len(self._problem.metrics)
        self._budget = BUDGET + _PER_METRIC * (count - 1) if budget is None else budget
        self._exploring = self._budget - PAIRS * (1 + count)
        if self._exploring < _LEAST:
            least = _LEAST + PAIRS * (1 + count)
            raise UsageError(
                f"{self._budget} runs are too few to choose a setting and confirm it",
                f"allow for {least} or more",
            )
        self._lanes = lanes
        self._warm_up = warm_up
        self._warmed: Counter[int] = Counter()
        self._trials: dict[tuple[Setting, int], Trial] = {}
        self._chosen_by: Known | None = None

    def ask(self, busy: Sequence[Planned]) -> Planned | None:
        free = [lane for lane in range(self._lanes) if lane not in {it.lane for it in busy}]
        planned = self._next(busy, free) if free else None
        if planned and self._warmed[planned.lane] < self._warm_up:
            return Planned(self._reference, WARM_UP, planned.lane)
        return planned

    def tell(self, trial: Trial) -> None:
        if trial.block == WARM_UP:
            self._warmed[trial.lane] += 1
            return
        self._trials[trial.setting, trial.block] = trial
        if trial.block < CONFIRMING:
            self._chosen_by = None

    @property
    def left(self) -> int:
        if not self._has_chosen:
            return self._budget - self._made
        return sum(1 for _ in self._unconfirmed())

    @property
    def sure(self) -> Mapping[str, Any]:
        made = {"runs": self._made, "budget": self._budget}
        if not self._known.has_belief:
            return {**made, "metrics": {}, "reason": "too few runs succeeded"}
        known = Known.of(self._problem, self._trials.values())
        noise = dict(zip(("time", "power"), self._known.noise, strict=True))
        return {**made, "noise": noise, "metrics": dict(self._verdicts(known))}

    @property
    def _reference(self) -> Setting:
        return self._problem.points[self._problem.reference]

    @property
    def _made(self) -> int:
        return sum(1 for trial in self._trials.values() if trial.state is not TrialState.SKIPPED)

    @property
    def _known(self) -> Known:
        """By the runs before the choice alone."""
        if self._chosen_by is None:
            explored = (it for it in self._trials.values() if it.block < CONFIRMING)
            self._chosen_by = Known.of(self._problem, explored)
        return self._chosen_by

    @property
    def _has_chosen(self) -> bool:
        explored = sum(block < CONFIRMING for _, block in self._trials)
        if explored >= self._exploring:
            return True
        runs = len(self._known.runs)
        return runs >= _LEAST and all(
            each.probability >= SURE or (runs >= _LONG and each.probability < _HARDLY)
            for each in self._known.judged
        )

    def _next(self, busy: Sequence[Planned], free: Sequence[int]) -> Planned | None:
        if self._has_chosen:
            if any(0 <= it.block < CONFIRMING for it in busy):
                return None  # what is under way may change the choice
            taken = {(it.setting, it.block) for it in busy}
            unconfirmed = (it for it in self._unconfirmed() if it.lane in free)
            return next((it for it in unconfirmed if (it.setting, it.block) not in taken), None)
        under_way = [it for it in busy if 0 <= it.block < CONFIRMING]
        if len(self._trials) + len(under_way) >= self._exploring:
            return None
        return self._explore(under_way, free[0])

    def _explore(self, under_way: Sequence[Planned], lane: int) -> Planned:
        asked = {*self._trials, *((it.setting, it.block) for it in under_way)}
        sizes = Counter(block for _, block in asked)
        block = lane
        while sizes[block] >= _BLOCK:
            block += self._lanes
        setting = self._setting(under_way, asked, block, sizes[block])
        while (setting, block) in asked:
            block += self._lanes
        return Planned(setting, block, lane)

    def _setting(
        self,
        under_way: Sequence[Planned],
        asked: set[tuple[Setting, int]],
        block: int,
        place: int,
    ) -> Setting:
        problem, known = self._problem, self._known
        order = random.Random(f"{problem.seed} {block}")  # noqa: S311  # no secret
        if (self._reference, block) not in asked and place >= order.randrange(_BLOCK):
            return self._reference
        first = [at for at in self._first if at not in known.shut]
        for at in first:
            if all(setting != problem.points[at] for setting, _ in asked):
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

    def _unconfirmed(self) -> Iterator[Planned]:
        """Runs of pairs that are missing; a pair one run of which failed is made anew."""
        chosen = [at for at in self._choices() if at != self._problem.reference]
        if not chosen:
            return
        together = [self._problem.points[at] for at in (self._problem.reference, *chosen)]
        whole = 0
        for number in range(PAIRS + _SPARE):
            if whole >= PAIRS:
                return
            block = CONFIRMING + number
            done = [self._trials.get((setting, block)) for setting in together]
            if any(it and it.state is not TrialState.DONE for it in done):
                continue
            whole += 1
            order = random.Random(f"{self._problem.seed} {block}")  # noqa: S311  # no secret
            for setting in order.sample(together, len(together)):
                if (setting, block) not in self._trials:
                    yield Planned(setting, block, number % self._lanes)

    def _choices(self) -> list[int]:
        known = self._known
        return list(dict.fromkeys(it.chosen for it in known.judged)) if known.has_belief else []

    def _verdicts(self, known: Known) -> Iterator[tuple[str, dict[str, Any]]]:
        for judged in self._known.judged:
            tolerance = self._known.tolerance
            probability = known.probability(judged.metric, judged.chosen, tolerance)
            pairs = list(self._pairs(known, judged.chosen))
            is_reference = judged.chosen == self._problem.reference
            yield (
                judged.metric.name,
                {
                    "settings": self._problem.points[judged.chosen].as_json(),
                    "is_reference": is_reference,
                    "tolerance": tolerance,
                    "probability": probability,
                    "sure": self._has_chosen and _sure(judged.probability, probability),
                    "saving": saving(pairs),
                    "slowdown": slowdown(pairs),
                },
            )

    def _pairs(self, known: Known, chosen: int) -> Iterator[Pair]:
        if chosen == self._problem.reference:
            return
        by_block = {(it.block, it.gpu, it.at): it for it in known.runs if it.block >= CONFIRMING}
        for (block, gpu, at), run in by_block.items():
            other = by_block.get((block, gpu, self._problem.reference))
            if at == chosen and other:
                yield Pair(run.time_s, run.energy_j, other.time_s, other.energy_j)


def _sure(chosen_by: float, confirmed: float) -> bool:
    """Who was sure stays so unless the confirmation speaks against it."""
    return confirmed >= (SURE if chosen_by < SURE else _STAYS)
