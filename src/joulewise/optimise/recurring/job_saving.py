"""What the recurrences of a job cost, and what that saves against the default.

All that was paid counts: the tries that found out what is cheap, and those that failed. A mean
cost is that of *reaching the target once*: the sum of all costs over the number of times that it
was reached (a ratio estimator, Cochran, "Sampling Techniques", 1977, section 2.11).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

from joulewise.analyse.student_t import student
from joulewise.data.jobs import JobHistory, JobTry, TryStatus
from joulewise.metrics.result import Interval

if TYPE_CHECKING:
    from joulewise.optimise.recurring.policy.interface import BatchSizeBelief

# Fewer recurrences have no saving, and fewer tries at the default do not measure what it costs
# (chosen: Student's interval of two values is 12.7 standard errors wide, of three 4.3). Doubled,
# most jobs would never measure their default.
MIN_RECURRENCES: Final = 3

_FINISHED: Final = {TryStatus.REACHED, TryStatus.MISSED}
_FAILED: Final = {TryStatus.MISSED, TryStatus.STOPPED_EARLY, TryStatus.CRASHED}
_NORMAL_95: Final = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class RecurrenceCost:
    """One recurrence; its sums are over all of its tries, None where one of them is not known.

    It ``counts`` in means unless it goes on, a try broke off for a reason that has nothing to do
    with the choice (it failed, or its worker was lost), or a cost is not known.
    """

    number: int
    tries: tuple[JobTry, ...]
    cost: float | None
    energy_j: float | None
    time_s: float | None

    @property
    def is_reached(self) -> bool:
        return any(one.status is TryStatus.REACHED for one in self.tries)

    @property
    def counts(self) -> bool:
        known = {TryStatus.REACHED, *_FAILED}
        return self.cost is not None and all(one.status in known for one in self.tries)


@dataclass(frozen=True)
class MeanCost:
    """The cost of reaching the target once, with its standard error as a share of it.

    ``error`` is NaN where there is only one value; ``dof`` are its degrees of freedom.
    """

    mean: float
    error: float
    dof: float
    count: int

    @property
    def interval(self) -> Interval:
        if math.isnan(self.error):
            return Interval(self.mean)
        factor = math.exp(float(student(self.dof)) * self.error)
        return Interval(self.mean, self.mean / factor, self.mean * factor)


class CostSource(str, Enum):
    """Where the cost of the default comes from: its own tries, or the model of the policy."""

    MEASURED = "measured"
    MODELLED = "modelled"


@dataclass(frozen=True)
class DefaultCost:
    """What it costs to reach the target at the default; ``interval`` is as its source has it."""

    cost: MeanCost
    interval: Interval
    source: CostSource


@dataclass(frozen=True)
class JobSaving:
    """What a job has saved so far, as a share of the default's cost; below 0 it cost more.

    ``share`` is None where too little is known, and ``problem`` says why. ``paid`` is the mean cost
    of the recurrences that count.
    """

    paid: MeanCost | None
    default: DefaultCost | None
    share: Interval | None
    problem: str = ""


def recurrence_costs(history: JobHistory, gpu_type: str) -> tuple[RecurrenceCost, ...]:
    """The recurrences on a GPU type, in their order."""
    of: dict[int, list[JobTry]] = {}
    for one in history.tries:
        if one.gpu_type == gpu_type:
            of.setdefault(one.recurrence, []).append(one)
    return tuple(
        RecurrenceCost(
            number,
            tuple(tries),
            _sum_known([one.cost for one in tries]),
            _sum_known([one.energy_j for one in tries]),
            _sum_known([one.time_s for one in tries]),
        )
        for number, tries in sorted(of.items())
    )


def running_means(values: Sequence[float | None], reached: Sequence[bool]) -> list[float | None]:
    """After each recurrence, the mean so far of reaching the target once; None is left out."""
    sums = accumulate(value or 0.0 for value in values)
    counts = accumulate(
        int(hit and value is not None) for value, hit in zip(values, reached, strict=True)
    )
    return [total / count if count else None for total, count in zip(sums, counts, strict=True)]


def mean_cost(costs: Sequence[float], reached: Sequence[bool]) -> MeanCost | None:
    """The sum of costs over the number of targets reached; None where none was reached."""
    count, hits = len(costs), sum(reached)
    if not hits:
        return None
    mean = sum(costs) / hits
    if count < 2:
        return MeanCost(mean, math.nan, 0.0, count)
    rest = [cost - mean * hit for cost, hit in zip(costs, reached, strict=True)]
    deviation = math.sqrt(sum(one * one for one in rest) / (count - 1))
    return MeanCost(mean, deviation * math.sqrt(count) / (hits * mean), count - 1.0, count)


def default_tries(history: JobHistory, gpu_type: str) -> list[JobTry]:
    """The tries at the default that ran until they reached the target or were out of epochs."""
    return [one for one in _at_default(history, gpu_type) if one.status in _FINISHED]


def default_cost(
    history: JobHistory, gpu_type: str, beliefs: Sequence[BatchSizeBelief]
) -> DefaultCost | None:
    """By its tries where enough of them were let run to their end, else by the policy's belief.

    What was stopped early is no measurement of what the default would have cost.
    """
    at_default = _at_default(history, gpu_type)
    tries = [one for one in default_tries(history, gpu_type) if one.cost is not None]
    was_stopped = any(one.status is TryStatus.STOPPED_EARLY for one in at_default)
    if len(tries) >= MIN_RECURRENCES and not was_stopped:
        measured = mean_cost(
            [one.cost or 0.0 for one in tries], [one.status is TryStatus.REACHED for one in tries]
        )
        if measured is not None:
            return DefaultCost(measured, measured.interval, CostSource.MEASURED)
    for belief in beliefs:
        cost = belief.cost
        if belief.batch_size != history.definition.default or cost is None:
            continue
        if cost.low is not None and cost.high is not None and 0 < cost.low <= cost.high:
            error = math.log(cost.high / cost.low) / (2 * _NORMAL_95)
            modelled = MeanCost(cost.mean, error, math.inf, belief.tries)
            return DefaultCost(modelled, cost, CostSource.MODELLED)
    return None


def find_saving(recurrences: Sequence[RecurrenceCost], default: DefaultCost | None) -> JobSaving:
    """The saving of all recurrences so far, with an interval of 95 %.

    The interval is that of the logarithm of the ratio of the two mean costs, by their relative
    standard errors and Student's t with Welch's degrees of freedom. The costs that were paid share
    tries with the default's, and fall while the policy learns; both make the interval wider. But
    the policy leaves a default that was dear by chance, and then knows little of it, which makes
    the interval narrower: `benchmarks/job_saving.py` plays that.
    """
    counted = [one for one in recurrences if one.counts]
    paid = mean_cost([one.cost or 0.0 for one in counted], [one.is_reached for one in counted])
    if paid is None:
        return JobSaving(None, default, None, "no recurrence has reached the target yet")
    if len(counted) < MIN_RECURRENCES:
        number = "1 recurrence is" if len(counted) == 1 else f"{len(counted)} recurrences are"
        return JobSaving(paid, default, None, f"{number} too few to state a saving")
    if default is None:
        problem = "what the default costs is not known: it was tried too seldom"
        return JobSaving(paid, None, None, problem)
    return JobSaving(paid, default, share_saved(paid, default.cost))


def share_saved(paid: MeanCost, default: MeanCost) -> Interval:
    """What ``paid`` saves of the default's cost, as a share of that, with its interval of 95 %."""
    ratio = paid.mean / default.mean
    half = _welch_half((paid, default))
    return Interval(1 - ratio, 1 - ratio * math.exp(half), 1 - ratio * math.exp(-half))


def _welch_half(means: Sequence[MeanCost]) -> float:
    variances = [one.error**2 for one in means]
    whole = sum(variances)
    if not whole:
        return 0.0
    rest = sum(
        variance**2 / one.dof for variance, one in zip(variances, means, strict=True) if variance
    )
    dof = whole**2 / rest if rest else math.inf
    return float(student(max(dof, 1.0))) * math.sqrt(whole)


def _at_default(history: JobHistory, gpu_type: str) -> list[JobTry]:
    default = history.definition.default
    return [
        one
        for one in history.tries
        if one.gpu_type == gpu_type and history.value_of(one) == default
    ]


def _sum_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None
