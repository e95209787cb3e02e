"""A full grid: every setting the same number of times, in random order, with the reference."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from joulewise.data.sweeps import WARM_UP, Planned, Setting, Trial
from joulewise.sweep.space import Space
from joulewise.sweep.spec import SweepSpec


class Grid:
    """A :class:`~joulewise.search.strategy.Strategy` that makes all runs of a space.

    Block ``b`` is one repetition of all settings in GPU slot ``b % slots``. Its order is random
    and follows from the seed and ``b`` alone (a randomised block design), so that a continued sweep
    has the same order. A slot that has runs left warms up first.
    """

    def __init__(self, space: Space, spec: SweepSpec, slots: int = 1) -> None:
        self._reference = space.reference
        self._warm_up = spec.warm_up
        self._slots = slots
        self._warmed: Counter[int] = Counter()
        self._queues: list[dict[tuple[Setting, int], Planned]] = [{} for _ in range(slots)]
        for block in range(spec.repeat):
            slot = block % slots
            for setting in order(space, spec, block):
                self._queues[slot][setting, block] = Planned(setting, block, slot)

    def ask(self, busy: Sequence[Planned]) -> Planned | None:
        taken = {planned.lane for planned in busy}
        under_way = {(planned.setting, planned.block) for planned in busy}
        for slot, queue in enumerate(self._queues):
            if slot in taken:
                continue
            planned = next((run for key, run in queue.items() if key not in under_way), None)
            if planned is None:
                continue
            if self._warmed[slot] < self._warm_up:
                return Planned(self._reference, WARM_UP, slot)
            return planned
        return None

    def tell(self, trial: Trial) -> None:
        if trial.block == WARM_UP:
            self._warmed[trial.lane] += 1
        else:
            self._queues[trial.block % self._slots].pop((trial.setting, trial.block), None)

    @property
    def left(self) -> int:
        """The exact number, with warm-up runs."""
        warming = (
            max(self._warm_up - self._warmed[slot], 0)
            for slot, queue in enumerate(self._queues)
            if queue
        )
        return sum(map(len, self._queues)) + sum(warming)

    @property
    def sure(self) -> Mapping[str, Any]:
        return {}


def order(space: Space, spec: SweepSpec, block: int) -> list[Setting]:
    """The settings of a block in the order of its runs.

    Where slow settings are to be skipped, the first block begins with the reference.
    """
    settings = list(space.points)
    random.Random(f"{spec.seed} {block}").shuffle(settings)  # noqa: S311  # no secret
    if block == 0 and spec.max_slowdown is not None:
        settings.remove(space.reference)
        settings.insert(0, space.reference)
    return settings
