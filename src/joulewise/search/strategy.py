"""What to try next, apart from which result is best.

What searches have in common: explore until there is a choice, then confirm it afresh.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from joulewise.data.sweeps import (
    CONFIRMING,
    WARM_UP,
    Planned,
    RunCounts,
    Setting,
    Trial,
    TrialState,
)
from joulewise.errors import UsageError
from joulewise.search.confirmation import PAIRS, Told, unconfirmed


class Strategy(Protocol):
    """Asked for runs and told of results, in any order; all that it knows is what it was told.

    A sweep that was cut off makes a new one, tells it of every trial on disk, and goes on.
    """

    def ask(self, busy: Sequence[Planned]) -> Planned | None:
        """The next run, while those of ``busy`` are under way; None while there is none.

        None with nothing under way is the end.
        """
        ...

    def tell(self, trial: Trial) -> None: ...

    @property
    def left(self) -> int:
        """How many more runs there will be, at most or by the best guess."""
        ...

    @property
    def sure(self) -> Mapping[str, Any]:
        """What is found, to which tolerance and how surely, as JSON; empty where it only tries."""
        ...


Asked = set[tuple[Setting, int, float | None]]


class Search(ABC):
    """The half of a :class:`~joulewise.search.strategy.Strategy` that no model is needed for.

    ``budget`` runs are made at most, those that confirm the choices of so many ``metrics`` among
    them, in so many ``pairs`` each; ``least`` are needed to choose by.
    """

    def __init__(
        self,
        reference: Setting,
        *,
        budget: int,
        least: int,
        metrics: int,
        lanes: int,
        warm_up: int,
        seed: int,
        pairs: int = PAIRS,
    ) -> None:
        confirming = pairs * (1 + metrics)
        self._reference = reference
        self._budget = budget
        self._exploring = budget - confirming
        if self._exploring < least:
            raise UsageError(
                f"{budget} runs are too few to choose a setting and confirm it",
                f"allow for {least + confirming} or more",
            )
        self._lanes = lanes
        self._warm_up = warm_up
        self._seed = seed
        self._pairs = pairs
        self._warmed: Counter[int] = Counter()
        self._told: Told = {}

    def ask(self, busy: Sequence[Planned]) -> Planned | None:
        free = [lane for lane in range(self._lanes) if lane not in {it.lane for it in busy}]
        planned = self._next(busy, free) if free else None
        if planned and self._warmed[planned.lane] < self._warm_up:
            return Planned(self._reference, WARM_UP, planned.lane)
        return planned

    def tell(self, trial: Trial) -> None:
        if trial.block == WARM_UP:
            self._warmed[trial.lane] += 1
            return
        self._told[trial.setting, trial.block, trial.look_s] = trial
        if trial.block < CONFIRMING:
            self._forget()

    @property
    def left(self) -> int:
        if not self._has_chosen:
            return self._budget - self._made
        return len(self._unconfirmed())

    @property
    @abstractmethod
    def _has_chosen(self) -> bool: ...

    @abstractmethod
    def _chosen(self) -> Sequence[Setting]:
        """By the runs before the choice alone; nothing where nobody can tell."""

    @abstractmethod
    def _explore(self, under_way: Sequence[Planned], lane: int) -> Planned | None: ...

    @abstractmethod
    def _forget(self) -> None:
        """What followed from the runs before the choice: there is one more."""

    @property
    def _made(self) -> int:
        return sum(1 for trial in self._told.values() if trial.state is not TrialState.SKIPPED)

    @property
    def _counts(self) -> dict[str, int]:
        """The runs so far, as JSON has them; ``budget`` is how many there may be of all kinds."""
        counts = RunCounts.of(self._told.values())
        return {
            "runs": counts.whole,
            "looks": counts.looks,
            "stopped": counts.stopped,
            "failed": counts.failed,
            "budget": self._budget,
        }

    @property
    def _explored(self) -> list[Trial]:
        return [trial for trial in self._told.values() if trial.block < CONFIRMING]

    def _next(self, busy: Sequence[Planned], free: Sequence[int]) -> Planned | None:
        under_way = [it for it in busy if 0 <= it.block < CONFIRMING]
        if self._has_chosen:
            if under_way:
                return None  # it may change the choice
            taken = {(it.setting, it.block) for it in busy}
            missing = (it for it in self._unconfirmed() if it.lane in free)
            return next((it for it in missing if (it.setting, it.block) not in taken), None)
        if len(self._explored) + len(under_way) >= self._exploring:
            return None
        return self._explore(under_way, free[0])

    def _unconfirmed(self) -> list[Planned]:
        chosen = list(dict.fromkeys(self._chosen()))
        return list(
            unconfirmed(
                chosen,
                self._reference,
                self._told,
                lanes=self._lanes,
                seed=self._seed,
                pairs=self._pairs,
            )
        )

    def _open_block(self, under_way: Sequence[Planned], lane: int, size: int) -> tuple[Asked, int]:
        """What was asked for so far, and the lane's block that has room for one run more."""
        asked = {*self._told, *((it.setting, it.block, it.look_s) for it in under_way)}
        sizes = Counter(block for _, block, _ in asked)
        block = lane
        while sizes[block] >= size:
            block += self._lanes
        return asked, block
