"""A policy whose state is the account of every call that it had."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from joulewise.optimise.recurring.policy.interface import BatchSizeBelief, EarlierObservation

VERSION = 1


@dataclass
class LedgerPolicy:
    """Asks for the batch sizes in turn, whatever it is told.

    The account has the costs that it was told of, which tests make unique.
    """

    account: dict[str, Any]

    def ask(self) -> tuple[int, float]:
        sizes = self.account["batch_sizes"]
        self.account["asks"] += 1
        return sizes[self.account["asks"] % len(sizes)], math.inf

    def start(self, batch_size: int) -> None:
        self.account["started"].append(batch_size)

    def tell(
        self, batch_size: int, *, reached: bool, epochs: int, cost: float, epoch_cost: float
    ) -> None:
        self.account["told"].append([batch_size, reached, epochs, cost, epoch_cost])

    def crash(self, batch_size: int) -> None:
        self.account["crashed"].append(batch_size)

    def cancel(self, batch_size: int) -> None:
        self.account["cancelled"].append(batch_size)

    def state(self) -> dict[str, Any]:
        return self.account

    def beliefs(self) -> tuple[BatchSizeBelief, ...]:
        return ()


class LedgerFactory:
    """Makes ledger policies; of its arguments they keep those that a test looks at."""

    state_version = VERSION

    def __call__(
        self,
        *,
        batch_sizes: Sequence[int],
        max_power_w: float,
        earlier: Sequence[EarlierObservation] = (),
        **_: Any,
    ) -> LedgerPolicy:
        return LedgerPolicy(
            {
                "batch_sizes": list(batch_sizes),
                "max_power_w": max_power_w,
                "earlier": [[each.batch_size, each.reached, each.epochs] for each in earlier],
                "asks": 0,
                "started": [],
                "told": [],
                "crashed": [],
                "cancelled": [],
            }
        )

    def restore(self, state: Mapping[str, Any], version: int) -> LedgerPolicy:
        if version != VERSION:
            raise ValueError(f"version {version} of the state is not known")
        return LedgerPolicy({**state, "asks": state["asks"]})
