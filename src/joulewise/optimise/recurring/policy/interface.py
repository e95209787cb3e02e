"""What a policy of a recurring job offers: it is asked for a batch size, and told what came of it.

A policy belongs to one job on one type of GPU. It knows no clock, no file and no GPU: whoever runs
the job asks it before each try, or says by ``start`` which try runs without having been asked for.
Either way the try is in flight, and ends with exactly one of ``tell``, ``crash`` and ``cancel``.
Several tries may be in flight, also at the same batch size, and they may end in any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from joulewise.metrics.result import Interval


@dataclass(frozen=True)
class BatchSizeBelief:
    """What a policy believes of one batch size, for a report. Intervals hold 95 %.

    ``tries`` counts those that were told, crashes included. ``reached_share`` is the probability
    that a try which is not stopped reaches the target. ``epochs`` is how many a try needs until
    it does, ``epoch_cost`` the cost of one, and ``cost`` that of a recurrence at this batch size,
    failed tries included. These are None where the policy has no belief yet. ``is_usable`` is
    False where the batch size crashed, or is avoided because a smaller one did.
    """

    batch_size: int
    tries: int
    reached_share: Interval
    epochs: Interval | None
    epoch_cost: float | None
    cost: Interval | None
    probability_best: float
    is_usable: bool


@dataclass(frozen=True)
class EarlierObservation:
    """A try of the same job elsewhere, such as on another type of GPU.

    Its epochs count here as well, since they do not depend on the GPU; its ``epoch_cost`` only by
    its ratio to the others'. ``epochs`` is how many it ran: the target was reached then, or not
    yet. ``weight`` is 1 for a try that counts as much as one of our own, and nearer 0 the less it
    counts.
    """

    batch_size: int
    reached: bool
    epochs: int
    epoch_cost: float
    weight: float = 1.0


@runtime_checkable
class RecurringPolicy(Protocol):
    """Chooses the batch size of each try of a recurring job.

    The same calls in the same order, from the same seed, give the same answers. Costs are in the
    unit of ``eta * energy + (1 - eta) * max_power_w * time``: joules.
    """

    def ask(self) -> tuple[int, float]:
        """The batch size of the next try, and the cost above which to stop it (inf: never).

        The try is in flight from now on.
        """

    def start(self, batch_size: int) -> None:
        """Count a try as in flight that was not asked for. There are three such cases.

        - its batch size was chosen without the policy: the job's default after an error of the
          policy, or what the search for the largest that fits in memory tried;
        - it was cancelled, because its worker was lost, and the worker was only away;
        - the policy is new, and the job has tries from before: of each that has ended, ``start``
          is followed by its end at once, and those that still run come last.
        """

    def tell(
        self, batch_size: int, *, reached: bool, epochs: int, cost: float, epoch_cost: float
    ) -> None:
        """End the try in flight at ``batch_size`` with its result.

        Args:
            batch_size: As it was asked for or started.
            reached: Whether the target was reached; else it was stopped, or ran out of epochs.
            epochs: How many epochs it ran.
            cost: Of the whole try, in joules.
            epoch_cost: Of one more epoch at this batch size, at its best power limit, in joules.
        """

    def crash(self, batch_size: int) -> None:
        """End the try in flight at ``batch_size``: it cannot run, as when memory does not suffice.

        It is not asked for again while others are left, and larger ones are avoided.
        """

    def cancel(self, batch_size: int) -> None:
        """End the try in flight at ``batch_size`` without a result, as when its worker is lost."""

    def state(self) -> dict[str, Any]:
        """All that the policy knows, in values that JSON has; its random state included."""

    def beliefs(self) -> tuple[BatchSizeBelief, ...]:
        """What it believes of each batch size now, smallest first."""


@runtime_checkable
class PolicyFactory(Protocol):
    """Makes policies, and restores them from what :meth:`RecurringPolicy.state` returned.

    Plug-ins offer one as an entry point of the group ``joulewise.policies``.
    """

    @property
    def state_version(self) -> int:
        """Of the state that its policies return; larger after each change of what is in it."""

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
    ) -> RecurringPolicy:
        """A policy for a new job.

        Args:
            batch_sizes: Those it may ask for.
            default: The batch size that the job has without it; one of ``batch_sizes``.
            max_power_w: The maximum power of all GPUs of the job.
            eta: The share of energy in the cost; the rest is time.
            max_epochs: A try ends after so many epochs.
            seed: Of its random numbers.
            earlier: Tries of the same job on other types of GPU.
        """

    def restore(self, state: Mapping[str, Any], version: int) -> RecurringPolicy:
        """The policy whose ``state`` was saved under ``version``.

        Raises:
            JoulewiseError: The state is of a newer version, or damaged.
        """
