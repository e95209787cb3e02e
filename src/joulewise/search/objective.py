"""What a search optimises, and the time and energy of its trials.

Also which setting a posterior favours by a metric, and how surely.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.data.sweeps import Planned, Setting, Trial
from joulewise.errors import UsageError
from joulewise.metrics.boundary import SystemBoundary, View, amount
from joulewise.metrics.metric import Metric, Reference

# The probability from which on a choice is called sure; chosen, the usual 95 %.
SURE: Final = 0.95

TrialKey = tuple[Setting, int, float | None]
"""Setting, block and seconds of a probe: what tells a run from every other of its sweep."""

Trials = dict[TrialKey, Trial]


def trial_key(run: Planned | Trial) -> TrialKey:
    return run.setting, run.block, run.look_s


@dataclass(frozen=True)
class Objective:
    """The metrics to minimise, and how near to the best a setting has to be.

    ``tolerance`` is a share of the best score; None leaves it to the search. ``max_power_w`` is
    that of :class:`~joulewise.metrics.metric.Reference`. ``seed`` is of all random numbers.
    """

    metrics: tuple[Metric, ...]
    tolerance: float | None = None
    view: View = field(default_factory=View)
    max_power_w: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        unique = {metric.name: metric for metric in self.metrics}
        object.__setattr__(self, "metrics", tuple(unique.values()))
        if self.tolerance is not None and not 0 < self.tolerance < 1:
            raise UsageError(f"the tolerance is {self.tolerance:g}", "say --tolerance 1 for 1 %")
        if not self.metrics:
            raise UsageError("an adaptive search needs a metric", "add --by edp")
        for metric in self.metrics:  # raises where it needs a power limit that is unknown
            metric.rule(1.0, 1.0, Reference(1.0, 1.0, self.max_power_w))


def observe(trials: Iterable[Trial], view: View) -> Iterator[tuple[Trial, float, float]]:
    """Time in s and energy in J, at the boundary of the view, of trials where both are known."""
    amounts = [(trial, counted) for trial in trials if (counted := amount(trial, view))]
    line = SystemBoundary.from_trials(amounts, view)
    for trial, counted in amounts:
        energy = dict(line.energies(counted)).get(view.boundary)
        if energy is not None and energy.value > 0 and counted.time_s > 0:
            yield trial, counted.time_s, energy.value


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
