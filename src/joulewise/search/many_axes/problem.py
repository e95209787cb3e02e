"""The settings of a search along several axes, and everything derived from its trials so far.

A limit or a clock only changes what a step costs, and some seconds of steady steps (a *probe*) are
enough to measure that. A parameter of the command, such as a batch size, also changes how many
steps there are, which takes a whole run. So each *variant* of the command gets one whole run, and
every other setting of it a probe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, log
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.data.sweeps import CONFIRMING, Planned, Setting, Trial, TrialState
from joulewise.errors import UsageError
from joulewise.metrics.metric import Metric, Reference
from joulewise.search.many_axes.gaussian_process import GaussianProcessPosterior, Observation
from joulewise.search.many_axes.grid import ClockModel, SearchGrid
from joulewise.search.objective import MetricJudgement, Objective, PosteriorSamples, judge, observe

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEP: Final = "step"
TOLERANCE: Final = 0.02  # by default; at 1 % of noise, whole runs rarely resolve less
_PROBE_S: Final = 10.0
_LEAST_PROBE_S: Final = 2.0
_LEAST_STEPS: Final = 10  # in a probe
_LEAST_SPEED_UP: Final = 10  # of a probe over a whole run, for probes to be worth it
_LEAST_RUNS: Final = 2  # for a posterior, the reference among them
_MOST_SAMPLED: Final = 400  # points: sampling takes time by the cube of their number
# The slope of a score, in logarithms, where the slowdown is too much. Chosen: steep enough that the
# sampler stays away, and not a wall, which its surface could not follow.
_SLOWDOWN_PENALTY: Final = 5.0


@dataclass(frozen=True)
class ManyAxesProblem:
    """The settings to search; ``may_probe`` allows for probes beside whole runs."""

    objective: Objective
    grid: SearchGrid
    may_probe: bool

    def __post_init__(self) -> None:
        if not self.grid.axes:
            raise UsageError(
                "there is only one setting, and nothing to search", "give more values to try"
            )

    @property
    def reference(self) -> Setting:
        return self.grid.points[self.grid.reference]

    @property
    def tolerance(self) -> float:
        return TOLERANCE if self.objective.tolerance is None else self.objective.tolerance


@dataclass(frozen=True)
class ManyAxesState:
    """Everything derived from the trials so far; independent of their order."""

    problem: ManyAxesProblem
    trials: tuple[Trial, ...]

    @classmethod
    def of(cls, problem: ManyAxesProblem, trials: Iterable[Trial]) -> ManyAxesState:
        index = problem.grid.index
        known = (trial for trial in trials if trial.setting in index)
        ordered = sorted(known, key=lambda it: (it.block, index[it.setting], it.look_s or inf))
        return cls(problem, tuple(ordered))

    @cached_property
    def first(self) -> Trial | None:
        """The first whole run of the reference; None before it was made."""
        reference = self.problem.reference
        return next((trial for trial in self._whole_runs if trial.setting == reference), None)

    @cached_property
    def probe_s(self) -> float | None:
        return None if self.why_whole else self._wanted_probe_s

    @cached_property
    def why_whole(self) -> str:
        """Why every setting takes a whole run; empty where probes will do."""
        first = self.first
        if not self.problem.grid.has_controls:
            return "no limit or clock is among the axes"
        if not self.problem.may_probe:
            return "probes are turned off"
        if first is None or not first.time_s or STEP not in first.spans:
            return "the command marks no steps"
        if not _LEAST_PROBE_S <= self._wanted_probe_s <= first.time_s / _LEAST_SPEED_UP:
            return "a probe would take as long as a run"
        return ""

    @property
    def _wanted_probe_s(self) -> float:
        first = self.first
        if first is None or not first.time_s or STEP not in first.spans:
            return 0.0
        step_s = first.time_s / max(first.spans[STEP].count, 1)
        wanted_s = min(_PROBE_S, first.time_s / _LEAST_SPEED_UP)
        return float(round(max(wanted_s, _LEAST_STEPS * step_s), 1))

    @cached_property
    def excluded(self) -> frozenset[int]:
        """Points that failed or were stopped; with probes, all of a variant whose whole run did."""
        grid = self.problem.grid
        excluded = set()
        for trial in self.trials:
            at = grid.index[trial.setting]
            if trial.state is TrialState.DONE or at == grid.reference:
                continue
            excluded.add(at)
            if self.probe_s is not None and trial.look_s is None and trial.block < CONFIRMING:
                excluded.update(np.flatnonzero(grid.variants == grid.variants[at]).tolist())
        return frozenset(excluded - {grid.reference})

    @cached_property
    def steps(self) -> dict[int, float]:
        """The number of steps of each variant that had a whole run."""
        grid = self.problem.grid
        return {
            int(grid.variants[grid.index[trial.setting]]): float(trial.spans[STEP].count)
            for trial in self._whole_runs
            if trial.state is TrialState.DONE and STEP in trial.spans
        }

    def candidates(self, most: int, under_way: Sequence[Planned] = ()) -> list[int]:
        """Points that may be run and were run or probed less than ``most`` times."""
        grid = self.problem.grid
        planned = (*(trial.planned for trial in self.trials), *under_way)
        counts = Counter(grid.index[it.setting] for it in planned if it.look_s == self.probe_s)
        return [
            at
            for at in range(len(grid.points))
            if at not in self.excluded and at != grid.reference and counts[at] < most
        ]

    @property
    def has_posterior(self) -> bool:
        reference = self.problem.grid.reference
        observations = self.observations
        return len(observations) >= _LEAST_RUNS and any(it.at == reference for it in observations)

    @cached_property
    def observations(self) -> tuple[Observation, ...]:
        return tuple(self._observe())

    @cached_property
    def scores(self) -> dict[str, dict[int, float]]:
        """By metric, the posterior mean of every point that was tried, for the sampler.

        That is the logarithm of the score's ratio to the reference's. Excluded points are as bad as
        the worst of the others.
        """
        tried = list(
            dict.fromkeys((self.problem.grid.reference, *(it.at for it in self.observations)))
        )
        coordinates = self._posterior.coordinates[tried]
        time = self._posterior.time.mean(coordinates)
        power = self._posterior.power.mean(coordinates)
        time_s, energy_j = np.exp(time), np.exp(time + power)
        reference = Reference(time_s[0], energy_j[0], self.problem.objective.max_power_w)
        by_metric = {}
        for metric in self.problem.objective.metrics:
            values = np.broadcast_to(metric.rule(time_s, energy_j, reference), time_s.shape)
            scores = np.log(values)
            scores = scores - scores[0]
            if metric.max_slowdown is not None:
                excess = np.maximum(time - time[0] - log(metric.max_slowdown), 0.0)
                scores = scores + _SLOWDOWN_PENALTY * excess
            worst = dict.fromkeys(self.excluded, float(scores.max()))
            by_metric[metric.name] = {**worst, **dict(zip(tried, scores.tolist(), strict=True))}
        return by_metric

    @property
    def tolerance(self) -> float:
        return self.problem.tolerance

    @cached_property
    def judgements(self) -> tuple[MetricJudgement, ...]:
        """The best of the points that were tried, by the posterior mean."""
        judgements = []
        tried = sorted({run.at for run in self.observations} - self.excluded)
        for metric in self.problem.objective.metrics:
            scores, within = self.scores[metric.name], self._within(metric, self.tolerance)
            chosen = min(tried, key=lambda at, scores=scores: scores[at])  # type: ignore[misc]
            probability = float(within[:, self._sampled.index(chosen)].mean())
            judgements.append(MetricJudgement(metric, chosen, within, probability))
        return tuple(judgements)

    def probability(self, metric: Metric, chosen: int, tolerance: float) -> float:
        if chosen not in self._sampled:
            return 0.0
        within = self._within(metric, tolerance)
        return float(within[:, self._sampled.index(chosen)].mean())

    @property
    def noise(self) -> dict[str, float]:
        time, power = self._posterior.time, self._posterior.power
        return {"time": time.hyperparameters.noise, "power": power.hyperparameters.noise}

    @cached_property
    def _whole_runs(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.look_s is None]

    @cached_property
    def _sampled(self) -> list[int]:
        """All points, or ``_MOST_SAMPLED`` of them evenly, with those that were tried."""
        grid = self.problem.grid
        count = len(grid.points)
        even = np.linspace(0, count - 1, min(count, _MOST_SAMPLED)).round().astype(int).tolist()
        return sorted({*even, grid.reference, *(run.at for run in self.observations)})

    @cached_property
    def _posterior(self) -> GaussianProcessPosterior:
        grid = self.problem.grid
        return GaussianProcessPosterior.fit(
            self.observations, grid.coordinates, grid.columns, ClockModel.of(grid)
        )

    @cached_property
    def _samples(self) -> PosteriorSamples:
        coordinates = self._posterior.coordinates[self._sampled]
        return self._posterior.sample(coordinates, self.problem.objective.seed)

    def _within(self, metric: Metric, tolerance: float) -> NDArray[np.float64]:
        """Whether each sampled point is good enough by each sample, for any point may be best."""
        candidates = [column for column, at in enumerate(self._sampled) if at not in self.excluded]
        return judge(
            self._samples,
            metric,
            self._sampled.index(self.problem.grid.reference),
            candidates,
            tolerance,
            max_power_w=self.problem.objective.max_power_w,
        ).within

    def _observe(self) -> Iterator[Observation]:
        """Runs that were stopped count with what they had taken: they would have taken more."""
        grid = self.problem.grid
        states = {TrialState.DONE, TrialState.STOPPED}
        trials = [trial for trial in self.trials if trial.state in states]
        for trial, time_s, energy_j in observe(trials, self.problem.objective.view):
            at = grid.index[trial.setting]
            variant = int(grid.variants[at])
            factor = 1.0  # from the steps of a probe to those of a whole run
            if trial.look_s is not None:
                steps = trial.spans.get(STEP)
                factor = self.steps.get(variant, 0.0) / steps.count if steps else 0.0
            if factor > 0:
                yield Observation(
                    at,
                    variant,
                    trial.block,
                    trial.gpu,
                    trial.look_s is not None,
                    log(time_s * factor),
                    log(energy_j / time_s),
                )
