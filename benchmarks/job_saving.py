"""Whether the interval of a job's saving holds the true one, while the policy learns.

    python benchmarks/job_saving.py [--jobs 200] [--recurrences 25] [--seed 0]

Each job has random costs and epochs over six batch sizes, one of them its default, and the policy
of the product chooses. The true saving is that of what was paid against the mean cost of reaching
the target at the default. A default that was dear by chance is left sooner, so that what is known
of it is rather too high: a test with choices that were made before would not see that.
"""

from __future__ import annotations

import argparse
import math
import sys

import numpy as np
from helpers.verdict import Verdicts

from joulewise.data.jobs import JobDefinition, JobHistory, JobTarget, JobTry, TryStatus
from joulewise.data.sweeps import Setting
from joulewise.optimise.recurring import make_policy
from joulewise.optimise.recurring.job_saving import (
    CostSource,
    default_cost,
    find_saving,
    recurrence_costs,
)

GPU_TYPE = "board"
VALUES = (16, 32, 64, 128, 256, 512)
MAX_EPOCHS = 100
MOST_TRIES = 5
INSIDE = 0.93  # of an interval of 95 %, with 200 jobs: two standard errors of the share less
DRAWS = 20_000  # of the mean at the default


class Training:
    """Epochs to the target, log-normal about a parabola over the octaves, and costs of an epoch."""

    def __init__(self, random: np.random.Generator) -> None:
        octaves = np.log2(VALUES)
        best = random.uniform(octaves[0], octaves[-1])
        least, bend = random.uniform(6, 30), random.uniform(0.03, 0.2)
        self._epochs = least * np.exp(bend * (octaves - best) ** 2)
        self._spread = random.uniform(0.05, 0.25)
        self._epoch_cost = 1000.0 * (1 + random.uniform(5, 80) / np.array(VALUES))
        self._random = random

    def needed(self, value: int, count: int = 1) -> np.ndarray:
        noise = self._random.normal(0, self._spread, count)
        return np.maximum(1, np.round(self._epochs[VALUES.index(value)] * np.exp(noise)))

    def mean_cost(self, value: int) -> float:
        """Of reaching the target once, with the tries that run out of epochs."""
        needed = self.needed(value, DRAWS)
        spent = np.minimum(needed, MAX_EPOCHS).sum() * self.epoch_cost(value)
        return float(spent / max(1, (needed <= MAX_EPOCHS).sum()))

    def epoch_cost(self, value: int) -> float:
        return float(self._epoch_cost[VALUES.index(value)])


def play(training: Training, default: int, recurrences: int, seed: int) -> tuple[JobHistory, tuple]:
    """The tries of a job, and what its policy believes in the end."""
    job = JobDefinition("job", "batch_size", VALUES, default, JobTarget("acc", 1.0, True),
                        MAX_EPOCHS, 0.5, "default", seed)  # fmt: skip
    policy = make_policy(
        batch_sizes=VALUES,
        default=default,
        max_power_w=250.0,
        eta=0.5,
        max_epochs=MAX_EPOCHS,
        seed=seed,
    )
    tries: list[JobTry] = []
    for recurrence in range(1, recurrences + 1):
        for number in range(1, MOST_TRIES + 1):
            value, budget = policy.ask()
            each, needed = training.epoch_cost(value), float(training.needed(value)[0])
            allowed = math.inf if math.isinf(budget) else max(1, math.ceil(budget / each))
            epochs = int(min(needed, allowed, MAX_EPOCHS))
            reached = epochs == needed
            missed = TryStatus.MISSED if epochs == MAX_EPOCHS else TryStatus.STOPPED_EARLY
            cost = epochs * each
            policy.tell(value, reached=reached, epochs=epochs, cost=cost, epoch_cost=each)
            tries.append(
                JobTry(
                    key=f"{recurrence}-{number}",
                    job=job.name,
                    recurrence=recurrence,
                    number=number,
                    gpu_type=GPU_TYPE,
                    settings=Setting.of({"batch_size": value}),
                    budget=None,
                    status=TryStatus.REACHED if reached else missed,
                    max_power_w=250.0,
                    host="host",
                    started_wall_ns=len(tries),
                    epochs=epochs,
                    cost=cost,
                )
            )
            if reached:
                break
    return JobHistory(job, tuple(tries)), policy.beliefs()


def main(options: argparse.Namespace) -> int:
    errors: dict[CostSource, list[float]] = {source: [] for source in CostSource}
    inside: dict[CostSource, list[bool]] = {source: [] for source in CostSource}
    for number in range(options.jobs):
        random = np.random.default_rng([options.seed, number])
        training = Training(random)
        usable = [value for value in VALUES if training.mean_cost(value) < math.inf]
        history, beliefs = play(training, int(random.choice(usable)), options.recurrences, number)
        recurrences = recurrence_costs(history, GPU_TYPE)
        saving = find_saving(recurrences, default_cost(history, GPU_TYPE, beliefs))
        if saving.share is None or saving.default is None or saving.paid is None:
            continue
        true = 1 - saving.paid.mean / training.mean_cost(history.definition.default)
        share, source = saving.share, saving.default.source
        low, high = share.low or 0.0, share.high or 0.0
        errors[source].append(share.mean - true)
        inside[source].append(low <= true <= high)
    verdicts = Verdicts()
    for source in CostSource:
        if inside[source]:
            hits, error = np.mean(inside[source]), np.array(errors[source])
            print(
                f"{source.value}: {len(error)} jobs, {hits:.1%} inside; the stated saving is "
                f"{100 * error.mean():+.1f} points off on average, {100 * error.std():.1f} points "
                "standard deviation"
            )
    everything = [hit for hits in inside.values() for hit in hits]
    verdicts.at_least("share of intervals that hold the true saving", np.mean(everything), INSIDE)
    verdicts.show()
    return 0 if verdicts.all_met else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--recurrences", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    sys.exit(main(parser.parse_args()))
