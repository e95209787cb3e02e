"""The interface of strategies, and what all searches share: explore, choose, then confirm."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from joulewise.data.sweeps import (
    CONFIRMING,
    WARM_UP,
    Planned,
    RunCounts,
    Setting,
    Trial,
    TrialState,
)
from joulewise.errors import JoulewiseError, UsageError
from joulewise.metrics.metric import Metric
from joulewise.search.confirmation import confirm, missing_pairs
from joulewise.search.objective import MetricJudgement, Objective, TrialKey, Trials, trial_key

# Runs of a block, one of them the reference, so that drift shows. Chosen: with twice as many, half
# as many runs go to the reference, and slow drift is taken for an effect of the setting.
BLOCK_RUNS: Final = 6


class Strategy(Protocol):
    """Decides which run is next, from the trials so far alone, in whatever order they came.

    So a sweep that was interrupted makes a new strategy, tells it the trials on disk, and continues
    as it would have.
    """

    def ask(self, busy: Sequence[Planned]) -> Planned | None:
        """The next run, while those of ``busy`` are under way.

        None where there is none now; with nothing under way, that is the end of the sweep.
        """
        ...

    def tell(self, trial: Trial) -> None: ...

    @property
    def left(self) -> int:
        """How many more runs there will be, at most or by the best guess."""
        ...

    @property
    def sure(self) -> Mapping[str, Any]:
        """The choices, their tolerance and probability, as JSON; empty for a grid."""
        ...


def require_scipy() -> None:
    """Raise an error that says how to install scipy, where it is missing."""
    try:
        import scipy  # noqa: F401
    except ModuleNotFoundError:
        raise JoulewiseError(
            "an adaptive search needs scipy", "pip install 'joulewise[search]'"
        ) from None


class SearchState(Protocol):
    """Everything that a search derives from its trials so far."""

    @property
    def has_posterior(self) -> bool:
        """Whether there are enough runs for one."""
        ...

    @property
    def judgements(self) -> tuple[MetricJudgement, ...]: ...

    @property
    def tolerance(self) -> float: ...

    @property
    def noise(self) -> dict[str, float]:
        """Standard deviation between runs of their time and power, as shares."""
        ...

    @property
    def probe_s(self) -> float | None:
        """For how many seconds a probe measures steady steps; None for whole runs."""
        ...

    def probability(self, metric: Metric, chosen: int, tolerance: float) -> float:
        """That a choice, by whatever runs it was made, is good enough."""
        ...


_StateT = TypeVar("_StateT", bound=SearchState)


class Search(ABC, Generic[_StateT]):
    """A :class:`Strategy` that chooses a setting for each metric, and then confirms the choices.

    Subclasses have the model: they derive a state from trials, and say which run to make next and
    when the choice is made.
    """

    def __init__(
        self,
        points: Sequence[Setting],
        reference: Setting,
        objective: Objective,
        *,
        budget: int,
        least: int,
        pairs: int,
        slots: int,
        warm_up: int,
    ) -> None:
        """``budget`` runs at most, the ``pairs`` for each metric among them; ``least`` to choose.

        ``warm_up`` runs of the reference come first in each of the GPU ``slots``.
        """
        confirming = pairs * (1 + len(objective.metrics))
        self._points = points
        self._reference = reference
        self._objective = objective
        self._budget = budget
        self._exploring = budget - confirming
        if self._exploring < least:
            raise UsageError(
                f"{budget} runs are too few to choose a setting and confirm it",
                f"allow for {least + confirming} or more",
            )
        self._pairs = pairs
        self._slots = slots
        self._warm_up = warm_up
        self._warmed: Counter[int] = Counter()
        self._trials: Trials = {}
        self._cached_state: _StateT | None = None

    def ask(self, busy: Sequence[Planned]) -> Planned | None:
        taken = {planned.lane for planned in busy}
        free = [slot for slot in range(self._slots) if slot not in taken]
        planned = self._next(busy, free) if free else None
        if planned and self._warmed[planned.lane] < self._warm_up:
            return Planned(self._reference, WARM_UP, planned.lane)
        return planned

    def tell(self, trial: Trial) -> None:
        if trial.block == WARM_UP:
            self._warmed[trial.lane] += 1
            return
        self._trials[trial_key(trial)] = trial
        if trial.block < CONFIRMING:
            self._cached_state = None

    @property
    def left(self) -> int:
        if self._has_chosen:
            return len(self._missing_pairs())
        skipped = sum(trial.state is TrialState.SKIPPED for trial in self._trials.values())
        return self._budget - len(self._trials) + skipped

    @property
    def sure(self) -> Mapping[str, Any]:
        counts = RunCounts.of(self._trials.values())
        state = self._state
        summary = {
            "runs": counts.whole,
            "looks": counts.looks,
            "stopped": counts.stopped,
            "failed": counts.failed,
            "budget": self._budget,  # for runs of all kinds
            **self._details(),
        }
        if not state.has_posterior:
            return {**summary, "metrics": {}, "reason": "too few runs succeeded"}
        # The choice stays that of the exploration; its probability is by the pairs as well.
        updated = self._derive_state(self._trials.values())
        metrics = {}
        for judgement in state.judgements:
            chosen = self._points[judgement.chosen]
            probability = updated.probability(judgement.metric, judgement.chosen, state.tolerance)
            metrics[judgement.metric.name] = {
                "settings": chosen.as_json(),
                "is_reference": chosen == self._reference,
                "tolerance": state.tolerance,
                "probability": probability,
                "sure": self._has_chosen and self._is_sure(judgement.probability, probability),
                **confirm(chosen, self._reference, self._trials, self._objective.view),
            }
        return {**summary, "noise": self._noise(state, updated), "metrics": metrics}

    @property
    def _explored(self) -> list[Trial]:
        return [trial for trial in self._trials.values() if trial.block < CONFIRMING]

    @property
    def _state(self) -> _StateT:
        """By the runs before the choice alone."""
        if self._cached_state is None:
            self._cached_state = self._derive_state(self._explored)
        return self._cached_state

    @property
    @abstractmethod
    def _has_chosen(self) -> bool: ...

    @abstractmethod
    def _derive_state(self, trials: Iterable[Trial]) -> _StateT: ...

    @abstractmethod
    def _choose_run(
        self, under_way: Sequence[Planned], keys: set[TrialKey], rng: random.Random
    ) -> tuple[Setting, float | None] | None:
        """The next setting and the seconds of its probe; None where there is none now.

        ``keys`` are those of all runs that were made or are under way.
        """

    @abstractmethod
    def _is_sure(self, chosen_by: float, confirmed: float) -> bool:
        """Whether a choice is sure, by its probability before and after the pairs."""

    @abstractmethod
    def _noise(self, state: _StateT, updated: _StateT) -> dict[str, float]:
        """The noise to report, of the exploration or of all runs."""

    def _details(self) -> dict[str, Any]:
        """What a search reports besides."""
        return {}

    def _next(self, busy: Sequence[Planned], free: Sequence[int]) -> Planned | None:
        under_way = [planned for planned in busy if 0 <= planned.block < CONFIRMING]
        if self._has_chosen:
            if under_way:
                return None  # it may change the choice
            taken = {(planned.setting, planned.block) for planned in busy}
            missing = (planned for planned in self._missing_pairs() if planned.lane in free)
            return next((run for run in missing if (run.setting, run.block) not in taken), None)
        if len(self._explored) + len(under_way) >= self._exploring:
            return None
        return self._explore(under_way, free[0])

    def _explore(self, under_way: Sequence[Planned], slot: int) -> Planned | None:
        """A run in the slot's first block with space, or in a later one that lacks it."""
        keys = self._keys(under_way)
        sizes = Counter(block for _, block, _ in keys)
        block = slot
        while sizes[block] >= BLOCK_RUNS:
            block += self._slots
        rng = random.Random(f"{self._objective.seed} {block}")  # noqa: S311  # no secret
        reference = self._reference, self._state.probe_s
        is_due = (reference[0], block, reference[1]) not in keys
        if is_due and sizes[block] >= rng.randrange(BLOCK_RUNS):
            choice: tuple[Setting, float | None] | None = reference
        else:
            choice = self._choose_run(under_way, keys, rng)
        if choice is None:
            return None
        setting, probe_s = choice
        while (setting, block, probe_s) in keys:
            block += self._slots
        return Planned(setting, block, slot, probe_s)

    def _keys(self, under_way: Sequence[Planned]) -> set[TrialKey]:
        return {*self._trials, *map(trial_key, under_way)}

    def _missing_pairs(self) -> list[Planned]:
        state = self._state
        judgements = state.judgements if state.has_posterior else ()
        chosen = dict.fromkeys(self._points[judgement.chosen] for judgement in judgements)
        return list(
            missing_pairs(
                list(chosen),
                self._reference,
                self._trials,
                slots=self._slots,
                seed=self._objective.seed,
                pairs=self._pairs,
            )
        )
