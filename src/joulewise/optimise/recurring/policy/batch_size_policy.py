"""The built-in policy: learns epochs and costs per epoch, and asks by the knowledge gradient.

The job's default comes first. From then on each ask weighs what a try may cost against what it may
tell, among batch sizes within a step of one that reached the target, and as long as the job stays
about as cheap as with its default (the constraint of Wu et al., Conservative Bandits, 2016).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.errors import JoulewiseError, UsageError
from joulewise.metrics.result import Interval
from joulewise.optimise.recurring.policy.epoch_cost_model import EpochCostModel
from joulewise.optimise.recurring.policy.epochs_model import EpochsModel
from joulewise.optimise.recurring.policy.interface import BatchSizeBelief, EarlierObservation
from joulewise.optimise.recurring.policy.knowledge_gradient import (
    CostSamples,
    choose_candidate,
    evaluate_candidates,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_SAMPLES: Final = 256  # of the posterior in an ask; half as many choose noticeably worse
_BELIEF_SAMPLES: Final = 2000
# How many recurrences are thought to follow: as many as there were so far, and this many. Doubled,
# it explores more at first.
_HORIZON: Final = 20.0
# How far from a batch size that reached the target a try may be, in octaves; the next one may be
# tried in any case. At 1, jobs whose default is best pay 5 % more at first.
_STEP_OCTAVES: Final = 0.75
# Exploration may cost this many recurrences of the default at once, and this share of all of them;
# after a change of the job, more, since nothing good is known.
_SLACK: Final = 0.5
_SLACK_AFTER_CHANGE: Final = 3.0
_SLACK_SHARE: Final = 0.05
STATE_VERSION: Final = 2  # 1 had no missed_in_a_row


class BatchSizePolicy:
    """See :class:`~joulewise.optimise.recurring.policy.interface.RecurringPolicy`."""

    def __init__(
        self,
        *,
        batch_sizes: Sequence[int],
        default: int,
        max_power_w: float,
        eta: float,
        max_epochs: int,
        seed: int,
        earlier: Sequence[EarlierObservation] = (),
    ) -> None:
        if default not in batch_sizes or min(batch_sizes) < 1:
            raise UsageError(
                f"Batch size {default} is the default, and not one of those to choose from.",
                "Name batch sizes of at least 1, with the default among them.",
            )
        self._batch_sizes = sorted(set(batch_sizes))
        self._job = {
            "batch_sizes": self._batch_sizes,
            "default": default,
            "max_power_w": max_power_w,
            "eta": eta,
            "max_epochs": max_epochs,
            "seed": seed,
        }
        self._octaves = np.log2(np.array(self._batch_sizes, dtype=float))
        self._default = self._batch_sizes.index(default)
        self._max_epochs = max_epochs
        self._seed = seed
        self._epochs = EpochsModel(self._batch_sizes, default, max_epochs)
        self._costs = EpochCostModel(self._batch_sizes, default)
        self._asks = 0
        self._tries = [0] * len(self._batch_sizes)
        self._reached = 0
        self._in_flight: list[int] = []
        self._crashed: set[int] = set()
        # Since the job began, or changed: recurrences, what they cost, and the slack.
        self._recurrences, self._spent, self._slack = 0, 0.0, _SLACK
        for each in earlier:
            self._start_from(each)

    def ask(self) -> tuple[int, float]:
        rng = np.random.default_rng([self._seed, self._asks])
        self._asks += 1
        if self._costs.measured or self._costs.elsewhere:
            i, budget = self._by_knowledge_gradient(rng)
        else:
            i, budget = self._around_default(), math.inf
        self._in_flight.append(i)
        return self._batch_sizes[i], budget

    def start(self, batch_size: int) -> None:
        self._in_flight.append(self._index(batch_size))

    def tell(
        self, batch_size: int, *, reached: bool, epochs: int, cost: float, epoch_cost: float
    ) -> None:
        i = self._end_try(batch_size)
        self._tries[i] += 1
        self._costs.add(i, epoch_cost)
        self._crashed.discard(i)  # it runs
        self._reached += reached
        self._recurrences += reached
        self._spent += cost if math.isfinite(cost) else 0.0
        if epochs > 0 and self._epochs.add(i, reached=reached, epochs=epochs):
            self._recurrences, self._spent, self._slack = 0, 0.0, _SLACK_AFTER_CHANGE

    def crash(self, batch_size: int) -> None:
        i = self._end_try(batch_size)
        self._tries[i] += 1
        if i in self._costs.measured:  # it fits: another program may have taken the memory
            self._epochs.add_failure(i)
        else:
            self._crashed.add(i)

    def cancel(self, batch_size: int) -> None:
        self._end_try(batch_size)

    def state(self) -> dict[str, Any]:
        return {
            "job": dict(self._job),
            "epochs": self._epochs.as_json(),
            "costs": self._costs.as_json(),
            "asks": self._asks,
            "tries": list(self._tries),
            "reached": self._reached,
            "in_flight": list(self._in_flight),
            "crashed": sorted(self._crashed),
            "account": [self._recurrences, self._spent, self._slack],
        }

    def _read(self, state: Mapping[str, Any]) -> None:
        self._epochs.read(state["epochs"])
        self._costs.read(state["costs"])
        self._asks, self._reached = state["asks"], state["reached"]
        self._tries, self._in_flight = list(state["tries"]), list(state["in_flight"])
        self._crashed = set(state["crashed"])
        self._recurrences, self._spent, self._slack = state["account"]

    def beliefs(self) -> tuple[BatchSizeBelief, ...]:
        rng = np.random.default_rng([self._seed, self._asks, 1])
        samples = self._sample(_BELIEF_SAMPLES, rng)
        probability_best = self._probability_best(samples)
        has_epochs = any(r.weight or r.bound_weight for r in self._epochs.records)
        epochs, cost = np.exp(samples.log_epochs), samples.cost()
        beliefs = []
        for i, batch_size in enumerate(self._batch_sizes):
            reached = (epochs[:, i] <= self._max_epochs) * (1 - self._epochs.draw_failed(i, rng))
            cost_of_epoch = float(np.median(np.exp(samples.log_epoch_cost[:, i])))
            beliefs.append(
                BatchSizeBelief(
                    batch_size=batch_size,
                    tries=self._tries[i],
                    reached_share=_interval(reached),
                    epochs=_interval(epochs[:, i]) if has_epochs else None,
                    epoch_cost=cost_of_epoch if self._costs.measured else None,
                    cost=_interval(cost[:, i]) if has_epochs and self._costs.measured else None,
                    probability_best=float(probability_best[i]),
                    is_usable=i not in self._crashed and not self._is_avoided(i),
                )
            )
        return tuple(beliefs)

    def _probability_best(self, samples: CostSamples) -> Array:
        """That each batch size is the cheapest that reaches the target.

        Where none does, each is as good as any other.
        """
        usable = np.isin(np.arange(len(self._batch_sizes)), self._not_crashed())
        cost = np.where(samples.reaches() & usable, samples.cost(), np.inf)
        reaches = np.isfinite(cost).any(axis=1)
        counts = np.bincount(cost[reaches].argmin(axis=1), minlength=len(usable))
        probability: Array = (counts + (~reaches).sum() * usable / usable.sum()) / len(cost)
        return probability

    def _start_from(self, earlier: EarlierObservation) -> None:
        if earlier.batch_size not in self._batch_sizes or earlier.weight <= 0:
            return
        i = self._batch_sizes.index(earlier.batch_size)
        if earlier.epochs > 0:
            self._epochs.add_earlier(
                i, reached=earlier.reached, epochs=earlier.epochs, weight=earlier.weight
            )
        if earlier.epoch_cost > 0 and math.isfinite(earlier.epoch_cost):
            self._costs.add_elsewhere(i, earlier.epoch_cost, earlier.weight)

    def _end_try(self, batch_size: int) -> int:
        i = self._index(batch_size)
        if i in self._in_flight:
            self._in_flight.remove(i)
        return i

    def _index(self, batch_size: int) -> int:
        if batch_size not in self._batch_sizes:
            raise UsageError(
                f"Batch size {batch_size} is not one of this job's.",
                f"Its batch sizes are {', '.join(map(str, self._batch_sizes))}.",
            )
        return self._batch_sizes.index(batch_size)

    def _by_knowledge_gradient(self, rng: np.random.Generator) -> tuple[int, float]:
        samples = self._sample(_SAMPLES, rng)
        has_scale = bool(self._costs.measured)
        candidates = evaluate_candidates(
            samples,
            self._within_reach(),
            self._in_flight,
            _HORIZON + self._reached,
            rng,
            has_scale=has_scale,
        )
        default_cost = float(samples.cost()[:, self._default].mean())
        allowance = (self._recurrences + 1) * (1 + _SLACK_SHARE) + self._slack
        # A try that cost more than it might is forgiven down to one recurrence of the default.
        self._spent = min(self._spent, (allowance - 1) * default_cost)
        room = allowance * default_cost - self._spent if has_scale else math.inf
        chosen = choose_candidate(candidates, room)
        return chosen.index, chosen.budget

    def _sample(self, count: int, rng: np.random.Generator) -> CostSamples:
        log_epochs = self._epochs.sample(count, rng)
        least = float(np.median(log_epochs, axis=0).min())
        return CostSamples(
            log_epochs,
            self._costs.sample(count, rng),
            self._epochs.failed_share(),
            np.isin(np.arange(len(self._batch_sizes)), list(self._costs.measured)),
            np.array([record.weight > 0 for record in self._epochs.records]),
            self._epochs.missed_in_a_row(),
            math.sqrt(self._epochs.noise_variance(least)),
            self._max_epochs,
        )

    def _around_default(self) -> int:
        """Before anything is known: the default, and with tries in flight, its neighbours too."""
        usable = self._not_crashed()
        nearest = min(usable, key=lambda i: abs(self._octaves[i] - self._octaves[self._default]))
        lower = [
            i for i in usable if i < nearest and self._octaves[nearest] - self._octaves[i] <= 1
        ]
        upper = [
            i for i in usable if i > nearest and self._octaves[i] - self._octaves[nearest] <= 1
        ]
        order = [nearest, *lower[:1], *upper[-1:]]
        return next((i for i in order if i not in self._in_flight), nearest)

    def _within_reach(self) -> list[int]:
        """Batch sizes within a step of one that reached the target; all, where none did."""
        usable = self._not_crashed()
        reached = [i for i in usable if self._epochs.records[i].weight]
        near = [
            i
            for i in usable
            if any(
                abs(usable.index(i) - usable.index(j)) <= 1
                or abs(self._octaves[i] - self._octaves[j]) <= _STEP_OCTAVES
                for j in reached
            )
        ]
        return near or usable

    def _not_crashed(self) -> list[int]:
        """Those to choose from; where all crashed or are avoided, the smallest."""
        left = (i for i in range(len(self._batch_sizes)) if i not in self._crashed)
        return [i for i in left if not self._is_avoided(i)] or [0]

    def _is_avoided(self, i: int) -> bool:
        """Larger than one that crashed, and never seen to run."""
        return i not in self._costs.measured and any(i > crashed for crashed in self._crashed)


class BatchSizePolicyFactory:
    """See :class:`~joulewise.optimise.recurring.policy.interface.PolicyFactory`."""

    state_version = STATE_VERSION

    def __call__(
        self,
        *,
        batch_sizes: Sequence[int],
        default: int,
        max_power_w: float,
        eta: float,
        max_epochs: int,
        seed: int,
        earlier: Sequence[EarlierObservation] = (),
    ) -> BatchSizePolicy:
        return BatchSizePolicy(
            batch_sizes=batch_sizes,
            default=default,
            max_power_w=max_power_w,
            eta=eta,
            max_epochs=max_epochs,
            seed=seed,
            earlier=earlier,
        )

    def restore(self, state: Mapping[str, Any], version: int) -> BatchSizePolicy:
        if version > STATE_VERSION:
            raise JoulewiseError(
                f"The policy's state is of version {version}; known is {STATE_VERSION}.",
                "Install the version of joulewise that the other hosts of this job have.",
            )
        try:
            policy = BatchSizePolicy(**state["job"])
            policy._read(state)  # noqa: SLF001 (the factory is the policy's own)
        except (KeyError, TypeError, ValueError, UsageError) as error:
            raise JoulewiseError(
                f"The policy's state is damaged: {error!r}.",
                "Forget the job with `joulewise job forget`, and let it learn anew.",
            ) from error
        return policy


make_policy: Final = BatchSizePolicyFactory()


def _interval(samples: Array) -> Interval:
    low, high = np.quantile(samples, [0.025, 0.975])
    return Interval(float(samples.mean()), float(low), float(high))
