"""A stretch of time, by CLOCK_MONOTONIC where nothing else is said."""

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
    def time_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def time_s(self) -> float:
        return self.time_ns / NS_PER_S

    def later(self, by_ns: int) -> Stretch:
        return Stretch(self.start_ns + by_ns, self.end_ns + by_ns)

    def shared_ns(self, other: Stretch) -> int:
        return max(0, min(self.end_ns, other.end_ns) - max(self.start_ns, other.start_ns))

    def after_s(self, t_ns: int) -> float:
        """How long after its start."""
        return (t_ns - self.start_ns) / NS_PER_S

    def holds(self, t_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
        return (t_ns >= self.start_ns) & (t_ns <= self.end_ns)
