"""Finds that the steps at a held setting have changed, in time or in energy.

A two-sided cumulative sum (CUSUM; Page, "Continuous inspection schemes", 1954) of the logarithms of
time and energy, about a mean that is updated as steps come, a few steps late: else the first steps
after a change would pass for noise. The threshold follows from the rate of
false alarms by Siegmund's approximation ("Sequential Analysis", 1985).
"""

from __future__ import annotations

import math
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# Steps between false alarms of one of the four sums. Chosen: weeks of quarter-second steps. A
# tenth of it would find a change of two standard deviations a step or two earlier.
_STEPS_BETWEEN_FALSE_ALARMS: Final = 1e8
# Half of the change, in logarithms, that is to be found: one of less than about 1 % moves no
# optimum. Doubled, changes of 1 % go unseen.
_ALLOWANCE: Final = 0.005
_LEAST_ALLOWANCE_SIGMAS: Final = 0.25  # below it, a small error of the noise gives false alarms
_MOST_SIGMAS: Final = 4.0  # a step counts as so much at most, so that one alone proves nothing
# A step farther away is an outlier, unless the one before was one as well. Chosen, as for means.
_OUTLIER_SIGMAS: Final = 6.0
# Steps that are needed before the mean is trusted, and after which it forgets: heat moves it.
_LEAST_STEPS: Final = 4
# Steps are learned when so many more have come: with steps at four standard deviations, the sum
# has passed the threshold by then. Doubled, noise that depends on itself is noticed later.
_LEARNED_LATE_STEPS: Final = 10
_LEAST_PAIRS: Final = 12  # of steps in a row, before their correlation is known
_MEMORY_STEPS: Final = 400
# Steps that depend on the one before count for fewer. The correlation is at most this, and counts
# from so many standard errors on. Chosen, as for means.
_MOST_AUTOCORRELATION: Final = 0.9
_AUTOCORRELATION_SIGMAS: Final = 2.0
_OVERSHOOT_SIGMAS: Final = 1.166  # by which a sum of normal steps exceeds its threshold (Siegmund)


class Drift(str, Enum):
    TIME = "time_drift"
    ENERGY = "energy_drift"


class DriftDetector:
    """Watches the steps at one setting."""

    def __init__(self, mean: Array, steps: int, noise: Array, noise_steps: float) -> None:
        """Start from the mean log s and log J of so many steps, and from the noise of a step."""
        self._sums = [
            _TwoSidedSum(float(mean[i]), steps, float(noise[i]), noise_steps) for i in range(2)
        ]

    def update(self, values: Array) -> Drift | None:
        """Add steps: rows of log s and log J; return what has changed, None if nothing has."""
        for step in values:
            for drift, total, value in zip(Drift, self._sums, step, strict=True):
                if total.update(float(value)):
                    return drift
        return None


class _TwoSidedSum:
    def __init__(self, mean: float, steps: int, noise: float, noise_steps: float) -> None:
        self._mean, self._steps = mean, steps
        self._variance, self._variance_steps = noise**2, noise_steps
        self._high = self._low = 0.0
        self._was_outlier = False
        self._before = self._product = 0.0  # the residual of the last step, and of two in a row
        self._pairs = 0
        self._waiting: deque[float] = deque()  # values that are not learned yet

    def update(self, value: float) -> bool:
        sigma = math.sqrt(self._variance * (1 + 1 / max(self._steps, 1)))
        if not self._steps:
            self._mean, self._steps = value, 1
            return False
        z = (value - self._mean) / sigma
        is_outlier, was_outlier = abs(z) > _OUTLIER_SIGMAS, self._was_outlier
        self._was_outlier = is_outlier
        if is_outlier and not was_outlier:
            return False
        z = min(max(z, -_MOST_SIGMAS), _MOST_SIGMAS)
        if self._steps >= _LEAST_STEPS:
            # The sums grow as those of independent steps do that tell as much of the mean.
            inflation = math.sqrt(self._inflation)
            allowance = max(_ALLOWANCE / (sigma * inflation), _LEAST_ALLOWANCE_SIGMAS)
            self._high = max(0.0, self._high + z / inflation - allowance)
            self._low = max(0.0, self._low - z / inflation - allowance)
            if max(self._high, self._low) > _threshold(allowance):
                return True
        self._waiting.append(self._mean + z * sigma)
        if len(self._waiting) > _LEARNED_LATE_STEPS or self._steps < _LEAST_STEPS:
            self._learn(self._waiting.popleft() - self._mean)
        return False

    @property
    def _inflation(self) -> float:
        """How many times the variance of a mean is larger by autocorrelation of first order."""
        if self._pairs < _LEAST_PAIRS:
            return 1.0
        rho = min(self._product / self._variance, _MOST_AUTOCORRELATION)
        is_clear = rho > _AUTOCORRELATION_SIGMAS / math.sqrt(self._pairs)
        return (1 + rho) / (1 - rho) if is_clear else 1.0

    def _learn(self, off: float) -> None:
        self._pairs = min(self._pairs + 1, _MEMORY_STEPS)
        self._product += (off * self._before - self._product) / self._pairs
        self._before = off
        self._steps = min(self._steps + 1, _MEMORY_STEPS)
        self._mean += off / self._steps
        self._variance_steps = min(self._variance_steps + 1, _MEMORY_STEPS)
        self._variance += (off**2 - self._variance) / self._variance_steps


def _threshold(allowance: float) -> float:
    """The sum, in standard deviations, that stationary steps exceed once in the chosen number.

    Siegmund: for an allowance k and a threshold h, exp(2 k (h + 1.166)) / (2 k²) steps.
    """
    exponent = math.log(2 * allowance**2 * _STEPS_BETWEEN_FALSE_ALARMS)
    return max(exponent / (2 * allowance) - _OVERSHOOT_SIGMAS, _MOST_SIGMAS)
