"""A random curve over the batch sizes: one of many shapes, plus a smooth deviation from it.

The prior is a mixture of Gaussian processes that differ in their means alone, the shapes, so that
all of them are conditioned with one matrix (Rasmussen and Williams, Gaussian Processes for Machine
Learning, 2006, section 2.7). A shape counts by its marginal likelihood. Observations are values
with noise, and lower bounds: a try that was stopped says that more would have been needed. Values
above bounds are drawn one after the other from truncated normal distributions, and weighted by the
probabilities that were cut off (the simulator of Geweke, Hajivassiliou and Keane).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]

# Added to variances, so that matrices can be factorised: 0.01 % of a value.
_JITTER: Final = 1e-8
# How many samples are drawn for one that is returned where bounds weight them. Halved, the few of
# large weight repeat more often.
_OVERSAMPLING: Final = 4


@dataclass(frozen=True)
class CurveValues:
    """Values of the curve with Gaussian noise of a covariance."""

    at: Indices
    value: Array
    noise: Array

    @staticmethod
    def none() -> CurveValues:
        return CurveValues(np.zeros(0, dtype=np.intp), np.zeros(0), np.zeros((0, 0)))


@dataclass(frozen=True)
class LowerBounds:
    """At each of these, a value with independent noise of a variance lies above the bound."""

    at: Indices
    bound: Array
    variance: Array

    @staticmethod
    def none() -> LowerBounds:
        return LowerBounds(np.zeros(0, dtype=np.intp), np.zeros(0), np.zeros(0))


class CurveMixture:
    """The prior. ``means`` has one row for each shape, ``covariance`` that of the deviation."""

    def __init__(self, means: Array, covariance: Array, log_prior: Array) -> None:
        self._means = means
        self._covariance = covariance
        self._log_prior = log_prior

    def condition(self, values: CurveValues) -> CurveMixture:
        """The posterior, which is again a mixture."""
        if not len(values.at):
            return self
        across = self._covariance[:, values.at]
        factor = np.linalg.cholesky(
            across[values.at] + values.noise + _JITTER * np.eye(len(values.at))
        )
        residual = np.linalg.solve(factor, (values.value - self._means[:, values.at]).T)
        gain = np.linalg.solve(factor, across.T)
        log_prior = self._log_prior - 0.5 * (residual**2).sum(axis=0)
        return CurveMixture(
            self._means + (gain.T @ residual).T,
            self._covariance - gain.T @ gain,
            log_prior - log_prior.max(),
        )

    def log_density(self, at: int, value: float, variance: float) -> float:
        """Of one noisy value at one place."""
        total = self._covariance[at, at] + variance
        squared = (value - self._means[:, at]) ** 2 / total
        return self._averaged(-0.5 * (squared + math.log(2 * math.pi * total)))

    def log_exceedance(self, at: int, bound: float, variance: float) -> float:
        """The log probability that a noisy value at one place lies above a bound."""
        deviation = math.sqrt(self._covariance[at, at] + variance)
        return self._averaged(log_survival((bound - self._means[:, at]) / deviation))

    def sample(self, bounds: LowerBounds, count: int, rng: np.random.Generator) -> Array:
        """``count`` curves given lower bounds too, one in each row."""
        drawn = count * _OVERSAMPLING if len(bounds.at) else count
        shares = np.exp(self._log_prior - self._log_prior.max())
        # Systematic resampling: each shape as often as its share, to within one.
        means = self._means[_systematic(shares, drawn, rng)]
        size = self._means.shape[1]
        factor = np.linalg.cholesky(self._covariance + _JITTER * 10 * np.eye(size))
        curves = means + rng.standard_normal((drawn, size)) @ factor.T
        if not len(bounds.at):
            return np.asarray(curves)
        noise = np.diag(bounds.variance)
        across = self._covariance[:, bounds.at]
        total = across[bounds.at] + noise + _JITTER * np.eye(len(bounds.at))
        total_factor = np.asarray(np.linalg.cholesky(total), dtype=np.float64)
        wanted, log_weights = _truncated(means[:, bounds.at], total_factor, bounds, rng)
        seen = curves[:, bounds.at] + rng.standard_normal((drawn, len(bounds.at))) * np.sqrt(
            bounds.variance
        )
        # Matheron's rule: a joint draw is moved to what it should have been.
        curves += np.linalg.solve(total, (wanted - seen).T).T @ across.T
        kept: Array = curves[_systematic(np.exp(log_weights - log_weights.max()), count, rng)]
        return kept

    def _averaged(self, log_likelihoods: Array) -> float:
        weights = self._log_prior - np.logaddexp.reduce(self._log_prior)
        return float(np.logaddexp.reduce(weights + log_likelihoods))


def smooth_covariance(positions: Array, deviation: float, length: float) -> Array:
    """A squared exponential covariance."""
    apart = (positions[:, None] - positions[None, :]) / length
    return np.asarray(deviation**2 * np.exp(-0.5 * apart**2))


def rough_covariance(positions: Array, deviation: float, length: float) -> Array:
    """An exponential covariance: values next to each other differ by jumps of any size."""
    apart = np.abs(positions[:, None] - positions[None, :]) / length
    return np.asarray(deviation**2 * np.exp(-apart))


def log_survival(z: Array) -> Array:
    """The log probability that a standard normal variable exceeds ``z``."""
    values: Array = np.interp(z, _Z, _LOG_SURVIVAL)
    return values


def _truncated(
    means: Array, factor: Array, bounds: LowerBounds, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draws above the bounds, and the log of their weights."""
    whitened = np.zeros_like(means)
    log_weights = np.zeros(len(means))
    for i, bound in enumerate(bounds.bound):
        lowest = (bound - means[:, i] - whitened[:, :i] @ factor[i, :i]) / factor[i, i]
        log_tail = log_survival(lowest)
        log_weights += log_tail
        log_uniform = np.log1p(-rng.random(len(means)))
        whitened[:, i] = np.interp(-(log_tail + log_uniform), -_LOG_SURVIVAL, _Z)
    return means + whitened @ factor.T, log_weights


def _systematic(weights: Array, count: int, rng: np.random.Generator) -> Indices:
    shares = weights / weights.sum()
    ends = np.cumsum(shares)
    points = (rng.random() + np.arange(count)) / count
    return np.minimum(np.searchsorted(ends, points), len(weights) - 1)


# The table of the log survival function, every 0.01 standard deviations up to where it underflows.
_Z: Final = np.linspace(-9.0, 37.0, 4601)
_LOG_SURVIVAL: Final = np.array([math.log(0.5 * math.erfc(z / math.sqrt(2))) for z in _Z])
