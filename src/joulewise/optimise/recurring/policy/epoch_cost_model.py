"""The cost of an epoch at each batch size: nearly fixed, and known once it was measured.

Its logarithm is a curve over the octaves of the batch size. Its shape is ``1 + b_half / b``: a step
costs a fixed part and a part for each sample, and there are fewer steps in an epoch of larger ones.
The place is not known, and a smooth deviation is added. The level is known from the first try on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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

# Where the fixed part of a step equals that of its samples, in octaves above the default.
_HALF_OCTAVES: Final = (-2.0, 3.0)
_OCTAVES: Final = np.arange(-12.0, 8.5, 0.5)
_LEVEL: Final = 30.0  # the standard deviation of the level, in log units: it is not known
_DEVIATION: Final = 0.15
_LENGTH_OCTAVES: Final = 2.0
_ROUGH_DEVIATION: Final = 0.1  # of what is not smooth: kernels are chosen anew for each size
# A cost that was measured repeats within so much; the last measurement counts most.
_NOISE: Final = 0.01
_NEWEST_SHARE: Final = 0.5
# By how much ratios of costs differ between types of GPU.
_ELSEWHERE: Final = 0.3


class EpochCostModel:
    def __init__(self, batch_sizes: Sequence[int], default: int) -> None:
        octaves = np.log2(np.array(batch_sizes, dtype=float) / default)
        means = np.log1p(2.0 ** (_OCTAVES[:, None] - octaves[None, :]))
        means -= np.log1p(2.0**_OCTAVES)[:, None]  # 0 at the default
        self._prior = CurveMixture(
            means,
            _LEVEL**2
            + smooth_covariance(octaves, _DEVIATION, _LENGTH_OCTAVES)
            + rough_covariance(octaves, _ROUGH_DEVIATION, _LENGTH_OCTAVES),
            -0.5 * ((_OCTAVES - _HALF_OCTAVES[0]) / _HALF_OCTAVES[1]) ** 2,
        )
        self.measured: dict[int, float] = {}
        self.elsewhere: dict[int, tuple[float, float]] = {}

    def add(self, i: int, epoch_cost: float) -> None:
        if not (epoch_cost > 0 and math.isfinite(epoch_cost)):
            return
        value = math.log(epoch_cost)
        earlier = self.measured.get(i, value)
        self.measured[i] = earlier + _NEWEST_SHARE * (value - earlier)

    def add_elsewhere(self, i: int, epoch_cost: float, weight: float) -> None:
        """What it was on another type of GPU: only ratios count."""
        total, mean = self.elsewhere.get(i, (0.0, 0.0))
        mean += weight / (total + weight) * (math.log(epoch_cost) - mean)
        self.elsewhere[i] = (total + weight, mean)

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """Log costs of an epoch, one row for each sample."""
        posterior = self._prior
        if self.elsewhere:
            at = sorted(self.elsewhere)
            noise = _LEVEL**2 + _ELSEWHERE**2 * np.diag(
                [1 / min(self.elsewhere[i][0], 1.0) for i in at]
            )
            values = np.array([self.elsewhere[i][1] for i in at])
            posterior = posterior.condition(CurveValues(np.array(at), values, noise))
        at = sorted(self.measured)
        values = np.array([self.measured[i] for i in at])
        posterior = posterior.condition(
            CurveValues(np.array(at, dtype=np.intp), values, _NOISE**2 * np.eye(len(at)))
        )
        return posterior.sample(LowerBounds.none(), count, rng)

    def as_json(self) -> dict[str, Any]:
        return {
            "measured": [[i, value] for i, value in sorted(self.measured.items())],
            "elsewhere": [[i, *value] for i, value in sorted(self.elsewhere.items())],
        }

    def read(self, saved: Mapping[str, Any]) -> None:
        self.measured = {int(i): value for i, value in saved["measured"]}
        self.elsewhere = {int(i): (weight, mean) for i, weight, mean in saved["elsewhere"]}
