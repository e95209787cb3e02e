"""Every setting so many times, in random order, with the reference among them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from joulewise.data.sweeps import WARM_UP, Planned, Setting, Trial
from joulewise.sweep.space import Space
from joulewise.sweep.spec import SweepSpec


class Grid:
    """A :class:`~joulewise.search.strategy.Strategy` that tries all.

    Block ``b`` is one repetition on lane ``b % lanes``, in an order that follows from the seed and
    ``b`` alone. What was told is left out, whichever lane it ran on; nothing else changes. A lane
    that has something left to run warms up first.
    """

    def __init__(self, space: Space, asked: SweepSpec, lanes: int = 1) -> None:
        self._reference = space.reference
        self._warm_up = asked.warm_up
        self._lanes = lanes
        self._warmed: Counter[int] = Counter()
        self._queues: list[dict[tuple[Setting, int], Planned]] = [{} for _ in range(lanes)]
        for block in range(asked.repeat):
            lane = block % lanes
            for setting in order(space, asked, block):
                self._queues[lane][setting, block] = Planned(setting, block, lane)

    def ask(self, busy: Sequence[Planned]) -> Planned | None:
        taken = {planned.lane for planned in busy}
        under_way = {(planned.setting, planned.block) for planned in busy}
        for lane, queue in enumerate(self._queues):
            if lane in taken:
                continue
            planned = next((each for key, each in queue.items() if key not in under_way), None)
            if planned is None:
                continue
            if self._warmed[lane] < self._warm_up:
                return Planned(self._reference, WARM_UP, lane)
            return planned
        return None

    def tell(self, trial: Trial) -> None:
        if trial.block == WARM_UP:
            self._warmed[trial.lane] += 1
        else:
            self._queues[trial.block % self._lanes].pop((trial.setting, trial.block), None)

    @property
    def left(self) -> int:
        """Exactly, warm-up runs with it."""
        warming = (
            max(self._warm_up - self._warmed[lane], 0)
            for lane, queue in enumerate(self._queues)
            if queue
        )
        return sum(map(len, self._queues)) + sum(warming)

    @property
    def sure(self) -> Mapping[str, Any]:
        return {}


def order(space: Space, asked: SweepSpec, block: int) -> list[Setting]:
    """The order of a block's runs.

    Where slow settings are to be skipped, the first block begins with what they are slower than.
    """
    settings = list(space.points)
    random.Random(f"{asked.seed} {block}").shuffle(settings)  # noqa: S311  # no secret
    if block == 0 and asked.max_slowdown is not None:
        settings.remove(space.reference)
        settings.insert(0, space.reference)
    return settings
