"""What is asked of an adaptive search, and all that follows from the runs it was told of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from joulewise.data.sweeps import Setting, Trial, TrialState
from joulewise.errors import UsageError
from joulewise.metrics.boundary import Line, View, amount
from joulewise.metrics.metric import Metric, Reference
from joulewise.search.one_axis.acquisition import MetricJudgement, judge
from joulewise.search.one_axis.physics_prior import CAPS, CLOCKS
from joulewise.search.one_axis.posterior import Draws, Observations, ParticlePosterior

if TYPE_CHECKING:
    from numpy.typing import NDArray

SURE: Final = 0.95
_FEWEST: Final = 3  # runs for a belief
_NEVER: Final = 0.01  # a share of time for which a cap that never binds is seen to bind, at most
_MOST_POINTS: Final = 41
_TOLERANCES: Final = ((0.02, 0.01), (0.06, 0.02), (inf, 0.05))
"""Up to which noise of a run few of them can tell settings apart to within how much."""


@dataclass(frozen=True)
class OneAxisProblem:
    """``points`` go up along the one axis, the reference (number ``reference``) among them."""

    axis: str
    points: tuple[Setting, ...]
    reference: int
    metrics: tuple[Metric, ...]
    tolerance: float | None
    view: View
    max_power_w: float | None
    seed: int

    @classmethod
    def of(
        cls,
        settings: Sequence[Setting],
        reference: Setting,
        metrics: Sequence[Metric],
        *,
        tolerance: float | None = None,
        view: View | None = None,
        max_power_w: float | None = None,
        seed: int = 0,
    ) -> OneAxisProblem:
        if tolerance is not None and not 0 < tolerance < 1:
            raise UsageError(f"a tolerance of {tolerance:g}", "give a share, as 0.01 for 1 %")
        if not metrics:
            raise UsageError("an adaptive search needs a metric", "say --by edp")
        for metric in metrics:
            metric.rule(1.0, 1.0, Reference(1.0, 1.0, max_power_w))  # says what it lacks, if so
        axis = _axis((*settings, reference))
        ordered = sorted(dict.fromkeys(settings), key=lambda it: _height(it, axis))
        if len(ordered) > _MOST_POINTS:  # neighbours would differ by less than anybody can measure
            kept = np.linspace(0, len(ordered) - 1, _MOST_POINTS).round().astype(int)
            ordered = [ordered[at] for at in kept]
        points = sorted({*ordered, reference}, key=lambda it: _height(it, axis))
        here, unique = points.index(reference), {metric.name: metric for metric in metrics}
        return cls(
            axis,
            tuple(points),
            here,
            tuple(unique.values()),
            tolerance,
            view or View(),
            max_power_w,
            seed,
        )

    @cached_property
    def heights(self) -> NDArray[np.float64]:
        return np.array([_height(point, self.axis) for point in self.points])

    @cached_property
    def belief(self) -> ParticlePosterior:
        """Limits count from the reference's, clocks from the highest one."""
        finite = self.heights[np.isfinite(self.heights)].max()
        unit = self.heights[self.reference] if self.axis in CAPS else finite
        where = tuple(float(each) for each in self.heights / (finite if np.isinf(unit) else unit))
        return ParticlePosterior(self.axis, where, self.reference, self.seed)


class ObservedRun(NamedTuple):
    """A whole run: at which point, in which block, on which board, and what it came to."""

    at: int
    block: int
    gpu: str
    time_s: float
    energy_j: float
    capped: float | None


@dataclass(frozen=True)
class OneAxisState:
    """Follows from the problem and the runs alone, in whatever order they came."""

    problem: OneAxisProblem
    runs: tuple[ObservedRun, ...]
    shut: frozenset[int] = frozenset()

    @classmethod
    def of(cls, problem: OneAxisProblem, trials: Iterable[Trial]) -> OneAxisState:
        trials = sorted(
            (trial for trial in trials if trial.setting in problem.points),
            key=lambda it: (it.block, problem.points.index(it.setting), it.gpu),
        )
        return cls(problem, tuple(_runs(problem, trials)), frozenset(_shut(problem, trials)))

    @property
    def open_to(self) -> list[int]:
        """Points that can be run and chosen."""
        return [at for at in range(len(self.problem.points)) if at not in self.shut]

    @property
    def has_belief(self) -> bool:
        return len(self.runs) >= _FEWEST

    @cached_property
    def draws(self) -> Draws:
        return self._draws(self.runs)

    @cached_property
    def noise(self) -> tuple[float, float]:
        """Of the time and of the power of a run, as a share."""
        return float(np.median(self.draws.time_noise)), float(np.median(self.draws.power_noise))

    @cached_property
    def tolerance(self) -> float:
        """As asked, else what a few runs of such noise can tell."""
        if self.problem.tolerance is not None:
            return self.problem.tolerance
        return next(tolerance for noise, tolerance in _TOLERANCES if max(self.noise) < noise)

    @cached_property
    def judged(self) -> tuple[MetricJudgement, ...]:
        return self._judged(self.draws, self.tolerance)

    def probability(self, metric: Metric, chosen: int, tolerance: float) -> float:
        """That what was chosen, by whatever runs, is good enough by the runs known here."""
        found = self._judge(self.draws, metric, tolerance)
        return float(found.within[:, chosen].mean())

    def with_under_way(self, points: Sequence[int]) -> tuple[Draws, tuple[MetricJudgement, ...]]:
        """As if runs that are under way had come to what is expected of them."""
        if not points:
            return self.draws, self.judged
        time, power = self.draws.time.mean(axis=0), self.draws.power.mean(axis=0)
        expected = tuple(
            ObservedRun(
                at, 0, self.runs[0].gpu, np.exp(time[at]), np.exp(time[at] + power[at]), None
            )
            for at in points
        )
        draws = self._draws((*self.runs, *expected))
        return draws, self._judged(draws, self.tolerance)

    def _judged(self, draws: Draws, tolerance: float) -> tuple[MetricJudgement, ...]:
        return tuple(self._judge(draws, metric, tolerance) for metric in self.problem.metrics)

    def _judge(self, draws: Draws, metric: Metric, tolerance: float) -> MetricJudgement:
        reference, most_w = self.problem.reference, self.problem.max_power_w
        return judge(draws, metric, reference, self.open_to, tolerance, max_power_w=most_w)

    def _draws(self, runs: Sequence[ObservedRun]) -> Draws:
        boards = {gpu: number for number, gpu in enumerate(sorted({run.gpu for run in runs}))}
        times = np.log([run.time_s for run in runs])
        seen = Observations(
            self._alike[[run.at for run in runs]],
            np.array([boards[run.gpu] for run in runs]),
            times,
            np.log([run.energy_j for run in runs]) - times,
        )
        found = self.problem.belief.after(seen)
        return Draws(
            found.time[:, self._alike],
            found.power[:, self._alike],
            found.time_noise,
            found.power_noise,
        )

    @cached_property
    def _alike(self) -> NDArray[np.int64]:
        """For each point one that is the same to the load, as far as was seen.

        Where a limit was seen not to bind, no higher one does; where the power limit alone held
        a locked clock down, no higher lock makes a difference.
        """
        problem = self.problem
        seen = [(problem.heights[it.at], it.capped) for it in self.runs if it.capped is not None]
        if problem.axis in CAPS:
            free = [height for height, capped in seen if capped <= _NEVER]
        else:
            free = [height for height, capped in seen if capped >= 1 - _NEVER]
        alike = np.arange(len(problem.points))
        same = np.flatnonzero(problem.heights >= min(free, default=inf))
        if len(same):
            alike[same] = problem.reference if problem.reference in same else same[0]
        return alike


def _runs(problem: OneAxisProblem, trials: Sequence[Trial]) -> Iterable[ObservedRun]:
    """Those that are whole and of which energy at the boundary is known."""
    counted = [
        (trial, found)
        for trial in trials
        if trial.state is TrialState.DONE and trial.look_s is None
        if (found := amount(trial, problem.view))
    ]
    line = Line.around(counted, problem.view)
    for trial, found in counted:
        energy = dict(line.energies(found)).get(problem.view.boundary)
        if energy is not None and energy.value > 0 and found.time_s > 0:
            at = problem.points.index(trial.setting)
            yield ObservedRun(at, trial.block, trial.gpu, found.time_s, energy.value, trial.capped)


def _shut(problem: OneAxisProblem, trials: Sequence[Trial]) -> Iterable[int]:
    """Points that failed, and all that must be as slow as one that was skipped for it."""
    for trial in trials:
        at = problem.points.index(trial.setting)
        if at == problem.reference or trial.state is TrialState.DONE:
            continue
        yield at
        if trial.state is TrialState.SKIPPED:
            yield from (each for each in range(at) if each != problem.reference)


def _axis(points: Sequence[Setting]) -> str:
    names = [name for name in points[0] if len({point[name] for point in points}) > 1]
    if len(names) == 1 and names[0] in (*CAPS, *CLOCKS):
        return names[0]
    raise UsageError(
        "this search goes along one axis, of limits or clocks",
        "give one of --power-limit, --sm-clock, --mem-clock, --cpu-limit, with several values",
    )


def _height(setting: Setting, axis: str) -> float:
    """A knob that is left alone is at its highest."""
    value = setting[axis]
    return float(value) if isinstance(value, int | float) else inf
