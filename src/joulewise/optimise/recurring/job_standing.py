"""Where a job stands: its best value so far, and what that costs beside the default.

*Best so far* is by what was paid, and the same wherever it is shown. What the policy believes to be
best is another thing, *most probably best*, and is always named as its belief.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from joulewise.data.codec import encode
from joulewise.data.jobs import JobDefinition, JobHistory, TryStatus
from joulewise.errors import JoulewiseError
from joulewise.optimise.recurring.policy_plugins import find_policy, list_beliefs

if TYPE_CHECKING:
    from joulewise.metrics.result import Interval
    from joulewise.optimise.recurring.job_saving import MeanCost
    from joulewise.optimise.recurring.policy.interface import BatchSizeBelief
    from joulewise.optimise.recurring.store.job_store import JobStore

_COUNTED: Final = {
    TryStatus.REACHED,
    TryStatus.MISSED,
    TryStatus.STOPPED_EARLY,
    TryStatus.CRASHED,
}


@dataclass(frozen=True)
class JobStanding:
    """A job with what its tries on ``gpu_type`` say, without a model.

    A value costs what all its tries took, divided by how many reached the target; ``costs`` has
    those that did, ascending by value. ``best``, the *best so far* wherever it is shown, is the one
    with the least cost; None before one reached the target. ``saving`` is the share that it saves
    against the default, with its interval of 95 %; None where it is the default, or where one of
    the two was tried too seldom to say so. ``tried`` are the values of which something is known.
    """

    job: JobDefinition
    gpu_type: str
    recurrences: int
    tries: int
    running: int
    costs: Mapping[int, float]
    tried: tuple[int, ...]
    saving: Interval | None = None

    @property
    def best(self) -> int | None:
        return min(self.costs, key=lambda value: self.costs[value], default=None)

    @property
    def best_cost(self) -> float | None:
        return None if self.best is None else self.costs[self.best]

    @property
    def default_cost(self) -> float | None:
        return self.costs.get(self.job.default)


def last_gpu_type(history: JobHistory) -> str:
    """The GPU type on which a try ended last, as costs differ between types; empty without one."""
    ended = [one for one in history.tries if one.status is not TryStatus.RUNNING]
    ended.sort(key=lambda one: one.ended_wall_ns or one.started_wall_ns)
    return ended[-1].gpu_type if ended else ""


def find_standing(history: JobHistory, gpu_type: str | None = None) -> JobStanding:
    """The standing on a GPU type, by default the one used last: costs differ between them."""
    from joulewise.optimise.recurring.job_saving import mean_cost

    gpu_type = last_gpu_type(history) if gpu_type is None else gpu_type
    costs: dict[int, list[float]] = defaultdict(list)
    reached: dict[int, list[bool]] = defaultdict(list)
    tried: set[int] = set()
    for one in history.tries:
        if one.gpu_type != gpu_type or one.status not in _COUNTED:
            continue
        value = history.value_of(one)
        tried.add(value)
        if one.status is not TryStatus.CRASHED and one.cost is not None:
            costs[value].append(one.cost)
            reached[value].append(one.status is TryStatus.REACHED)
    means = {value: mean_cost(costs[value], reached[value]) for value in sorted(costs)}
    known = {value: mean for value, mean in means.items() if mean is not None}
    running = sum(one.status is TryStatus.RUNNING for one in history.tries)
    return JobStanding(
        history.definition,
        gpu_type,
        max((one.recurrence for one in history.tries), default=0),
        len(history.tries) - running,
        running,
        {value: mean.mean for value, mean in known.items()},
        tuple(sorted(tried)),
        _find_saving(known, history.definition.default),
    )


def _find_saving(means: Mapping[int, MeanCost], default: int) -> Interval | None:
    """What the best saves against the default; None where one of them was tried too seldom."""
    from joulewise.optimise.recurring.job_saving import MIN_RECURRENCES, share_saved

    best = min(means, key=lambda value: means[value].mean, default=default)
    if best == default or default not in means or not means[default].mean:
        return None
    if min(means[best].count, means[default].count) < MIN_RECURRENCES:
        return None
    return share_saved(means[best], means[default])


def find_most_probable(
    standing: JobStanding, beliefs: Sequence[BatchSizeBelief]
) -> BatchSizeBelief | None:
    """Of the values that reached the target, the one that is most probably the best.

    It may be another one than ``standing.best``, as the policy knows by how much epochs vary. One
    that never reached the target may be worth a try, but is no result.
    """
    reached = [belief for belief in beliefs if belief.batch_size in standing.costs]
    return max(reached, key=lambda belief: belief.probability_best, default=None)


def best_probability(standing: JobStanding, beliefs: Sequence[BatchSizeBelief]) -> float | None:
    """How probable it is, as the policy believes, that nothing is better than the best so far."""
    of_best = (one for one in beliefs if one.batch_size == standing.best)
    return next((belief.probability_best for belief in of_best), None)


def find_beliefs(
    jobs: JobStore, history: JobHistory, warn: Callable[[str], None] | None = None
) -> dict[str, tuple[BatchSizeBelief, ...]]:
    """What the policy believes on each GPU type; left out where a policy fails.

    ``warn`` is told why.
    """
    beliefs = {}
    for state in history.policy_states:
        of_type = _ask_beliefs(jobs, history.definition, state.gpu_type)
        if isinstance(of_type, tuple):
            beliefs[state.gpu_type] = of_type
        elif warn is not None:
            warn(f"what is believed on {state.gpu_type} is not known: {of_type.message}")
    return beliefs


def _ask_beliefs(
    jobs: JobStore, job: JobDefinition, gpu_type: str
) -> tuple[BatchSizeBelief, ...] | JoulewiseError:
    try:
        return list_beliefs(jobs.policy(job.name, gpu_type, find_policy(job.policy)), job)
    except JoulewiseError as error:
        return error


def standing_json(standing: JobStanding) -> dict[str, Any]:
    """A job in the JSON of ``job ls``."""
    job = standing.job
    return {
        "job": job.name,
        "recurrences": standing.recurrences,
        "tries": standing.tries,
        "running": standing.running,
        "gpu_type": standing.gpu_type or None,
        "best": None if standing.best is None else {job.parameter: standing.best},
        "cost": standing.best_cost,
        "default": {job.parameter: job.default},
        "default_cost": standing.default_cost,
        "saving": encode(standing.saving),
        "target": job.target.text,
        "max_epochs": job.max_epochs,
        "eta": job.eta,
        "policy": job.policy,
    }


def job_json(
    history: JobHistory,
    standing: JobStanding,
    beliefs: Mapping[str, Sequence[BatchSizeBelief]],
) -> dict[str, Any]:
    """The JSON of ``job show``: that of ``job ls``, all tries, and the beliefs by GPU type."""
    job = history.definition
    here = beliefs.get(standing.gpu_type, ())
    likely = find_most_probable(standing, here)
    return {
        **standing_json(standing),
        "probability": best_probability(standing, here),
        "most_probable": likely and {job.parameter: likely.batch_size},
        "values": list(job.values),
        "metric_regex": job.metric_pattern,
        "seed": job.seed,
        "beliefs": {
            gpu_type: [{job.parameter: one.batch_size, **encode(one)} for one in of_type]
            for gpu_type, of_type in beliefs.items()
        },
        "largest_values": {state.gpu_type: state.largest_value for state in history.policy_states},
        "history": [encode(one) for one in history.tries],
    }
