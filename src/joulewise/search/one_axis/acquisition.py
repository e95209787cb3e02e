"""Which setting is good enough by a metric and how surely, and which run would tell most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.metrics.metric import Metric, Reference
from joulewise.search.one_axis.posterior import Draws

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_WORST: Final = 0.2  # beyond it a loss is a loss
_OUTCOMES: Final = 16
_AHEAD: Final = 2.0  # runs that are looked ahead: what one alone would change is mostly nothing


@dataclass(frozen=True)
class MetricJudgement:
    """By one metric: the setting to choose, and for each world and setting if it is good enough."""

    metric: Metric
    chosen: int
    within: Array
    probability: float


def judge(
    draws: Draws,
    metric: Metric,
    reference: int,
    open_to: Sequence[int],
    tolerance: float,
    *,
    max_power_w: float | None = None,
) -> MetricJudgement:
    """Good enough is a score at most ``tolerance`` above that of the best that is ``open_to`` us.

    A time that the metric rules out may be exceeded by the tolerance, too.
    """
    time_s = np.exp(draws.time)
    energy_j = time_s * np.exp(draws.power)
    here = slice(reference, reference + 1)
    against = Reference(time_s[:, here], energy_j[:, here], max_power_w)
    scores = np.broadcast_to(metric.rule(time_s, energy_j, against), time_s.shape)
    limit = np.inf if metric.max_slowdown is None else metric.max_slowdown * against.time_s
    chosen_from = np.zeros(time_s.shape[1], dtype=bool)
    chosen_from[list(open_to)] = True
    best = np.where(chosen_from & (time_s <= limit), scores, np.inf).min(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        loss = np.where(time_s <= limit * (1 + tolerance), scores / best - 1, np.inf)
    loss = np.where(np.isnan(loss) | ~chosen_from, np.inf, loss)
    within = (loss <= tolerance).astype(float)
    chosen = _choice(
        within.mean(axis=0), np.minimum(loss, _WORST).mean(axis=0), reference, tolerance
    )
    return MetricJudgement(metric, chosen, within, float(within[:, chosen].mean()))


def most_telling(draws: Draws, judged: Sequence[MetricJudgement], may_run: Sequence[int]) -> int:
    """The setting whose next run will, on the mean over its outcomes, make us surest."""
    noise = np.random.default_rng(0).standard_normal((2, _OUTCOMES)) / np.sqrt(_AHEAD)
    outcomes = np.linspace(0, len(draws.time) - 1, _OUTCOMES).astype(int)
    both = np.stack(
        [draws.time / np.median(draws.time_noise), draws.power / np.median(draws.power_noise)]
    )
    both -= both.mean(axis=1, keepdims=True)
    gains = []
    for at in may_run:
        worlds = both[:, :, at]
        comes_to = worlds[:, outcomes] + noise
        explains = comes_to.T @ worlds - 0.5 * (worlds**2).sum(axis=0)
        weights = np.exp(_AHEAD * (explains - explains.max(axis=1, keepdims=True)))
        surest = sum((weights @ each.within).max(axis=1) for each in judged)
        gains.append((surest / weights.sum(axis=1)).mean())
    return may_run[int(np.argmax(gains))]


def _choice(probability: Array, loss: Array, reference: int, tolerance: float) -> int:
    """Of the likeliest to do, the one that loses least; what is set already if it does."""
    least = np.where(probability >= probability.max(), loss, np.inf)
    if least[reference] <= least.min() + tolerance / 10:
        return reference
    return int(np.argmin(least))
