"""What is asked of a search along several axes, and all that follows from the runs it was told of.

A limit or a clock only changes what a step costs, which some seconds of steady steps tell; what
belongs to the command (a batch size) also changes how many steps there are, which only a whole
run tells. So each work, as the command with one set of its own values is called here, needs one
whole run, and every other setting of it a look.
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
from joulewise.metrics.boundary import Line, View, amount
from joulewise.metrics.metric import Metric, Reference
from joulewise.search.many_axes.gaussian_process import GaussianProcessPosterior, Observation
from joulewise.search.many_axes.grid import Clock, Places
from joulewise.search.one_axis.acquisition import MetricJudgement, judge

if TYPE_CHECKING:
    from joulewise.search.one_axis.posterior import Draws

STEP: Final = "step"
TOLERANCE: Final = 0.02
_LOOK_S: Final = 10.0
_LEAST_LOOK_S: Final = 2.0
_STEPS: Final = 10  # in a look
_PAYS: Final = 10  # times a look's time that a run takes, for looks to be worth it
_FEWEST: Final = 2  # runs for a belief
_SHOWN: Final = 400
_TOO_SLOW: Final = 5.0  # how steeply a score rises where a time is ruled out


@dataclass(frozen=True)
class ManyAxesProblem:
    places: Places
    metrics: tuple[Metric, ...]
    tolerance: float
    view: View
    max_power_w: float | None
    seed: int
    may_look: bool

    def __post_init__(self) -> None:
        if not self.metrics:
            raise UsageError("an adaptive search needs a metric", "say --by edp")
        if not self.places.axes:
            raise UsageError(
                "there is one setting, and nothing to search", "give an axis more values"
            )
        if not 0 < self.tolerance < 1:
            raise UsageError(f"a tolerance of {self.tolerance:g}", "say --tolerance 1 for 1 %")
        for metric in self.metrics:  # one that needs what is not known says so now
            metric.score(1.0, 1.0, Reference(1.0, 1.0, self.max_power_w))

    @property
    def reference(self) -> Setting:
        return self.places.points[self.places.reference]


@dataclass(frozen=True)
class ManyAxesState:
    """Follows from the problem and the trials alone, in whatever order they came."""

    problem: ManyAxesProblem
    trials: tuple[Trial, ...]

    @classmethod
    def of(cls, problem: ManyAxesProblem, trials: Iterable[Trial]) -> ManyAxesState:
        numbers = problem.places.numbers
        mine = (trial for trial in trials if trial.setting in numbers)
        ordered = sorted(mine, key=lambda it: (it.block, numbers[it.setting], it.look_s or inf))
        return cls(problem, tuple(ordered))

    @cached_property
    def first(self) -> Trial | None:
        """The whole run of the reference that says how to go on; None before it was made."""
        return next((it for it in self._whole if it.setting == self.problem.reference), None)

    @cached_property
    def look_s(self) -> float | None:
        """How long to look; None where only whole runs will do."""
        return None if self.why_whole else self._look_s

    @cached_property
    def why_whole(self) -> str:
        """Why looks will not do; empty where they will."""
        first = self.first
        if not self.problem.places.has_knobs:
            return "no knob is among the axes"
        if not self.problem.may_look:
            return "only whole runs were asked for"
        if first is None or not first.time_s or STEP not in first.spans:
            return "the command marks no steps"
        if not _LEAST_LOOK_S <= self._look_s <= first.time_s / _PAYS:
            return "a look would take as long as a run"
        return ""

    @property
    def _look_s(self) -> float:
        first = self.first
        if first is None or not first.time_s or STEP not in first.spans:
            return 0.0
        step_s = first.time_s / max(first.spans[STEP].count, 1)
        return float(round(max(min(_LOOK_S, first.time_s / _PAYS), _STEPS * step_s), 1))

    @cached_property
    def shut(self) -> frozenset[int]:
        """Points that came to nothing, and in looks all of a work whose whole run did."""
        places = self.problem.places
        found = set()
        for trial in self.trials:
            at = places.numbers[trial.setting]
            if trial.state is TrialState.DONE or at == places.reference:
                continue
            found.add(at)
            if self.look_s is not None and trial.look_s is None and trial.block < CONFIRMING:
                found.update(np.flatnonzero(places.works == places.works[at]).tolist())
        return frozenset(found - {places.reference})

    @cached_property
    def steps(self) -> dict[int, float]:
        """Of each work that had a whole run, as many steps as it has."""
        return {
            int(self.problem.places.works[self.problem.places.numbers[trial.setting]]): float(
                trial.spans[STEP].count
            )
            for trial in self._whole
            if trial.state is TrialState.DONE and STEP in trial.spans
        }

    def may_run(self, often: int, under_way: Sequence[Planned] = ()) -> list[int]:
        """Points of which there were not as many runs or looks yet."""
        numbers = self.problem.places.numbers
        asked = (*(trial.planned for trial in self.trials), *under_way)
        made = Counter(numbers[it.setting] for it in asked if it.look_s == self.look_s)
        return [
            at
            for at in range(len(self.problem.places.points))
            if at not in self.shut and at != self.problem.places.reference and made[at] < often
        ]

    @property
    def has_belief(self) -> bool:
        return len(self.seen) >= _FEWEST and any(it.at == self._reference for it in self.seen)

    @cached_property
    def seen(self) -> tuple[Observation, ...]:
        return tuple(self._seen())

    @cached_property
    def scores(self) -> dict[str, dict[int, float]]:
        """Of each metric, what every point that was tried is believed to come to.

        That is the logarithm of its ratio to the reference; what came to nothing is as bad as the
        worst.
        """
        tried = list(dict.fromkeys((self._reference, *(it.at for it in self.seen))))
        where = self._belief.where[tried]
        time, power = self._belief.time.mean(where), self._belief.power.mean(where)
        time_s, energy_j = np.exp(time), np.exp(time + power)
        against = Reference(time_s[0], energy_j[0], self.problem.max_power_w)
        found = {}
        for metric in self.problem.metrics:
            scores = np.log(np.broadcast_to(metric.rule(time_s, energy_j, against), time_s.shape))
            scores = scores - scores[0]
            if metric.max_slowdown is not None:
                beyond = np.maximum(time - time[0] - log(metric.max_slowdown), 0.0)
                scores = scores + _TOO_SLOW * beyond
            worst = dict.fromkeys(self.shut, float(scores.max()))
            found[metric.name] = {**worst, **dict(zip(tried, scores.tolist(), strict=True))}
        return found

    @cached_property
    def judged(self) -> tuple[MetricJudgement, ...]:
        return tuple(self._judge(metric) for metric in self.problem.metrics)

    def probability(self, metric: Metric, chosen: int) -> float:
        """That what was chosen, by whatever runs, is good enough by the runs known here."""
        if chosen not in self._shown:
            return 0.0
        within = self._judged_of(metric).within
        return float(within[:, self._shown.index(chosen)].mean())

    @property
    def noise(self) -> dict[str, float]:
        """Of the time and of the power of a run, as a share."""
        return {"time": self._belief.time.noise, "power": self._belief.power.noise}

    @property
    def _reference(self) -> int:
        return self.problem.places.reference

    @cached_property
    def _whole(self) -> list[Trial]:
        return [it for it in self.trials if it.look_s is None]

    @cached_property
    def _shown(self) -> list[int]:
        """All points, or many of them evenly, with those that were tried."""
        count = len(self.problem.places.points)
        even = np.linspace(0, count - 1, min(count, _SHOWN)).round().astype(int).tolist()
        return sorted({*even, self._reference, *(it.at for it in self.seen)})

    @cached_property
    def _belief(self) -> GaussianProcessPosterior:
        places = self.problem.places
        return GaussianProcessPosterior.after(
            self.seen, places.coordinates, places.columns, Clock.of(places)
        )

    @cached_property
    def _draws(self) -> Draws:
        return self._belief.draws(self._belief.where[self._shown], self.problem.seed)

    def _judge(self, metric: Metric) -> MetricJudgement:
        """The best on the mean of those that were tried; the truly best may be any."""
        found, scores = self._judged_of(metric), self.scores[metric.name]
        tried = {it.at for it in self.seen} - self.shut
        chosen = min(sorted(tried), key=lambda at: scores[at])
        probability = float(found.within[:, self._shown.index(chosen)].mean())
        return MetricJudgement(metric, chosen, found.within, probability)

    def _judged_of(self, metric: Metric) -> MetricJudgement:
        problem = self.problem
        columns = [column for column, at in enumerate(self._shown) if at not in self.shut]
        return judge(
            self._draws,
            metric,
            self._shown.index(self._reference),
            columns,
            problem.tolerance,
            max_power_w=problem.max_power_w,
        )

    def _seen(self) -> Iterator[Observation]:
        """Of one that was stopped, what it had taken: it would have been no less."""
        places, view = self.problem.places, self.problem.view
        counted = [
            (trial, found)
            for trial in self.trials
            if trial.state in {TrialState.DONE, TrialState.STOPPED}
            if (found := amount(trial, view))
        ]
        line = Line.around(counted, view)
        for trial, found in counted:
            energy = dict(line.energies(found)).get(view.boundary)
            at = places.numbers[trial.setting]
            work = int(places.works[at])
            times = 1.0
            if trial.look_s is not None:
                looked = trial.spans.get(STEP)
                times = self.steps.get(work, 0.0) / looked.count if looked else 0.0
            if energy is None or energy.value <= 0 or found.time_s <= 0 or times <= 0:
                continue
            yield Observation(
                at,
                work,
                trial.block,
                trial.gpu,
                trial.look_s is not None,
                log(found.time_s * times),
                log(energy.value / found.time_s),
            )
