"""Stretches of a lane of power in which nothing new was told: no reading, or always the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.analyse.stretch import Stretch
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

_RULE: Final = 20


class Silences:
    """Stretches, each with the power that stands for it."""

    def __init__(self) -> None:
        self._parts: list[NDArray[np.float64]] = []

    def add(self, start_ns: NDArray[Any], end_ns: NDArray[Any], power_w: NDArray[Any]) -> None:
        if len(start_ns):
            self._parts.append(np.stack([start_ns, end_ns, power_w]))

    @property
    def number(self) -> int:
        return sum(part.shape[1] for part in self._parts)

    @property
    def bounds_ns(self) -> NDArray[np.float64]:
        """Start and end of each."""
        return np.asarray(np.concatenate([np.empty((3, 0)), *self._parts], axis=1)[:2].T)

    @property
    def longest(self) -> Stretch | None:
        if not self._parts:
            return None
        start_ns, end_ns, _ = np.concatenate(self._parts, axis=1)
        most = np.argmax(end_ns - start_ns)
        return Stretch(int(start_ns[most]), int(end_ns[most]))

    def up_to(self, times_ns: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Their seconds and joules up to each moment."""
        if not self._parts:
            return np.zeros(len(times_ns)), np.zeros(len(times_ns))
        start_ns, end_ns, power_w = np.concatenate(self._parts, axis=1)
        edges_ns = np.stack([start_ns, end_ns], axis=1).reshape(-1)
        lasting_s = (end_ns - start_ns) / NS_PER_S
        return (
            np.interp(times_ns, edges_ns, _stairs(lasting_s)),
            np.interp(times_ns, edges_ns, _stairs(lasting_s * power_w)),
        )


class Standstills(Silences):
    """Those in which the reading did not move for ``long_ns``."""

    def __init__(self, long_ns: float, first_ns: int) -> None:
        super().__init__()
        self._long_ns = long_ns
        self._moved_ns = first_ns
        self._moves = 0

    def look(
        self, t_ns: NDArray[np.int64], power_w: NDArray[Any], moved: NDArray[np.bool_]
    ) -> None:
        """Rows in order, and whether another value came after each of them."""
        moves = np.count_nonzero(moved)
        if not moves:
            return
        self._moves += moves
        # As a rule it moves in every row: only those around a standstill are looked at.
        begin = np.flatnonzero(moved[1:] < moved[:-1]) + 1
        end = np.flatnonzero(moved[1:] > moved[:-1]) + 1
        end = np.append(0, end) if moved[0] else end
        since_ns = np.append(self._moved_ns, t_ns[begin])[: len(end)]
        long = np.flatnonzero(t_ns[end] - since_ns > self._long_ns)
        self.add(since_ns[long], t_ns[end[long]], power_w[end[long]])
        self._moved_ns = int(t_ns[len(moved) if moved[-1] else begin[-1]])

    def end(self, last_ns: int, last_w: float) -> None:
        if last_ns - self._moved_ns > self._long_ns:
            self.add(np.array([self._moved_ns]), np.array([last_ns]), np.array([last_w]))

    @property
    def odd(self) -> bool:
        """Whether this sensor moves as a rule, so that one which does not must be stuck."""
        return self._moves >= _RULE * max(self.number, 1)


def _stairs(parts: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of the parts before each and after each."""
    return np.repeat(np.append(0.0, np.cumsum(parts)), 2)[1:-1]
