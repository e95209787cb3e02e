"""Where a job stands: its best value so far, and what that costs beside the default."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from joulewise.data.codec import encode
from joulewise.data.jobs import JobDefinition, JobHistory, TryStatus
from joulewise.errors import JoulewiseError
from joulewise.optimise.recurring.policy_plugins import find_policy

if TYPE_CHECKING:
    from joulewise.optimise.recurring.policy.interface import BatchSizeBelief
    from joulewise.optimise.recurring.store.job_store import JobStore

_COUNTED = {
    TryStatus.REACHED,
    TryStatus.MISSED,
    TryStatus.STOPPED_EARLY,
}


@dataclass(frozen=True)
class JobStanding:
    """A job with what its tries say, without a model.

    A value costs what all its tries took, divided by how many reached the target. ``best`` is the
    value with the least cost, None before one reached the target. ``saving`` is the share that it
    saves against the default, None where the default never reached the target.
    """

    job: JobDefinition
    recurrences: int
    tries: int
    running: int
    best: int | None
    best_cost: float | None
    default_cost: float | None

    @property
    def saving(self) -> float | None:
        if self.best_cost is None or not self.default_cost:
            return None
        return 1 - self.best_cost / self.default_cost


def find_standing(history: JobHistory) -> JobStanding:
    """The standing by the tries on the GPU type that was used last: costs differ between them."""
    ended = [one for one in history.tries if one.status is not TryStatus.RUNNING]
    gpu_type = ended[-1].gpu_type if ended else ""
    spent: dict[int, list[float]] = defaultdict(list)
    reached: dict[int, int] = defaultdict(int)
    for one in ended:
        if one.gpu_type == gpu_type and one.status in _COUNTED and one.cost is not None:
            spent[history.value_of(one)].append(one.cost)
            reached[history.value_of(one)] += one.status is TryStatus.REACHED
    costs = {
        value: fmean(costs) * len(costs) / reached[value]
        for value, costs in spent.items()
        if reached[value]
    }
    best = min(costs, key=lambda value: costs[value], default=None)
    return JobStanding(
        history.definition,
        max((one.recurrence for one in history.tries), default=0),
        len(ended),
        len(history.tries) - len(ended),
        best,
        None if best is None else costs[best],
        costs.get(history.definition.default),
    )


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
        return tuple(jobs.policy(job.name, gpu_type, find_policy(job.policy)).beliefs())
    except JoulewiseError as error:
        return error


def find_best(beliefs: Sequence[BatchSizeBelief]) -> BatchSizeBelief | None:
    """The value that is most probably the best; None before anything was tried."""
    if not any(belief.tries for belief in beliefs):
        return None
    return max(beliefs, key=lambda belief: belief.probability_best)


def standing_json(standing: JobStanding) -> dict[str, Any]:
    """A job in the JSON of ``job ls``."""
    job = standing.job
    return {
        "job": job.name,
        "recurrences": standing.recurrences,
        "tries": standing.tries,
        "running": standing.running,
        "best": None if standing.best is None else {job.parameter: standing.best},
        "cost": standing.best_cost,
        "default": {job.parameter: job.default},
        "default_cost": standing.default_cost,
        "saving": standing.saving,
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
    return {
        **standing_json(standing),
        "values": list(job.values),
        "seed": job.seed,
        "beliefs": {
            gpu_type: [{job.parameter: one.batch_size, **encode(one)} for one in of_type]
            for gpu_type, of_type in beliefs.items()
        },
        "history": [encode(one) for one in history.tries],
    }
