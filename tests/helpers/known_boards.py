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
from joulewise.search.objective import Objective
from joulewise.search.one_axis.adaptive import OneAxisSearch

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


def objective(*metrics: str, **options) -> Objective:
    return Objective(tuple(parse(metric) for metric in metrics), **options)


def make_search(
    settings: Sequence[Setting],
    *metrics: str,
    budget: int | None = None,
    slots: int = 1,
    warm_up: int = 0,
    **options,
) -> OneAxisSearch:
    """A search with the highest setting as its reference; ``options`` are the objective's."""
    return OneAxisSearch(
        settings,
        settings[-1],
        objective(*metrics, **options),
        budget=budget,
        slots=slots,
        warm_up=warm_up,
    )


def run_search(board: Board, *metrics: str, **options) -> tuple[OneAxisSearch, list[Trial]]:
    strategy = make_search(board.settings, *metrics, **options)
    return strategy, finish_search(strategy, board)


def finish_search(
    strategy: OneAxisSearch, board: Board, earlier: Sequence[Trial] = ()
) -> list[Trial]:
    """Tell a search of earlier trials, and run it to its end."""
    trials = list(earlier)
    for trial in trials:
        strategy.tell(trial)
    while planned := strategy.ask(()):
        trials.append(board.run(planned))
        strategy.tell(trials[-1])
    return trials
