"""Epochs to the target at each batch size: what tries that reached it, or were stopped, tell.

The logarithm of the epochs is a curve over the octaves of the batch size. Its shape is
``1 + b / B_large + (B_small / b)**2``: epochs grow in proportion to the batch size beyond a
critical one (McCandlish et al., An Empirical Model of Large-Batch Training, 2018), and steeply
below one at which the gradient is too noisy for the learning rate. Neither place is known, and a
smooth deviation is added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.optimise.recurring.policy.curve_mixture import (
    CurveMixture,
    CurveValues,
    LowerBounds,
    rough_covariance,
    smooth_covariance,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# The prior, chosen wide. Places are in octaves above the default: mean and standard deviation.
_LARGE_OCTAVES: Final = (1.0, 3.0)
_SMALL_OCTAVES: Final = (-4.0, 2.5)
_OCTAVES: Final = np.arange(-12.0, 12.5, 1.0)
# Of the level, in log units: the default needs about a third of the most epochs, within a factor
# of 2.7 either way.
_LEVEL: Final = (math.log(0.35), 1.0)
# The smooth deviation from a shape, in log units and octaves.
_DEVIATION: Final = 0.25
_LENGTH_OCTAVES: Final = 2.0
# And one that is not smooth, such as where a learning rate suits a batch size by chance.
_ROUGH_DEVIATION: Final = 0.1
# Noise of the log epochs from run to run: what it is taken for before it was seen, and how many
# observations that counts for.
_NOISE: Final = 0.1
_NOISE_WEIGHT: Final = 4.0
_LEAST_NOISE: Final = 0.03
_RESIDUAL_SHARE: Final = 0.95  # of earlier residuals, with each new one: the last 20 count
# A count of whole epochs is off by up to half an epoch: the standard deviation of that.
_ROUNDING_EPOCHS: Final = 0.29
# The noise of one batch size may be larger than that of the others: the variance of the mean of n
# tries is larger by 1 + 3/n, as for one try of a Student distribution with three degrees. At 0, one
# slow try makes it leave a good batch size for long.
_FEW_TRIES: Final = 3.0
# Older tries at a batch size fade: the last so many count. Doubled, it follows a slow drift half
# as fast.
_MEMORY_TRIES: Final = 20.0
# Tries that fail where others reached the target, before any was seen: as 1 in 30.
_FAILED: Final = 0.1
_NOT_FAILED: Final = 2.9
# Stopped tries at one batch size count as so many at most.
_MOST_BOUNDS: Final = 4.0
# A try stopped at more than so many deviations above what others needed failed; it was not slow.
_FAILED_SIGMAS: Final = 3.0
# The log odds that tell a change of the job from chance, summed over tries that speak for it in
# sequence (Page, Continuous Inspection Schemes, 1954). At 30, chance would more often seem to be a
# change, after which all is learned anew; at 3000, a change costs one or two more failed tries.
_CHANGE_LOG_ODDS: Final = math.log(300)


@dataclass
class EpochRecord:
    """What tries at one batch size told: of those that reached the target, and of the others.

    ``missed_in_a_row`` counts the last ones that ran all epochs and missed the target.
    """

    weight: float = 0.0
    mean_log: float = 0.0
    failures: float = 0.0
    bound_log: float = -math.inf
    bound_weight: float = 0.0
    missed_in_a_row: float = 0.0

    def add(self, log_epochs: float, weight: float) -> None:
        self.weight = min(self.weight + weight, _MEMORY_TRIES)
        self.mean_log += weight / self.weight * (log_epochs - self.mean_log)


class EpochsModel:
    """The posterior of the epochs. ``residuals`` and ``degrees`` tell the noise from run to run."""

    def __init__(self, batch_sizes: Sequence[int], default: int, max_epochs: int) -> None:
        self.records = [EpochRecord() for _ in batch_sizes]
        self.residuals = 0.0
        self.change_log_odds = 0.0
        self.degrees = 0.0
        self._max_epochs = max_epochs
        self._prior = _prior(batch_sizes, default, max_epochs)
        self._posterior: CurveMixture | None = None

    def add(self, i: int, *, reached: bool, epochs: int) -> bool:
        """Take in a try; True if it tells that the job has changed, and all else was forgotten."""
        log_epochs = math.log(max(epochs, 1))
        self.change_log_odds = max(
            0.0, self.change_log_odds + self._change_log_odds(i, log_epochs, reached=reached)
        )
        changed = self.change_log_odds > _CHANGE_LOG_ODDS
        if changed:
            self.change_log_odds = 0.0
            self.records = [EpochRecord() for _ in self.records]
        self._take_in(i, log_epochs, reached=reached, weight=1.0)
        return changed

    def add_failure(self, i: int) -> None:
        """Take in a try that failed for another reason than its epochs."""
        self.records[i].failures = min(self.records[i].failures + 1, _MEMORY_TRIES)

    def add_earlier(self, i: int, *, reached: bool, epochs: int, weight: float) -> None:
        """Take in a try elsewhere, which tells of no change."""
        self._take_in(i, math.log(max(epochs, 1)), reached=reached, weight=weight)

    def _take_in(self, i: int, log_epochs: float, *, reached: bool, weight: float) -> None:
        record = self.records[i]
        self._posterior = None
        if reached:
            record.missed_in_a_row = 0.0
            if record.weight:
                self.residuals = (
                    _RESIDUAL_SHARE * self.residuals + weight * (log_epochs - record.mean_log) ** 2
                )
                self.degrees = _RESIDUAL_SHARE * self.degrees + weight
            record.add(log_epochs, weight)
            self._take_bound_for_failures(record)
            return
        if log_epochs >= math.log(self._max_epochs):
            record.missed_in_a_row += weight
        if record.weight and self._is_far(record, log_epochs):
            record.failures = min(record.failures + weight, _MEMORY_TRIES)
        else:
            record.bound_log = max(record.bound_log, math.log(math.exp(log_epochs) + 0.5))
            record.bound_weight = min(record.bound_weight + weight, _MOST_BOUNDS)
            self._take_bound_for_failures(record)

    def _take_bound_for_failures(self, record: EpochRecord) -> None:
        """Tries stopped far beyond what others needed by now had failed; they were not slow."""
        if record.weight and self._is_far(record, record.bound_log):
            record.failures = min(record.failures + record.bound_weight, _MEMORY_TRIES)
            record.bound_weight = 0.0
            record.bound_log = -math.inf

    def noise_variance(self, log_epochs: float) -> float:
        rounding = _ROUNDING_EPOCHS / math.exp(max(log_epochs, 0.0))
        total = _NOISE_WEIGHT * (_NOISE**2 + rounding**2) + self.residuals
        return max(total / (_NOISE_WEIGHT + self.degrees), _LEAST_NOISE**2)

    def missed_in_a_row(self) -> Array:
        return np.array([record.missed_in_a_row for record in self.records])

    def failed_share(self) -> Array:
        failed = np.array([r.failures for r in self.records]) + _FAILED
        share: Array = failed / (failed + _NOT_FAILED + np.array([r.weight for r in self.records]))
        return share

    def draw_failed(self, i: int, rng: np.random.Generator) -> Array:
        """A draw of the share of tries that fail where others would reach the target."""
        record = self.records[i]
        draws: Array = rng.beta(record.failures + _FAILED, record.weight + _NOT_FAILED, 2000)
        return draws

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """Log epochs to the target, one row for each sample."""
        at = [i for i, r in enumerate(self.records) if r.bound_log > -math.inf]
        bounds = np.array([self.records[i].bound_log for i in at])
        variances = np.array(
            [
                self.noise_variance(bound) * (1 + _FEW_TRIES / self.records[i].bound_weight)
                for i, bound in zip(at, bounds, strict=True)
            ]
        )
        return self._given_values().sample(
            LowerBounds(np.array(at, dtype=np.intp), bounds, variances), count, rng
        )

    def _given_values(self) -> CurveMixture:
        if self._posterior is None:
            at = [i for i, r in enumerate(self.records) if r.weight]
            records = [self.records[i] for i in at]
            noise = np.diag(
                [
                    self.noise_variance(r.mean_log) / r.weight * (1 + _FEW_TRIES / r.weight)
                    for r in records
                ]
            )
            values = np.array([r.mean_log for r in records])
            self._posterior = self._prior.condition(
                CurveValues(np.array(at, dtype=np.intp), values, noise.reshape(len(at), len(at)))
            )
        return self._posterior

    def _is_far(self, record: EpochRecord, log_epochs: float) -> bool:
        deviation = math.sqrt(self.noise_variance(record.mean_log) * (1 + 1 / record.weight))
        return log_epochs > record.mean_log + _FAILED_SIGMAS * deviation

    def _change_log_odds(self, i: int, log_epochs: float, *, reached: bool) -> float:
        if not any(r.weight for r in self.records):
            return 0.0
        now, variance = self._given_values(), self.noise_variance(log_epochs)
        if reached:
            expected = now.log_density(i, log_epochs, variance * 2)
            anew = self._prior.log_density(i, log_epochs, variance)
        else:
            bound = math.log(math.exp(log_epochs) + 0.5)
            failed = math.log(self.failed_share()[i])
            expected = float(np.logaddexp(now.log_exceedance(i, bound, variance), failed))
            anew = self._prior.log_exceedance(i, bound, variance)
        return anew - expected

    def as_json(self) -> dict[str, Any]:
        return {
            "records": [
                {
                    **{key: value for key, value in vars(record).items() if key != "bound_log"},
                    "bound_log": record.bound_log if record.bound_weight else None,
                }
                for record in self.records
            ],
            "residuals": self.residuals,
            "degrees": self.degrees,
            "change_log_odds": self.change_log_odds,
        }

    def read(self, saved: Mapping[str, Any]) -> None:
        self.records = [
            EpochRecord(
                **{**record, "bound_log": -math.inf}
                if record["bound_log"] is None
                else dict(record)
            )
            for record in saved["records"]
        ]
        self.residuals, self.degrees = saved["residuals"], saved["degrees"]
        self.change_log_odds = saved["change_log_odds"]


def _prior(batch_sizes: Sequence[int], default: int, max_epochs: int) -> CurveMixture:
    octaves = np.log2(np.array(batch_sizes, dtype=float) / default)
    large, small = (g.ravel() for g in np.meshgrid(_OCTAVES, _OCTAVES))
    means = np.log1p(
        2.0 ** (octaves[None, :] - large[:, None]) + 4.0 ** (small[:, None] - octaves[None, :])
    )
    means -= np.log1p(2.0**-large + 4.0**small)[:, None]  # 0 at the default
    log_prior = sum(
        -0.5 * ((place - mean) / deviation) ** 2
        for place, (mean, deviation) in ((large, _LARGE_OCTAVES), (small, _SMALL_OCTAVES))
    )
    likely = log_prior > log_prior.max() - 6
    level, spread = _LEVEL
    return CurveMixture(
        means[likely] + math.log(max_epochs) + level,
        spread**2
        + smooth_covariance(octaves, _DEVIATION, _LENGTH_OCTAVES)
        + rough_covariance(octaves, _ROUGH_DEVIATION, _LENGTH_OCTAVES),
        log_prior[likely],
    )
