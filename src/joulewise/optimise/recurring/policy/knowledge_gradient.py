"""Which batch size to try next, and up to what cost: the knowledge gradient, by samples.

For each batch size and budget: what the try is expected to cost, with the repetition if it is
stopped, and what later recurrences are expected to cost if they follow what it tells (Frazier,
Powell and Dayanik, The Knowledge-Gradient Policy for Correlated Normal Beliefs, 2009). Each sample
of the posterior is taken for the truth in turn, its outcome is drawn, and the samples are weighted
by how well they agree with that outcome. Tries in flight are taken into account in the same way, as
if they had told already, so that the next one adds to them (Wu and Frazier, The Parallel Knowledge
Gradient Method, 2016).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.optimise.recurring.policy.curve_mixture import log_survival

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Weights = NDArray[np.float32]
    Mask = NDArray[np.bool_]

# Budgets to choose from, over the expected cost of the best batch size.
_BUDGETS: Final = (1.15, 1.5, 2.0, 3.0, math.inf)
# The most of them for a batch size that never reached the target, while another has. At 1.5, probes
# fail that would have succeeded, and cost as much; at 3, one that never succeeds costs three.
_MOST_PROBE: Final = 2.0
# What a try risks: its expected cost, and this many standard deviations. At 1, good batch sizes are
# found late or not at all; at 0, jobs whose default is best cost more at first.
_RISK_SIGMAS: Final = 0.5
# What a batch size that never reaches the target counts, in tries of the most epochs, before any
# such try was seen. Larger, less of a chance of that is taken when it is the choice. Each such try
# that was seen doubles it, up to so often: one that costs k times as much is tried after log2(k)
# misses of the others. If each added a constant, it would be tried after k misses of each.
_NEVER_TRIES: Final = 3.0
_MOST_DOUBLINGS: Final = 60.0
# A failed try of the choice costs so much of a successful one: stopped at its budget.
_FAILED_COST: Final = 1.5
# Where the least cost by this share of the samples is no better than the best, none is considered.
_HOPELESS_SHARE: Final = 0.01
# What a repetition, or a failed try, is thought to cost at most, over the best: a bound for samples
# of the far tail, where the posterior is only the prior.
_MOST_REPEATED: Final = 5.0
# Samples agree on an outcome within these, in log units at least: smaller, each agrees with itself
# alone, and what a try may tell is overestimated.
_LEAST_WIDTH: Final = 0.08
_COST_WIDTH: Final = 0.08
# Weights are this at least. Chosen: products of two stay in the range of single precision, below
# which processors are slow.
_LEAST_WEIGHT: Final = 1e-12
# Rows of a matrix that are multiplied at once; the number of samples is a multiple. Chosen:
# OpenBLAS shares products above 262,144 multiplications among threads, which takes far longer where
# other processes keep the processor busy. This stays below with 256 samples and 31 batch sizes.
_ROWS: Final = 32


@dataclass(frozen=True)
class CostSamples:
    """Samples of the posterior, one in each row, with a column for each batch size."""

    log_epochs: Array
    log_epoch_cost: Array
    failed_share: Array
    is_measured: Mask
    has_reached: Mask
    missed_in_a_row: Array
    noise: float
    max_epochs: int

    def reaches(self) -> Mask:
        """Whether a batch size ever reaches the target."""
        reaches: Mask = self.log_epochs <= math.log(self.max_epochs)
        return reaches

    def cost(self) -> Array:
        """Of a recurrence at each batch size, failed tries included."""
        doubled = 2.0 ** np.minimum(self.missed_in_a_row, _MOST_DOUBLINGS)
        never = self.max_epochs * _NEVER_TRIES * doubled
        epochs = np.where(self.reaches(), np.exp(self.log_epochs), never)
        odds = self.failed_share / (1 - self.failed_share)
        return np.exp(self.log_epoch_cost) * epochs * (1 + _FAILED_COST * odds)


@dataclass(frozen=True)
class TryCandidate:
    """A try that could be next.

    ``total`` is the expected cost of this and of later recurrences, ``risk`` what this one may
    cost. ``is_best`` tells the batch size of the least expected cost, as far as is known now.
    """

    index: int
    budget: float
    total: float
    risk: float
    is_best: bool


def evaluate_candidates(
    samples: CostSamples,
    usable: Sequence[int],
    in_flight: Sequence[int],
    horizon: float,
    rng: np.random.Generator,
    *,
    has_scale: bool,
) -> list[TryCandidate]:
    cost = samples.cost()
    outcome = samples.log_epochs + samples.noise * rng.standard_normal(samples.log_epochs.shape)
    agreement = np.ones((len(cost), len(cost)), dtype=np.float32)
    for i in set(in_flight):
        agreement *= _epochs_agreement(samples, outcome, i)
        agreement *= _cost_agreement(samples, i)
        np.maximum(agreement, np.float32(_LEAST_WEIGHT), out=agreement)
    # With several outcomes to agree on, no sample would agree with any other.
    if len(set(in_flight)) > 1:
        agreement **= np.float32(1 / len(set(in_flight)))
    expected = cost[:, usable].mean(axis=0)
    chosen, best = int(expected.argmin()), float(expected.min())
    outlook = _Outlook(
        samples, cost[:, usable], outcome, agreement, chosen, usable[chosen], best, horizon
    )
    budgets = [best * share for share in _BUDGETS] if has_scale else [math.inf]
    is_probe = has_scale and samples.has_reached[usable].any()
    probes = [best * share for share in _BUDGETS if share <= _MOST_PROBE] if is_probe else budgets
    lowest = np.quantile(cost, _HOPELESS_SHARE, axis=0)
    return [
        candidate
        for i in usable
        if i == usable[chosen] or lowest[i] < best
        for candidate in _evaluate(outlook, i, budgets if samples.has_reached[i] else probes)
    ]


def choose_candidate(candidates: Sequence[TryCandidate], room: float) -> TryCandidate:
    """The least in total, of those that risk no more than ``room``, and of the best."""
    affordable = [each for each in candidates if each.is_best or each.risk <= room]
    return min(affordable, key=lambda each: each.total)


@dataclass(frozen=True)
class _Outlook:
    """What all candidates have in common; ``chosen`` is a column of ``cost``."""

    samples: CostSamples
    cost: Array
    outcome: Array
    agreement: Weights
    chosen: int
    best_index: int
    best: float
    horizon: float


def _evaluate(outlook: _Outlook, i: int, budgets: Sequence[float]) -> list[TryCandidate]:
    samples = outlook.samples
    alike = outlook.agreement * _cost_agreement(samples, i)
    reached_alike = _epochs_agreement(samples, outlook.outcome, i)
    reached_alike *= alike
    always = np.ones(len(outlook.cost))
    reached_gain, _ = _gain(reached_alike, always, outlook)
    each = np.exp(samples.log_epoch_cost[:, i])
    wanted = np.exp(outlook.outcome[:, i])
    failed = samples.failed_share[i]
    candidates = []
    for budget in budgets:
        allowed = np.clip(np.floor(budget / each), 1, samples.max_epochs)
        stopped = wanted > allowed
        paid = each * np.minimum(wanted, allowed)
        gain, spent = reached_gain, paid
        if stopped.any():
            likely = np.exp(
                log_survival((np.log(allowed + 0.5) - samples.log_epochs[:, i]) / samples.noise)
            )
            stopped_gain, value = _gain(alike, likely, outlook)
            gain = np.where(stopped, stopped_gain, reached_gain)
            spent = paid + stopped * np.minimum(value, _MOST_REPEATED * outlook.best)
        now = float(spent.mean())
        now += failed * (
            float(np.minimum(each * allowed, _MOST_REPEATED * outlook.best).mean())
            + outlook.best
            - now
        )
        risk = now + _RISK_SIGMAS * float(spent.std())
        total = now + outlook.horizon * (outlook.best - float(gain.mean()))
        candidates.append(TryCandidate(i, budget, total, risk, i == outlook.best_index))
    return candidates


def _gain(weights: Weights, likely: Array, outlook: _Outlook) -> tuple[Array, Array]:
    """What the best choice saves over ``chosen``, and what it costs, for each row of weights.

    A sample counts by its weight and by how ``likely`` it makes the outcome. A difference within
    the same weights: their smoothing is not taken for a gain or a loss.
    """
    shares = np.column_stack([outlook.cost / outlook.best, np.ones(len(likely))])
    shares *= np.maximum(likely, _LEAST_WEIGHT)[:, None]
    parts = weights.reshape(-1, _ROWS, len(likely)) @ shares.astype(np.float32)
    sums = parts.reshape(shares.shape).astype(np.float64)
    means: Array = outlook.best * sums[:, :-1] / sums[:, -1:]
    least = means.min(axis=1)
    return means[:, outlook.chosen] - least, least


def _epochs_agreement(samples: CostSamples, outcome: Array, i: int) -> Weights:
    width = max(samples.noise, _LEAST_WIDTH)
    return _agreement(outcome[:, i] / width, samples.log_epochs[:, i] / width)


def _cost_agreement(samples: CostSamples, i: int) -> Weights:
    if samples.is_measured[i]:
        return np.ones((1, len(samples.log_epoch_cost)), dtype=np.float32)
    values = samples.log_epoch_cost[:, i] / _COST_WIDTH
    return _agreement(values, values)


def _agreement(outcomes: Array, values: Array) -> Weights:
    """A Gaussian kernel, in single precision: most of the time of an ask goes into it."""
    middle = values.mean()
    weights = np.subtract.outer(
        (outcomes - middle).astype(np.float32), (values - middle).astype(np.float32)
    )
    weights *= weights
    weights *= np.float32(-0.5)
    np.exp(weights, out=weights)
    np.maximum(weights, np.float32(_LEAST_WEIGHT), out=weights)
    return np.asarray(weights)
