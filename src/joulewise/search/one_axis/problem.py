"""The settings of a search along one axis, and everything derived from its trials so far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from joulewise.data.sweeps import Setting, Trial, TrialState
from joulewise.errors import UsageError
from joulewise.metrics.metric import Metric
from joulewise.search.objective import MetricJudgement, Objective, PosteriorSamples, judge, observe
from joulewise.search.one_axis.posterior import CAPS, CLOCKS, Observations, ParticlePosterior

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LEAST_RUNS: Final = 3  # for a posterior; the ends of the axis and a point between are run first
# The share of the time for which a limit that never binds is reported to bind, at most. Chosen:
# drivers report single samples of other reasons to throttle.
_NEVER_CAPPED: Final = 0.01
_MOST_POINTS: Final = 41  # neighbours would differ by less than can be measured
# The default tolerance, by the noise of a run up to which it holds: how near to the best few runs
# of such noise can come.
_TOLERANCES: Final = ((0.02, 0.01), (0.06, 0.02), (inf, 0.05))


@dataclass(frozen=True)
class OneAxisProblem:
    """The settings to search, in ascending order along the axis; ``reference`` is an index."""

    objective: Objective
    axis: str
    points: tuple[Setting, ...]
    reference: int

    @classmethod
    def of(
        cls, settings: Sequence[Setting], reference: Setting, objective: Objective
    ) -> OneAxisProblem:
        """Thin out the settings where there are many, and add the reference.

        Raises:
            UsageError: the settings differ in something else than one limit or clock.
        """
        axis = _find_axis((*settings, reference))
        ordered = sorted(dict.fromkeys(settings), key=lambda setting: _level(setting, axis))
        if len(ordered) > _MOST_POINTS:
            kept = np.linspace(0, len(ordered) - 1, _MOST_POINTS).round().astype(int)
            ordered = [ordered[at] for at in kept]
        points = sorted({*ordered, reference}, key=lambda setting: _level(setting, axis))
        return cls(objective, axis, tuple(points), points.index(reference))

    @cached_property
    def levels(self) -> NDArray[np.float64]:
        """The limits in W or clocks in MHz; infinite where the control is left alone."""
        return np.array([_level(point, self.axis) for point in self.points])

    @cached_property
    def posterior(self) -> ParticlePosterior:
        """Limits are relative to the reference's, clocks to the highest one."""
        highest = self.levels[np.isfinite(self.levels)].max()
        unit = self.levels[self.reference] if self.axis in CAPS else highest
        relative = self.levels / (highest if np.isinf(unit) else unit)
        positions = tuple(float(position) for position in relative)
        return ParticlePosterior(self.axis, positions, self.reference, self.objective.seed)


class ObservedRun(NamedTuple):
    """A whole run: the index of its setting, where it ran, and what it took.

    ``capped`` is the share of the time for which a limit held the clock down; None if unknown.
    """

    at: int
    gpu: str
    time_s: float
    energy_j: float
    capped: float | None


@dataclass(frozen=True)
class OneAxisState:
    """Everything derived from the trials so far; independent of their order.

    ``excluded`` are the indices of settings that cannot be run or chosen.
    """

    problem: OneAxisProblem
    runs: tuple[ObservedRun, ...]
    excluded: frozenset[int] = frozenset()
    probe_s: None = None  # whole runs only

    @classmethod
    def of(cls, problem: OneAxisProblem, trials: Iterable[Trial]) -> OneAxisState:
        index = {point: at for at, point in enumerate(problem.points)}
        trials = sorted(
            (trial for trial in trials if trial.setting in index),
            key=lambda trial: (trial.block, index[trial.setting], trial.gpu),
        )
        done = [it for it in trials if it.state is TrialState.DONE and it.look_s is None]
        runs = (
            ObservedRun(index[trial.setting], trial.gpu, time_s, energy_j, trial.capped)
            for trial, time_s, energy_j in observe(done, problem.objective.view)
        )
        excluded: set[int] = set()
        for trial in trials:
            at = index[trial.setting]
            if trial.state is TrialState.DONE or at == problem.reference:
                continue
            excluded.add(at)
            if trial.state is TrialState.SKIPPED:  # for being too slow, as all lower ones must be
                excluded.update(range(at))
        return cls(problem, tuple(runs), frozenset(excluded - {problem.reference}))

    @property
    def candidates(self) -> list[int]:
        return [at for at in range(len(self.problem.points)) if at not in self.excluded]

    @property
    def has_posterior(self) -> bool:
        return len(self.runs) >= _LEAST_RUNS

    @cached_property
    def samples(self) -> PosteriorSamples:
        return self._sample(self.runs)

    @cached_property
    def noise(self) -> dict[str, float]:
        samples = self.samples
        noise = {"time": samples.time_noise, "power": samples.power_noise}
        return {name: float(np.median(values)) for name, values in noise.items()}

    @cached_property
    def tolerance(self) -> float:
        """As the user gave it, else what a few runs of such noise can resolve."""
        if self.problem.objective.tolerance is not None:
            return self.problem.objective.tolerance
        noise = max(self.noise.values())
        return next(tolerance for limit, tolerance in _TOLERANCES if noise < limit)

    @cached_property
    def judgements(self) -> tuple[MetricJudgement, ...]:
        return self._judge_all(self.samples)

    def probability(self, metric: Metric, chosen: int, tolerance: float) -> float:
        within = self._judge(self.samples, metric, tolerance).within
        return float(within[:, chosen].mean())

    def assume(self, points: Sequence[int]) -> tuple[PosteriorSamples, tuple[MetricJudgement, ...]]:
        """Samples and judgements as if runs under way had come to what is expected of them."""
        if not points:
            return self.samples, self.judgements
        time, power = self.samples.log_time.mean(axis=0), self.samples.log_power.mean(axis=0)
        expected = (
            ObservedRun(at, self.runs[0].gpu, np.exp(time[at]), np.exp(time[at] + power[at]), None)
            for at in points
        )
        samples = self._sample((*self.runs, *expected))
        return samples, self._judge_all(samples)

    def _judge_all(self, samples: PosteriorSamples) -> tuple[MetricJudgement, ...]:
        metrics = self.problem.objective.metrics
        return tuple(self._judge(samples, metric, self.tolerance) for metric in metrics)

    def _judge(
        self, samples: PosteriorSamples, metric: Metric, tolerance: float
    ) -> MetricJudgement:
        reference, most_w = self.problem.reference, self.problem.objective.max_power_w
        return judge(samples, metric, reference, self.candidates, tolerance, max_power_w=most_w)

    def _sample(self, runs: Sequence[ObservedRun]) -> PosteriorSamples:
        boards = {gpu: number for number, gpu in enumerate(sorted({run.gpu for run in runs}))}
        log_time = np.log([run.time_s for run in runs])
        samples = self.problem.posterior.sample(
            Observations(
                self._equivalent[[run.at for run in runs]],
                np.array([boards[run.gpu] for run in runs]),
                log_time,
                np.log([run.energy_j for run in runs]) - log_time,
            )
        )
        return PosteriorSamples(
            samples.log_time[:, self._equivalent],
            samples.log_power[:, self._equivalent],
            samples.time_noise,
            samples.power_noise,
        )

    @cached_property
    def _equivalent(self) -> NDArray[np.int64]:
        """For each setting the index of one that is the same to the load, by what runs reported.

        Where a limit did not bind, no higher one does; where the power limit alone held a locked
        clock down, no higher lock makes a difference.
        """
        problem = self.problem
        capped = [(problem.levels[it.at], it.capped) for it in self.runs if it.capped is not None]
        if problem.axis in CAPS:
            free = [level for level, share in capped if share <= _NEVER_CAPPED]
        else:
            free = [level for level, share in capped if share >= 1 - _NEVER_CAPPED]
        equivalent = np.arange(len(problem.points))
        same = np.flatnonzero(problem.levels >= min(free, default=inf))
        if len(same):
            equivalent[same] = problem.reference if problem.reference in same else same[0]
        return equivalent


def _find_axis(points: Sequence[Setting]) -> str:
    names = [name for name in points[0] if len({point[name] for point in points}) > 1]
    if len(names) == 1 and names[0] in (*CAPS, *CLOCKS):
        return names[0]
    raise UsageError(
        "this search needs one axis, of limits or clocks",
        "give one of --power-limit, --sm-clock, --mem-clock, --cpu-limit, with several values",
    )


def _level(setting: Setting, axis: str) -> float:
    """The value of a control; one that is left alone is at its highest."""
    value = setting[axis]
    return float(value) if isinstance(value, int | float) else inf
