"""A board of known truth to search on, apart from the simulation's: time and power by formula."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from joulewise.data.devices import Source
from joulewise.data.energy import Energy
from joulewise.data.sweeps import POWER_LIMIT, SM_CLOCK, Planned, Setting, Trial, TrialState
from joulewise.metrics.metric import Reference, parse
from joulewise.search.one_axis.adaptive import Adaptive

LIMITS_W = tuple(float(limit_w) for limit_w in range(100, 301, 10))


@dataclass(frozen=True)
class Board:
    """It needs ``need_w``; a lower limit costs time, more and more of it, down to its floor."""

    need_w: float = 280.0
    floor_w: float = 60.0
    noise: float = 0.01
    limits_w: tuple[float, ...] = LIMITS_W
    axis: str = POWER_LIMIT
    tells_capped: bool = False

    @property
    def settings(self) -> list[Setting]:
        return [Setting.of({POWER_LIMIT: limit_w}) for limit_w in self.limits_w]

    def truth(self, value: float | None) -> tuple[float, float]:
        """Time and energy."""
        if self.axis == SM_CLOCK:
            clock = min(value or math.inf, 1400.0) / 1400
            time_s = 100 * (0.5 + 0.5 / clock)
            return time_s, time_s * (80 + 200 * clock**2.5)
        drawn_w = min(value, self.need_w)
        clock = ((drawn_w - self.floor_w) / (self.need_w - self.floor_w)) ** 0.5
        time_s = 100 * (0.5 + 0.5 / clock)
        return time_s, time_s * (10 + 0.9 * drawn_w)

    def loss(self, values: dict[str, float], metric: str) -> float:
        """How much worse than the best a setting truly is."""
        truths = {limit_w: self.truth(limit_w) for limit_w in self.limits_w}
        reference = Reference(*truths[self.limits_w[-1]], self.limits_w[-1])
        scores = {at: float(parse(metric).score(*it, reference)) for at, it in truths.items()}
        return scores[values[POWER_LIMIT]] / min(scores.values()) - 1

    def run(self, planned: Planned, gpu: str = "0") -> Trial:
        value = planned.setting[self.axis]
        time_s, energy_j = self.truth(value)
        draw = random.Random(f"{value} {planned.block}")
        slower, hungrier = (math.exp(draw.gauss(0, self.noise)) for _ in range(2))
        energy = Energy(energy_j * slower * hungrier, 0.0, 0.0, Source.MEASURED)
        return Trial(
            planned.setting,
            planned.block,
            TrialState.DONE,
            planned.lane,
            gpu=gpu,
            time_s=time_s * slower,
            energy={"gpu": energy},
            capped=float(value < self.need_w) if self.tells_capped else None,
        )


def searched(board: Board, *metrics: str, **options) -> tuple[Adaptive, list[Trial]]:
    settings = board.settings
    strategy = Adaptive(settings, settings[-1], [parse(it) for it in metrics], **options)
    return strategy, go_on(strategy, board)


def go_on(strategy: Adaptive, board: Board, told: Sequence[Trial] = ()) -> list[Trial]:
    """Told of what is known already, asked until there is no more."""
    trials = list(told)
    for trial in trials:
        strategy.tell(trial)
    while planned := strategy.ask(()):
        trials.append(board.run(planned))
        strategy.tell(trials[-1])
    return trials
