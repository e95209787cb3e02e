"""What is shown of a recurring job: what it cost and saved, what was tried, and what is believed.

Costs differ between GPU types: all figures are of the type that was used last, except that beliefs
are shown of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from joulewise.data.codec import encode
from joulewise.data.jobs import JobDefinition, JobHistory, JobTry, TryStatus
from joulewise.data.sweeps import Setting
from joulewise.formatting import between, joules, one_line
from joulewise.metrics.evaluate import front
from joulewise.metrics.intervals import Ratios, mean_interval, means
from joulewise.metrics.result import PointResult
from joulewise.optimise.recurring.job_saving import (
    MIN_RECURRENCES,
    CostSource,
    JobSaving,
    RecurrenceCost,
    default_cost,
    default_tries,
    find_saving,
    recurrence_costs,
    running_means,
)
from joulewise.optimise.recurring.job_standing import (
    JobStanding,
    find_most_probable,
    find_standing,
    last_gpu_type,
)
from joulewise.optimise.recurring.policy.interface import BatchSizeBelief
from joulewise.report.settings_text import counted
from joulewise.report.views.job_tables import (
    interval_less,
    is_noise,
    percent_less,
    probability_text,
    saving_text,
)


@dataclass(frozen=True)
class JobView:
    """A job, its recurrences on the GPU type that was used last, and what is believed there.

    ``all_beliefs`` are by GPU type.
    """

    history: JobHistory
    gpu_type: str
    recurrences: tuple[RecurrenceCost, ...]
    saving: JobSaving
    all_beliefs: Mapping[str, tuple[BatchSizeBelief, ...]]

    @property
    def job(self) -> JobDefinition:
        return self.history.definition

    @property
    def beliefs(self) -> tuple[BatchSizeBelief, ...]:
        return self.all_beliefs.get(self.gpu_type, ())

    @property
    def tries(self) -> tuple[JobTry, ...]:
        return tuple(one for recurrence in self.recurrences for one in recurrence.tries)

    @cached_property
    def standing(self) -> JobStanding:
        """Its best value so far, by what was paid."""
        return find_standing(self.history, self.gpu_type)

    @property
    def most_probable(self) -> BatchSizeBelief | None:
        """Of the values that reached the target, the one that is most probably the best."""
        return find_most_probable(self.standing, self.beliefs)

    @cached_property
    def points(self) -> tuple[PointResult, ...]:
        """Time and energy to the target (TTA, ETA) of each value that reached it."""
        return value_points(self.history, self.gpu_type)

    def running_mean(self, field: str) -> list[float | None]:
        """Mean ``cost``, ``energy_j`` or ``time_s`` of reaching the target, up to each."""
        return running_means(
            [getattr(one, field) if one.counts else None for one in self.recurrences],
            [one.is_reached for one in self.recurrences],
        )

    @property
    def default_count(self) -> int:
        """How many tries at the default ran to their end."""
        return len(default_tries(self.history, self.gpu_type))

    @property
    def modelled_default(self) -> float | None:
        """The cost of the default by the policy's belief, where the saving rests on that."""
        default = self.saving.default
        is_modelled = default is not None and default.source is CostSource.MODELLED
        return default.cost.mean if default is not None and is_modelled else None

    def default_mean(self, field: str) -> float | None:
        """What reaching the target once took in the tries at the default that ran to their end."""
        tries = default_tries(self.history, self.gpu_type)
        values = [getattr(one, field) for one in tries]
        reached = [one.status is TryStatus.REACHED for one in tries]
        return (running_means(values, reached) or [None])[-1]


def job_view(history: JobHistory, beliefs: Mapping[str, tuple[BatchSizeBelief, ...]]) -> JobView:
    """Compute what is shown of a job; ``beliefs`` are those of its policy, by GPU type."""
    gpu_type = last_gpu_type(history)
    recurrences = recurrence_costs(history, gpu_type)
    default = default_cost(history, gpu_type, beliefs.get(gpu_type, ()))
    return JobView(history, gpu_type, recurrences, find_saving(recurrences, default), beliefs)


def value_points(history: JobHistory, gpu_type: str) -> tuple[PointResult, ...]:
    """Each value of the job's parameter in the plane of time and energy to the target.

    Means of the tries that reached it, with Student's intervals, smallest value first. A value is
    off the Pareto front if another takes less time and less energy, both beyond noise.
    """
    reached = [
        one
        for one in history.tries
        if one.gpu_type == gpu_type
        and one.status is TryStatus.REACHED
        and (one.energy_j or 0) > 0
        and (one.time_s or 0) > 0
    ]
    values = sorted({history.value_of(one) for one in reached})
    if not values:
        return ()
    # A row for each value and a column for each try, since no two tries were run side by side.
    time_s, energy_j = (np.full((len(values), len(reached)), np.nan) for _ in range(2))
    for column, one in enumerate(reached):
        row = values.index(history.value_of(one))
        time_s[row, column], energy_j[row, column] = one.time_s, one.energy_j
    time, energy = means(time_s), means(energy_j)
    on_front = front(_log_ratios(time_s), _log_ratios(energy_j))
    return tuple(
        PointResult(
            Setting.of({history.definition.parameter: value}),
            int(time.n[row]),
            mean_interval(time.mean[row], time.half[row]),
            mean_interval(energy.mean[row], energy.half[row]),
            pareto=bool(on_front[row]),
        )
        for row, value in enumerate(values)
    )


def _log_ratios(values: Any) -> Ratios:
    logs = np.log(values)
    return Ratios(
        means(values), logs, logs, np.zeros_like(logs), means(logs), np.zeros(len(logs), bool)
    )


def finding(view: JobView) -> str:
    """The result in one sentence."""
    job, saving = view.job, view.saving
    ended = [one for one in view.recurrences if one.counts]
    if not ended:
        return f"No recurrence of job {one_line(job.name)} has ended yet"
    number = counted(len(ended), "recurrence")
    if saving.share is None:
        reached = sum(one.is_reached for one in ended)
        return f"{job.target.text} was reached in {reached} of {number}; {saving.problem}"
    share = saving.share
    change = "no more or less" if not round(100 * share.mean) else percent_less(share.mean)
    beside = f"cost {change} than at the default, {job.parameter} {job.default}"
    noise = ", but the difference is within noise" if is_noise(share) else ""
    return f"{number} {beside}{noise} (95 % interval: {interval_less(share)})"


def facts(view: JobView) -> tuple[str, ...]:
    """What the job is."""
    job, number = view.job, len(view.tries)
    tries = "1 try" if number == 1 else f"{number} tries"
    values, policy = ", ".join(map(str, job.values)), one_line(job.policy)
    return (
        f"Target: {job.target.text} within {counted(job.max_epochs, 'epoch')}",
        f"{counted(len(view.recurrences), 'recurrence')} with {tries}",
        f"Default: {one_line(job.parameter)} {job.default}, of {values}; policy: {policy}",
        *_best_facts(view),
        *([f"Hardware: {one_line(view.gpu_type)}"] if view.gpu_type else []),
    )


def _best_facts(view: JobView) -> Iterator[str]:
    """The best value so far, by what was paid, and beside it what the policy believes."""
    standing, likely, name = view.standing, view.most_probable, one_line(view.job.parameter)
    if standing.best is None or standing.best_cost is None:
        return
    fact = f"Best so far, by what was paid: {name} {standing.best}, {joules(standing.best_cost)}"
    if standing.saving is not None:
        fact += f": {saving_text(standing.saving)} than the tries at the default"
    yield fact
    if likely is not None and likely.batch_size != standing.best:
        probability = probability_text(likely.probability_best)
        yield f"Most probably best, as the policy believes: {likely.batch_size} ({probability})"


def notes(view: JobView) -> Iterator[str]:
    """How the figures came about."""
    job, saving = view.job, view.saving
    max_power_w = view.tries[-1].max_power_w if view.tries else 0.0
    yield (
        f"The cost, in joules, is {job.eta:g} of the energy until the target is reached plus "
        f"{1 - job.eta:g} of what the maximum power of {max_power_w:g} W takes in that time."
    )
    if saving.paid is not None:
        yield (
            f"Reaching the target cost {joules(saving.paid.mean)} on average, with all tries: "
            "those that found out what is cheap, and those that failed."
        )
    if saving.default is not None:
        yield f"{_default_text(view)}"
    if saving.share is not None:
        yield (
            "The interval is that of the ratio of these two means: of its logarithm, by Student's "
            "t with Welch's degrees of freedom."
        )
    left_out = sum(not one.counts for one in view.recurrences)
    if left_out:
        yield (
            f"Left out of all means: {counted(left_out, 'recurrence')} that did not end yet, "
            "failed for another reason, or of which no cost is known."
        )
    elsewhere = len(view.history.tries) - len(view.tries)
    if elsewhere:
        yield (
            f"{elsewhere} of {len(view.history.tries)} tries were on other GPU types, where costs "
            "are different: they are in no figure here."
        )


def _default_text(view: JobView) -> str:
    assert view.saving.default is not None  # noqa: S101  # the caller has looked
    default = view.saving.default
    cost, interval = default.cost, default.interval
    shown = f"{joules(cost.mean)} (95 % interval: {between(interval.low, interval.high, 'J')})"
    if default.source is CostSource.MEASURED:
        return f"At the default it costs {shown}, measured in {cost.count} tries."
    ran = view.default_count
    why = (
        f"only {ran} of the tries there ran to their end"
        if ran < MIN_RECURRENCES
        else "some of the tries there were stopped early"
    )
    return f"At the default it costs {shown}, modelled: what the policy believes, as {why}."


def view_json(view: JobView) -> dict[str, Any]:
    """What a page has besides the JSON of ``job show``."""
    saving = view.saving
    default = saving.default
    return {
        "gpu_type": view.gpu_type,
        "saving_so_far": encode(saving.share),
        "no_saving_because": saving.problem or None,
        "mean_cost": encode(saving.paid.interval) if saving.paid else None,
        "expected_default_cost": {**encode(default.interval), "source": default.source.value}
        if default
        else None,
        "points": [
            {
                view.job.parameter: point.setting[view.job.parameter],
                "tries": point.n,
                "time_s": encode(point.time_s),
                "energy_j": encode(point.energy_j),
                "pareto": point.pareto,
            }
            for point in view.points
        ],
    }
