"""A recurring job for tests of what works with its store."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from joulewise.data.jobs import (
    JobDefinition,
    JobTarget,
    JobTry,
    TryOutcome,
    TryStatus,
    training_cost,
)
from joulewise.data.sweeps import Setting
from joulewise.metrics.result import Interval
from joulewise.optimise.recurring.policy.interface import BatchSizeBelief

GPU_TYPE = "Tesla V100-PCIE-16GB"
LEASE_S = 60.0
JOB = JobDefinition(
    name="nightly",
    parameter="batch_size",
    values=(8, 16, 32),
    default=16,
    target=JobTarget("val_acc", 0.65, is_at_least=True),
    max_epochs=100,
    eta=0.5,
    policy="ledger",
    seed=1,
)


def result(cost, status=TryStatus.REACHED, epochs=3):
    """The outcome of a try that was measured."""
    return TryOutcome(status, epochs=epochs, cost=cost, epoch_cost=cost / epochs, exit_code=0)


@dataclass(frozen=True)
class SimulatedTraining:
    """What a training would take at each batch size: epochs (median), and figures of an epoch."""

    epochs: Mapping[int, float]
    epoch_energy_j: Mapping[int, float]
    epoch_time_s: Mapping[int, float]
    too_large: frozenset[int] = frozenset()
    spread: float = 0.15  # standard deviation of the logarithm of the epochs


def simulate_recurrences(store, job, factory, training, count, *, seed=0, max_power_w=250.0):
    """Let a policy run a job ``count`` times against random draws, through the job store."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        number = store.begin_recurrence(job.name, GPU_TYPE, max_power_w=max_power_w, host="node1")
        for _ in range(5):
            asked = store.ask(
                job.name, number, GPU_TYPE, host="node1", factory=factory, lease_s=LEASE_S
            )
            outcome = _draw_outcome(job, asked, training, random, max_power_w)
            store.tell(asked.key, outcome)
            if outcome.status is TryStatus.REACHED:
                break


def _draw_outcome(job, asked, training, random, max_power_w):
    value = int(asked.settings[job.parameter])
    if value in training.too_large:
        return TryOutcome(TryStatus.CRASHED, exit_code=1, cost=0.0, energy_j=0.0, time_s=0.0)
    needed = max(
        1, round(training.epochs[value] * float(np.exp(random.normal(0, training.spread))))
    )
    noise = float(np.exp(random.normal(0, 0.02)))
    energy_j, time_s = (
        one[value] * noise for one in (training.epoch_energy_j, training.epoch_time_s)
    )
    epoch_cost = training_cost(job.eta, energy_j, time_s, max_power_w)
    allowed = math.inf if asked.budget is None else math.ceil(asked.budget / epoch_cost)
    epochs = int(min(needed, allowed, job.max_epochs))
    status = TryStatus.REACHED if epochs == needed else TryStatus.STOPPED_EARLY
    if status is not TryStatus.REACHED and epochs == job.max_epochs:
        status = TryStatus.MISSED
    return TryOutcome(
        status,
        epochs=epochs,
        cost=epoch_cost * epochs,
        epoch_cost=epoch_cost,
        energy_j=energy_j * epochs,
        time_s=time_s * epochs,
        metric_value=0.66 if status is TryStatus.REACHED else 0.6,
        exit_code=0,
    )


def ended_try(recurrence, value, status=TryStatus.REACHED, *, number=1, **figures):
    """A try of JOB as its store returns it."""
    return JobTry(
        key=f"{recurrence}-{number}",
        job=JOB.name,
        recurrence=recurrence,
        number=number,
        gpu_type=GPU_TYPE,
        settings=Setting.of({JOB.parameter: value}),
        budget=None,
        status=status,
        max_power_w=250.0,
        host="node1",
        started_wall_ns=recurrence * 1_000 + number,
        **figures,
    )


def belief(value, cost, *, is_usable=True, probability_best=0.5):
    """A belief about a value of JOB."""
    return BatchSizeBelief(
        value,
        1,
        Interval(0.9, 0.8, 1.0),
        Interval(10.0, 8.0, 12.0),
        1.0,
        cost,
        probability_best,
        is_usable,
    )
