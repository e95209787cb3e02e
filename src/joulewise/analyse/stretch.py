"""A stretch of time (CLOCK_MONOTONIC)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Stretch:
    start_ns: int
    end_ns: int

    @property
    def time_s(self) -> float:
        return (self.end_ns - self.start_ns) / NS_PER_S

    def after_s(self, t_ns: int) -> float:
        """How long after its start."""
        return (t_ns - self.start_ns) / NS_PER_S

    def holds(self, t_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
        return (t_ns >= self.start_ns) & (t_ns <= self.end_ns)
