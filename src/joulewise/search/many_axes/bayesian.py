"""The best setting along several axes with few runs, by Optuna and by probes where those will do.

Optuna decides which setting to try next, from a study that is made anew each time. Which setting is
best, and how surely, is judged apart from it (:mod:`joulewise.search.many_axes.problem`).
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from math import ceil
from typing import Any, Final

from joulewise.data.sweeps import Planned, Setting, Trial, TrialState
from joulewise.errors import JoulewiseError
from joulewise.search.many_axes.grid import SearchGrid
from joulewise.search.many_axes.problem import ManyAxesProblem, ManyAxesState
from joulewise.search.objective import SURE, Objective, TrialKey
from joulewise.search.strategy import Search

GP: Final = "gp"
TPE: Final = "tpe"
PAIRS: Final = 3  # that confirm a choice; chosen: probes say little of the scatter of whole runs
# Runs and probes before the choice: so many for each axis, and some besides. Chosen by
# benchmarks/several.py: 40 on three axes lose 0.4 % of the best score, 20 lose 1.1 %.
_PER_AXIS: Final = 10
_BESIDES: Final = 10
_PER_SETTING: Final = 3  # at most, where there are few settings
_LEAST_PER_AXIS: Final = 5  # before a choice: fewer can agree by luck
_PROBES_PER_RUN: Final = 3  # at least, before another variant gets its whole run
_SEED_STRIDE: Final = 1009  # a prime, so that samplers of neighbouring seeds share no numbers


class ManyAxesSearch(Search[ManyAxesState]):
    """A :class:`~joulewise.search.strategy.Strategy` along several axes, for metrics in turn.

    With ``may_probe`` false there are whole runs only. ``sampler`` is ``gp`` or ``tpe``; None takes
    the best that is installed.
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
        may_probe: bool = True,
        sampler: str | None = None,
    ) -> None:
        grid = SearchGrid.of(settings, reference)
        self._problem = ManyAxesProblem(objective, grid, may_probe)
        axes, count = len(grid.axes), len(grid.points)
        default_budget = min(_PER_AXIS * axes + _BESIDES, _PER_SETTING * count)
        self._least = min(_LEAST_PER_AXIS * axes + 1, default_budget)
        super().__init__(
            grid.points,
            reference,
            objective,
            budget=default_budget + PAIRS * (1 + len(objective.metrics))
            if budget is None
            else budget,
            least=self._least,
            pairs=PAIRS,
            slots=slots,
            warm_up=warm_up,
        )
        # A point is run again only where all could be: trying another one tells more.
        self._most_per_point = ceil(self._exploring / count)
        self._sampler = find_sampler() if sampler is None else sampler

    def _derive_state(self, trials: Iterable[Trial]) -> ManyAxesState:
        return ManyAxesState.of(self._problem, trials)

    def _details(self) -> dict[str, Any]:
        state, remarks = self._state, []
        if self._sampler == TPE:
            remarks.append(
                "torch is not installed: Optuna searches by TPE, not by a Gaussian process"
            )
        if state.first and state.why_whole and self._problem.grid.has_controls:
            remarks.append(f"every setting takes a whole run: {state.why_whole}")
        return {"sampler": self._sampler, "remarks": remarks}

    def _is_sure(self, chosen_by: float, confirmed: float) -> bool:  # noqa: ARG002
        return confirmed >= SURE

    def _noise(self, state: ManyAxesState, updated: ManyAxesState) -> dict[str, float]:  # noqa: ARG002
        return updated.noise

    @property
    def _has_chosen(self) -> bool:
        state, explored = self._state, len(self._explored)
        if state.first is None or explored < self._least:
            return self._is_exhausted
        if explored >= self._exploring or self._is_exhausted:
            return True
        return state.has_posterior and all(one.probability >= SURE for one in state.judgements)

    @property
    def _is_exhausted(self) -> bool:
        first = self._state.first
        if first is None:
            return False
        return first.state is not TrialState.DONE or not self._state.candidates(
            self._most_per_point
        )

    def _explore(self, under_way: Sequence[Planned], slot: int) -> Planned | None:
        """Begin with the whole run of the reference; beside it, with those of other variants."""
        if self._state.first is not None:
            return super()._explore(under_way, slot)
        tried = {setting for setting, _, _ in self._keys(under_way)}
        bases = (self._points[at] for at in self._problem.grid.bases)
        untried = (one for one in (self._reference, *bases) if one not in tried)
        setting = next(untried, None)
        return None if setting is None else Planned(setting, slot, slot)

    def _choose_run(
        self, under_way: Sequence[Planned], keys: set[TrialKey], rng: random.Random
    ) -> tuple[Setting, float | None] | None:
        del rng
        state, grid = self._state, self._problem.grid
        candidates = state.candidates(self._most_per_point, under_way)
        if not candidates:
            return None
        wanted = self._suggest(under_way, len(keys))
        at = grid.nearest(wanted, candidates)
        if state.probe_s is None:
            return self._points[at], None
        # Only variants that had their whole run can be probed.
        probable = [one for one in candidates if int(grid.variants[one]) in state.steps]
        if at not in probable:
            base = self._points[grid.bases[grid.variants[at]]]
            probes = sum(probe_s is not None for _, _, probe_s in keys)
            is_planned = any(run.setting == base and run.look_s is None for run in under_way)
            is_due = not probable or probes >= _PROBES_PER_RUN * (len(keys) - probes)
            if is_due and not is_planned:
                return base, None
            if not probable:
                return None
            at = grid.nearest(wanted, probable)
        return self._points[at], state.probe_s

    def _suggest(self, under_way: Sequence[Planned], number: int) -> list[int]:
        """A value of each axis: spread over the space at first, then Optuna's suggestions."""
        state, grid, objective = self._state, self._problem.grid, self._objective
        first = 2 * len(grid.axes) + 1
        if not state.has_posterior or len(state.scores[objective.metrics[0].name]) < first:
            from scipy.stats.qmc import Halton

            spread = Halton(len(grid.axes), seed=objective.seed).random(number + 1)[-1]
            return [
                min(int(share * len(axis.values)), len(axis.values) - 1)
                for share, axis in zip(spread, grid.axes, strict=True)
            ]
        metric = objective.metrics[number % len(objective.metrics)]
        return suggest(
            grid,
            state.scores[metric.name],
            [grid.index[run.setting] for run in under_way],
            sampler=self._sampler,
            seed=objective.seed + _SEED_STRIDE * number,
        )


def find_sampler() -> str:
    """The best sampler that is installed: Optuna's Gaussian process needs torch."""
    if find_spec("optuna") is None:
        raise JoulewiseError(
            "a search along several axes needs optuna", "pip install 'joulewise[search]'"
        )
    return GP if find_spec("torch") else TPE


def suggest(
    grid: SearchGrid,
    tried: Mapping[int, float],
    under_way: Sequence[int],
    *,
    sampler: str,
    seed: int,
) -> list[int]:
    """The most promising value of each axis; ``tried`` has the scores of points, lower is better.

    Axes are independent here, so there need not be such a setting.
    """
    import optuna
    from optuna.distributions import CategoricalDistribution, IntDistribution
    from optuna.trial import TrialState, create_trial

    distributions: dict[str, Any] = {
        axis.name: IntDistribution(0, len(axis.values) - 1)
        if axis.ordered
        else CategoricalDistribution(range(len(axis.values)))
        for axis in grid.axes
    }

    def make_trial(at: int, **state: Any) -> optuna.trial.FrozenTrial:
        params = dict(zip(distributions, grid.steps[at].tolist(), strict=True))
        return create_trial(params=params, distributions=distributions, **state)

    with _quiet_optuna():
        if sampler == GP:
            chosen: Any = optuna.samplers.GPSampler(seed=seed, n_startup_trials=0)
        else:
            chosen = optuna.samplers.TPESampler(seed=seed, n_startup_trials=0, multivariate=True)
        study = optuna.create_study(sampler=chosen)
        study.add_trials([make_trial(at, value=score) for at, score in sorted(tried.items())])
        study.add_trials([make_trial(at, state=TrialState.RUNNING) for at in under_way])
        suggested = study.ask(distributions).params
    return [suggested[name] for name in distributions]


@contextmanager
def _quiet_optuna() -> Iterator[None]:
    """Without a log line for every study and trial, and with one thread of torch, as more wait."""
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
