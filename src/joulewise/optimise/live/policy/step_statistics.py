"""Means of the steps at each candidate, and the noise from step to step, robust to outliers.

Values are logarithms of seconds and of joules. A step far from the median of its look (Hampel's
identifier: median and median absolute deviation) is left out, such as one with a validation in it;
where many are far away, the steps are uneven by nature, and all count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# The noise of a step before any was seen, as shares of its time and energy, and the number of steps
# that this counts for. Chosen: usual of training steps; it matters in the first two looks only.
_PRIOR_NOISE: Final = np.array([0.01, 0.015])
_PRIOR_STEPS: Final = 8
# A value may be the mean of a block of steps. Before any was seen, no more than so many of its
# steps are thought to be independent (chosen): they share the host, the heat and the sensor.
_MOST_INDEPENDENT_STEPS: Final = 8.0
# A step so many standard deviations from the median of its look is an outlier. Chosen: normal
# noise has none in 10^8 steps; at 3, one step in 370 would be lost for nothing.
_OUTLIER_SIGMAS: Final = 6.0
# Where at least this share of a look are outliers, none is: the steps are uneven. Chosen.
_UNEVEN_SHARE: Final = 0.2
_MAD_FACTOR: Final = 1.4826  # standard deviation over median absolute deviation, normal noise
_LEAST_FOR_OUTLIERS: Final = 4  # steps; of fewer, the median tells nothing
# Autocorrelation counts from so many standard errors on. At 0, independent steps would often
# be taken for correlated ones.
_AUTOCORRELATION_SIGMAS: Final = 2.0
_MOST_AUTOCORRELATION: Final = 0.8  # the variance of a mean is then 9 times as large
# Looks at one candidate differ by more than the noise of steps where the sum of squares of their
# differences is so many of its standard deviations above what steps explain. At 0, independent
# steps would often be taken for ones that differ by look.
_BETWEEN_SIGMAS: Final = 3.0
# Standard deviation of a mean however many steps it has, as a share: heat and slow drift.
# Doubled, the last tenths of a percent between neighbours cannot be told apart.
_LEAST_DEVIATION: Final = 0.001


@dataclass
class MeanSteps:
    """The clean steps at one candidate: their number, and the means of log s and log J."""

    steps: int = 0
    looks: int = 0
    mean: Array = field(default_factory=lambda: np.zeros(2))

    def add(self, values: Array) -> None:
        total = self.steps + len(values)
        self.mean = self.mean + (values.mean(axis=0) - self.mean) * len(values) / total
        self.steps = total
        self.looks += 1


class StepStatistics:
    """Everything that was seen of the steps since the exploration began."""

    def __init__(self, steps_in_value: float = 1.0) -> None:
        """``steps_in_value`` is how many steps of the job a step here is the mean of."""
        self.means: dict[int, MeanSteps] = {}
        self.steps_in_value = steps_in_value
        self._squares = np.zeros(2)
        self._weight = 0.0
        self._products = np.zeros(2)  # of neighbours' residuals
        self._residual_squares = np.zeros(2)
        self._pairs = 0
        self._looks = 0
        self._between = np.zeros(2)  # squares of differences between looks at one candidate,
        self._chi_squares = np.zeros(2)  # also over what the noise of steps explains of them
        self._repeats = 0

    def add(self, index: int, values: Array, *, is_look: bool = True) -> None:
        """Add a look: rows of log s and log J, in the order of the steps.

        Not a look are steps while the choice is held, which drift over hours.
        """
        values = values[self._is_kept(values)]
        if not len(values):
            return
        if is_look and index in self.means:
            self._compare_looks(self.means[index], values)
        if len(values) > 1:
            residual = values - values.mean(axis=0)
            squares = (residual**2).sum(axis=0)
            self._squares = self._squares + squares * len(values) / (len(values) - 1)
            self._weight += len(values)
            self._products = self._products + (residual[1:] * residual[:-1]).sum(axis=0)
            self._residual_squares = self._residual_squares + squares
            self._pairs += len(values) - 1
            self._looks += 1
        self.means.setdefault(index, MeanSteps()).add(values)

    @property
    def steps(self) -> int:
        """All clean steps."""
        return sum(each.steps for each in self.means.values())

    @property
    def noise(self) -> Array:
        """Standard deviation of independent steps with the same variance of the mean."""
        steps = min(self.steps_in_value, _MOST_INDEPENDENT_STEPS)
        squares = _PRIOR_STEPS * _PRIOR_NOISE**2 / steps + self._squares
        return np.asarray(np.sqrt(squares / self.degrees_of_freedom * self._inflation))

    @property
    def degrees_of_freedom(self) -> float:
        return _PRIOR_STEPS + self._weight

    def variances(self, index: int) -> Array:
        """Variances of the means of log s and log J at a candidate."""
        means = self.means[index]
        by_look = self.look_variance / means.looks
        return np.asarray(self.noise**2 / means.steps + by_look + _LEAST_DEVIATION**2)

    @property
    def look_variance(self) -> Array:
        """Variance of a look's mean besides the noise of its steps, as of a busy host.

        0 where the looks at one candidate agree.
        """
        if not self._repeats:
            return np.zeros(2)
        least = self._repeats + _BETWEEN_SIGMAS * np.sqrt(2 * self._repeats)
        return np.where(self._chi_squares > least, self._between / self._repeats, 0.0)

    def _compare_looks(self, before: MeanSteps, values: Array) -> None:
        explained = self.noise**2 * (1 / len(values) + 1 / before.steps) + 2 * _LEAST_DEVIATION**2
        squares = (values.mean(axis=0) - before.mean) ** 2
        self._chi_squares = self._chi_squares + squares / explained
        self._between = self._between + np.maximum(squares - explained, 0) / (1 + 1 / before.looks)
        self._repeats += 1

    @property
    def _inflation(self) -> Array:
        """How many times larger the variance of a mean is by autocorrelation (of first order)."""
        if not self._pairs:
            return np.ones(2)
        # Residuals about the mean of n steps are correlated by -1/n.
        bias = self._looks / (self._pairs + self._looks)
        squares = np.maximum(self._residual_squares, np.finfo(float).tiny)
        rho = np.minimum(self._products / squares + bias, _MOST_AUTOCORRELATION)
        is_clear = rho > _AUTOCORRELATION_SIGMAS / np.sqrt(self._pairs)
        return np.where(is_clear, (1 + rho) / (1 - rho), 1.0)

    def _is_kept(self, values: Array) -> NDArray[np.bool_]:
        if len(values) < _LEAST_FOR_OUTLIERS:
            return np.ones(len(values), dtype=bool)
        off = abs(values - np.median(values, axis=0))
        scale = np.maximum(_MAD_FACTOR * np.median(off, axis=0), self.noise)
        is_outlier = (off > _OUTLIER_SIGMAS * scale).any(axis=1)
        if is_outlier.mean() >= _UNEVEN_SHARE:
            return np.ones(len(values), dtype=bool)
        return np.asarray(~is_outlier)
