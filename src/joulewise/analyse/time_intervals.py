"""Intervals of time, by CLOCK_MONOTONIC unless stated otherwise.

numpy is loaded only where arrays are passed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from joulewise.analyse.chunks import Array, Bools, Ints


@dataclass(frozen=True)
class TimeInterval:
    """An interval of time; both ends belong to it."""

    start_ns: int
    end_ns: int

    @property
    def time_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def time_s(self) -> float:
        return self.time_ns / NS_PER_S

    def shift(self, by_ns: int) -> TimeInterval:
        return TimeInterval(self.start_ns + by_ns, self.end_ns + by_ns)

    def shared_ns(self, other: TimeInterval) -> int:
        return max(0, min(self.end_ns, other.end_ns) - max(self.start_ns, other.start_ns))

    def after_s(self, t_ns: int) -> float:
        """Seconds from its start to ``t_ns``."""
        return (t_ns - self.start_ns) / NS_PER_S

    def holds(self, t_ns: Ints) -> Bools:
        return (t_ns >= self.start_ns) & (t_ns <= self.end_ns)


@dataclass(frozen=True)
class TimeSet:
    """Intervals that do not overlap, in their order; both ends belong to each."""

    start_ns: Ints
    end_ns: Ints

    @classmethod
    def union(cls, start_ns: Array, end_ns: Array) -> TimeSet:
        """From intervals in any order; those that overlap or touch become one."""
        if not len(start_ns):
            return cls(start_ns, end_ns)
        import numpy as np

        order = np.argsort(start_ns, kind="stable")
        starts, ends = start_ns[order], np.maximum.accumulate(end_ns[order])
        apart = starts[1:] > ends[:-1]
        return cls(starts[np.append(True, apart)], ends[np.append(apart, True)])

    def holds(self, t_ns: Ints) -> Bools:
        """Which times lie in any interval."""
        import numpy as np

        if not len(self.start_ns):
            return np.zeros(len(t_ns), bool)
        begun = np.searchsorted(self.start_ns, t_ns, side="right")
        return np.asarray((begun > 0) & (t_ns <= self.end_ns[begun - 1]))
