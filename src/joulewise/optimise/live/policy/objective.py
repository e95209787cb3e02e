"""What live tuning minimises: scores and losses by samples, the choice, and the next look.

The next look is found by one-step look-ahead: for each candidate, steps are simulated from samples
of the posterior, all samples are weighed by them, and the loss of the choice that would follow is
averaged (knowledge gradient; Frazier, Powell and Dayanik, "The knowledge-gradient policy for
sequential information collection", 2008). Expectations after a look are kernel regressions over the
samples (Nadaraya and Watson, 1964). The candidate with the largest gain a step is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.errors import UsageError
from joulewise.metrics.metric import Metric, Reference

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from joulewise.optimise.live.policy.posterior import CurveSamples

    Array = NDArray[np.float64]
    Bools = NDArray[np.bool_]
    Indices = NDArray[np.int64]

# A choice within this share of the best score is good enough: chosen, what tuning a second longer
# would not earn back. At a bound of the slowdown scores are steep, and one step of 5 W is 1 to 2 %.
_TOLERANCE: Final = 0.01
_TOLERANCE_AT_BOUND: Final = 0.02
# A candidate other than the reference is chosen where its steps hold the bound with this
# probability: the upper end of a one-sided 90 % interval of the slowdown is within it. At 0.95, of
# measured curves four tunings in a hundred more end off the best; all of 410 bounds hold at both.
SURELY_HELD: Final = 0.9
# Losses are counted up to this share of the best score: whoever tunes for a few percent does not
# care whether a bad setting is 20 or 40 % off; without it, a few far samples would decide.
_WORST_LOSS: Final = 0.08
# A broken bound is as bad as so much of the score at least. Doubled, bounds break half as often,
# and energy is lost to caution.
_BROKEN_LOSS: Final = 0.08
# The reference is chosen where its expected loss is within this share of the tolerance of the
# least: a change of settings has to earn its place.
_REFERENCE_MARGIN: Final = 0.1
# The look-ahead tries so many candidates, simulates so many looks at each, and takes so many
# candidates as possible choices after it. Doubled, it is no better under the judge, and slower.
_LOOKED_AHEAD: Final = 48
_SIMULATED_LOOKS: Final = 24
_POSSIBLE_CHOICES: Final = 64
# A simulated look weighs samples that agree with it within this share of their standard deviation,
# besides its noise: Silverman's rule for 256 samples of two quantities, 256^(-1/6). At 0, a look
# where samples differ most, such as at the lowest limit, seems to tell which of them is the truth,
# and with a bound two settings in three are looked at for nothing.
_BANDWIDTH: Final = 0.4


@dataclass(frozen=True)
class TuningObjective:
    """The metric, and what bounds it. ``overhead_w`` is drawn besides the GPUs.

    ``bound_slack`` is the share beyond a bound of the slowdown up to which it still holds.
    """

    metric: Metric
    reference: int
    max_slowdown: float | None = None
    overhead_w: float = 0.0
    max_power_w: float | None = None
    bound_slack: float = 0.0

    def __post_init__(self) -> None:
        if self.max_slowdown is not None and not self.max_slowdown >= 1:
            raise UsageError(
                f"the allowed slowdown is {self.max_slowdown:g}, but must be at least 1",
                "for example: --max-slowdown 1.05",
            )
        if not 0 <= self.overhead_w < np.inf:
            raise UsageError(
                "the power of a node besides its GPUs must be at least 0 W",
                "for example: --overhead-w 112",
            )
        self.metric.rule(1.0, 1.0, Reference(1.0, 1.0, self.max_power_w))  # raises if unknown

    @property
    def bound(self) -> float:
        """How many times the reference's time a step may take; infinite where not bounded."""
        bounds = (self.max_slowdown, self.metric.max_slowdown)
        return min((bound for bound in bounds if bound is not None), default=np.inf)

    @property
    def log_bound(self) -> float:
        """Logarithm of the bound with its slack."""
        return float(np.log(self.bound * (1 + self.bound_slack)))

    @property
    def tolerance(self) -> float:
        return _TOLERANCE if np.isinf(self.bound) else _TOLERANCE_AT_BOUND

    def judge(self, samples: CurveSamples, allowed: Bools) -> Judgement:
        """Judge every candidate by samples; only ``allowed`` ones can be best or chosen."""
        time, energy = self.totals(samples)
        column = slice(self.reference, self.reference + 1)
        reference = Reference(time[:, column], energy[:, column], self.max_power_w)
        scores = np.broadcast_to(self.metric.rule(time, energy, reference), time.shape)
        is_held = time <= self.bound * (1 + self.bound_slack) * reference.time_s
        is_held[:, self.reference] = True
        best = np.where(is_held & allowed, scores, np.inf).min(axis=1, keepdims=True)
        regret = scores / best - 1
        loss = np.where(is_held, np.minimum(regret, _WORST_LOSS), _BROKEN_LOSS)
        expected = np.where(allowed, loss.mean(axis=0), np.inf)
        held = is_held.mean(axis=0)
        expected_if_held = np.where(held >= SURELY_HELD, expected, np.inf)
        chosen = int(np.argmin(expected_if_held))
        margin = _REFERENCE_MARGIN * self.tolerance
        if expected[self.reference] <= expected[chosen] + margin:
            chosen = self.reference
        near = is_held[:, chosen] & (regret[:, chosen] <= self.tolerance)
        return Judgement(chosen, float(near.mean()), expected, loss, float(held[chosen]))

    def totals(self, samples: CurveSamples) -> tuple[Array, Array]:
        """Seconds and joules a step, those of the overhead included."""
        time = np.exp(samples.log_time)
        return time, np.exp(samples.log_energy) + self.overhead_w * time


@dataclass(frozen=True)
class Judgement:
    """The candidate with the least expected loss, and the losses of all by each sample.

    ``probability`` is that the choice is within the tolerance of the best and holds the bound,
    ``probability_held`` that it holds the bound.
    """

    chosen: int
    probability: float
    expected_loss: Array
    loss: Array
    probability_held: float


@dataclass(frozen=True)
class LookCost:
    """Clean steps of a look, the steps lost by a change of setting, and where the job is now."""

    steps: int
    lost: int
    current: int
    noise: Array


def next_look(
    samples: CurveSamples, judgement: Judgement, cost: LookCost, rng: np.random.Generator
) -> int:
    """The candidate to look at next."""
    choices = np.argsort(judgement.expected_loss, kind="stable")[:_POSSIBLE_CHOICES]
    looked = _look_candidates(judgement, cost.current)
    loss = judgement.loss[:, choices]
    truth = rng.choice(len(loss), _SIMULATED_LOOKS, replace=False)
    deviation = cost.noise / np.sqrt(cost.steps)
    noise = rng.standard_normal((2, len(looked), _SIMULATED_LOOKS))
    # An entry for each candidate, quantity and sample, in widths of the kernel.
    values = np.stack([samples.log_time[:, looked].T, samples.log_energy[:, looked].T], axis=1)
    width = np.hypot(deviation, _BANDWIDTH * values.std(axis=2))[:, :, None]
    scaled = (values - values.mean(axis=2, keepdims=True)) / width
    simulated = scaled[:, :, truth] + deviation[:, None] / width * noise.transpose(1, 0, 2)
    # Of -(simulated - scaled)²/2 without what is the same for all samples.
    weight = simulated.transpose(0, 2, 1) @ scaled - 0.5 * (scaled**2).sum(axis=1, keepdims=True)
    weight -= weight.max(axis=2, keepdims=True)
    np.exp(weight, out=weight)
    weight /= weight.sum(axis=2, keepdims=True)
    after = weight @ loss
    # A difference within the same weights: neither their smoothing nor the draw of truths is taken
    # for a gain. The first choice is that of the least expected loss now.
    gain = (after[:, :, 0] - after.min(axis=2)).mean(axis=1)
    steps = cost.steps + cost.lost * (looked != cost.current)
    return int(looked[np.argmax(gain / steps if gain.max() > 0 else gain)])


def _look_candidates(judgement: Judgement, current: int) -> Indices:
    """All allowed candidates; of many, half those with the least loss, half spread evenly."""
    allowed = np.flatnonzero(np.isfinite(judgement.expected_loss))
    if len(allowed) <= _LOOKED_AHEAD:
        return allowed
    best = np.argsort(judgement.expected_loss, kind="stable")[: _LOOKED_AHEAD // 2]
    spread = allowed[np.linspace(0, len(allowed) - 1, _LOOKED_AHEAD // 2).round().astype(int)]
    chosen = np.union1d(best, spread)
    return np.union1d(chosen, [current]) if current in allowed else chosen
