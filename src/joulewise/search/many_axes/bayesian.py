"""The best setting along several axes with few runs: by Optuna, and by looks where those will do.

Which setting to try next is Optuna's to say; which is best by all that was seen, and how surely,
is weighed apart from it (:mod:`joulewise.search.many_axes.problem`), and confirmed by fresh whole
runs.

Where to look next, by Optuna: a study is made anew from what was tried, each time.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from math import ceil
from typing import Any, Final

from joulewise.data.sweeps import Planned, Setting, TrialState
from joulewise.errors import JoulewiseError
from joulewise.metrics.boundary import View
from joulewise.metrics.metric import Metric
from joulewise.search.confirmation import PAIRS, confirmed
from joulewise.search.many_axes.grid import Places
from joulewise.search.many_axes.problem import TOLERANCE, ManyAxesProblem, ManyAxesState
from joulewise.search.one_axis.problem import SURE
from joulewise.search.strategy import Asked, Search

GP: Final = "gp"
TPE: Final = "tpe"


def find_sampler() -> str:
    """The best that is installed: the Gaussian process of Optuna is built on torch."""
    if find_spec("optuna") is None:
        raise JoulewiseError(
            "a search along several axes needs optuna", "pip install 'joulewise[search]'"
        )
    return GP if find_spec("torch") else TPE


def suggest(
    places: Places,
    tried: Mapping[int, float],
    under_way: Sequence[int],
    *,
    sampler: str,
    seed: int,
) -> list[int]:
    """A value of each axis that promises most; ``tried`` has the score of each point, less is best.

    There may be no such setting: the axes are free of each other here.
    """
    import optuna
    from optuna.trial import TrialState, create_trial

    distributions = _distributions(places)

    def params(at: int) -> dict[str, int]:
        return dict(zip(distributions, places.steps[at].tolist(), strict=True))

    with _quietly():
        study = optuna.create_study(sampler=_sampler(sampler, seed))
        study.add_trials(
            [
                create_trial(params=params(at), distributions=distributions, value=score)
                for at, score in sorted(tried.items())
            ]
        )
        study.add_trials(
            [
                create_trial(
                    state=TrialState.RUNNING, params=params(at), distributions=distributions
                )
                for at in under_way
            ]
        )
        asked = study.ask(distributions).params
    return [asked[name] for name in distributions]


def _distributions(places: Places) -> dict[str, Any]:
    from optuna.distributions import CategoricalDistribution, IntDistribution

    return {
        axis.name: IntDistribution(0, len(axis.values) - 1)
        if axis.ordered
        else CategoricalDistribution(range(len(axis.values)))
        for axis in places.axes
    }


def _sampler(name: str, seed: int) -> Any:
    from optuna import samplers

    if name == GP:
        return samplers.GPSampler(seed=seed, n_startup_trials=0)
    return samplers.TPESampler(seed=seed, n_startup_trials=0, multivariate=True)


@contextmanager
def _quietly() -> Iterator[None]:
    """Optuna tells of every study and trial; torch's threads only wait for each other here."""
    import optuna

    torch = import_module("torch") if find_spec("torch") else None
    threads = torch.get_num_threads() if torch else 0
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if torch:
        torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
        if torch:
            torch.set_num_threads(threads)


_PER_AXIS: Final = 10
_BESIDES: Final = 10
_PER_SETTING: Final = 3  # where there are few settings
_LEAST_PER_AXIS: Final = 5  # runs before a choice: fewer can agree by luck
_BLOCK: Final = 6  # runs, one of them the reference
_LOOKS: Final = 3  # for each whole run, at least


class ManyAxesSearch(Search):
    """A :class:`~joulewise.search.strategy.Strategy` along several axes, for some metrics in turn.

    ``max_power_w`` is that of :class:`~joulewise.metrics.metric.Reference`. With ``may_look`` false
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
        self._problem = ManyAxesProblem(
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
        self._chosen_by: ManyAxesState | None = None

    @property
    def sure(self) -> Mapping[str, Any]:
        known = self._known
        made = {**self._counts, "sampler": self._sampler, "remarks": self._remarks()}
        if not known.has_belief:
            return {**made, "metrics": {}, "reason": "too few runs succeeded"}
        every = ManyAxesState.of(self._problem, self._told.values())
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
    def _known(self) -> ManyAxesState:
        """By the runs before the choice alone."""
        if self._chosen_by is None:
            self._chosen_by = ManyAxesState.of(self._problem, self._explored)
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
