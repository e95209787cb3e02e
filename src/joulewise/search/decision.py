"""Which setting a posterior favours by a metric, and how surely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.metrics.metric import Metric, Reference

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# Losses are counted up to this share of the best score. Chosen: whoever tunes for a few percent
# does not care whether a bad setting is 20 or 40 % off; without it, a few far samples would decide.
_WORST_LOSS: Final = 0.2
# The reference is chosen where its expected loss is within a tenth of the tolerance of the least:
# chosen, since a change of settings has to earn its place. Doubled, it is a twentieth.
_REFERENCE_DIVISOR: Final = 10


@dataclass(frozen=True)
class PosteriorSamples:
    """Samples (rows) of the logarithms of s and W at every setting (columns).

    Each sample also has its own standard deviation between runs, as a share.
    """

    log_time: Array
    log_power: Array
    time_noise: Array
    power_noise: Array


@dataclass(frozen=True)
class MetricJudgement:
    """The choice by one metric, as a number of a setting.

    ``within`` is 1 where a setting (column) is good enough by a sample (row), else 0, and
    ``probability`` its mean for the choice.
    """

    metric: Metric
    chosen: int
    within: Array
    probability: float


def judge(
    samples: PosteriorSamples,
    metric: Metric,
    reference: int,
    candidates: Sequence[int],
    tolerance: float,
    *,
    max_power_w: float | None = None,
) -> MetricJudgement:
    """Choose the candidate that is most probably good enough.

    Good enough is a score at most ``tolerance`` above that of the best candidate; a limit on the
    slowdown may be exceeded by as much. Of several as probable, the one with the least expected
    loss is chosen, or the reference.
    """
    time_s = np.exp(samples.log_time)
    energy_j = time_s * np.exp(samples.log_power)
    column = slice(reference, reference + 1)
    against = Reference(time_s[:, column], energy_j[:, column], max_power_w)
    scores = np.broadcast_to(metric.rule(time_s, energy_j, against), time_s.shape)
    limit_s = np.inf if metric.max_slowdown is None else metric.max_slowdown * against.time_s
    is_candidate = np.zeros(time_s.shape[1], dtype=bool)
    is_candidate[list(candidates)] = True
    best = np.where(is_candidate & (time_s <= limit_s), scores, np.inf).min(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        loss = np.where(time_s <= limit_s * (1 + tolerance), scores / best - 1, np.inf)
    loss = np.where(np.isnan(loss) | ~is_candidate, np.inf, loss)
    within = (loss <= tolerance).astype(float)
    probability = within.mean(axis=0)
    expected_loss = np.where(
        probability >= probability.max(), np.minimum(loss, _WORST_LOSS).mean(axis=0), np.inf
    )
    chosen = int(np.argmin(expected_loss))
    if expected_loss[reference] <= expected_loss.min() + tolerance / _REFERENCE_DIVISOR:
        chosen = reference
    return MetricJudgement(metric, chosen, within, float(within[:, chosen].mean()))
