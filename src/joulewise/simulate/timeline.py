"""What a simulated GPU did, as pieces of constant power, so that its energy is exact."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

PIECE = np.dtype(
    [
        ("t_ns", np.int64),
        ("energy_j", np.float64),
        ("power_w", np.float32),
        ("sm_mhz", np.float32),
        ("memory_mhz", np.float32),
        ("busy", np.float32),
        ("memory_busy", np.float32),
        ("temperature_c", np.float32),
        ("throttle", np.uint32),
        ("pstate", np.uint32),
    ]
)
"""One stretch of constant power: from ``t_ns`` to the next piece's. 48 bytes, as ``layout.h``.

``energy_j`` is the exact energy drawn from the unit's beginning up to ``t_ns``.
"""


@dataclass(frozen=True)
class Timeline:
    """Pieces in order of time, and where the last of them ends.

    Every method that takes a moment takes an array of moments too. Energy at ``t`` is
    ``energy_j + power_w * ((t - t_ns) * 1e-9)`` of the piece that holds ``t``, in doubles and in
    this order, so that the C library computes the same bits. Outside the timeline the first and
    the last piece go on. ``step_ends_ns`` is when each step of a load was done.
    """

    pieces: NDArray[np.void]
    end_ns: int
    step_ends_ns: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def start_ns(self) -> int:
        return int(self.pieces["t_ns"][0]) if len(self.pieces) else self.end_ns

    def energy_at(self, t_ns: ArrayLike) -> NDArray[np.float64]:
        """Exact energy (J) drawn from the unit's beginning up to ``t_ns``."""
        return self._integral(self._energy_j, self._power_w, t_ns)

    def power_at(self, t_ns: ArrayLike) -> NDArray[np.float64]:
        return self._power_w[self.index_at(t_ns)]

    def mean_busy(
        self, start_ns: ArrayLike, end_ns: ArrayLike, column: str = "busy"
    ) -> NDArray[np.float64]:
        """The mean of ``busy`` (or ``memory_busy``) from ``start_ns`` to ``end_ns``."""
        done_s = self.busy_s_at(end_ns, column) - self.busy_s_at(start_ns, column)
        span_ns = np.asarray(end_ns, np.int64) - np.asarray(start_ns, np.int64)
        return np.asarray(done_s / (span_ns * 1e-9))

    def busy_s_at(self, t_ns: ArrayLike, column: str = "busy") -> NDArray[np.float64]:
        """The integral of ``busy`` (or ``memory_busy``) from the timeline's beginning, in s."""
        return self._integral(*self._busy_s[column], t_ns)

    def index_at(self, t_ns: ArrayLike) -> NDArray[np.intp]:
        """The index of the piece that holds the moment; of two, the one that begins there."""
        t_ns = np.asarray(t_ns, np.int64)
        pieces = self._t_ns
        if t_ns.ndim == 1 and t_ns.size > 2 * pieces.size and (t_ns[1:] >= t_ns[:-1]).all():
            # Many moments in order: searching for the pieces among them is several times faster.
            first = np.searchsorted(t_ns, pieces, side="left")
            first[0] = 0
            return np.repeat(np.arange(pieces.size), np.diff(first, append=t_ns.size))
        return np.maximum(np.searchsorted(pieces, t_ns, side="right") - 1, 0)

    def between(self, start_ns: int, end_ns: int) -> Timeline:
        """The part from ``start_ns`` to ``end_ns``, its first piece cut to begin there."""
        start_ns, end_ns = max(start_ns, self.start_ns), min(end_ns, self.end_ns)
        if start_ns >= end_ns:
            return Timeline(self.pieces[:0], end_ns)
        ends = self.step_ends_ns
        first, last = self.index_at([start_ns, end_ns - 1])
        pieces = self.pieces[first : last + 1].copy()
        pieces["energy_j"][0] = self.energy_at(start_ns)
        pieces["t_ns"][0] = start_ns
        return Timeline(pieces, end_ns, ends[(ends > start_ns) & (ends <= end_ns)])

    def _integral(
        self, total: NDArray[np.float64], rate: NDArray[np.float64], t_ns: ArrayLike
    ) -> NDArray[np.float64]:
        at = self.index_at(t_ns)
        value = np.asarray((np.asarray(t_ns, np.int64) - self._t_ns.take(at)) * 1e-9)
        value *= rate.take(at)
        value += total.take(at)
        return value

    @cached_property
    def _t_ns(self) -> NDArray[np.int64]:
        return np.ascontiguousarray(self.pieces["t_ns"])

    @cached_property
    def _energy_j(self) -> NDArray[np.float64]:
        return np.ascontiguousarray(self.pieces["energy_j"])

    @cached_property
    def _power_w(self) -> NDArray[np.float64]:
        return self.pieces["power_w"].astype(np.float64)

    @cached_property
    def _busy_s(self) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
        duration_s = np.diff(self._t_ns) * 1e-9
        shares = {name: self.pieces[name].astype(np.float64) for name in ("busy", "memory_busy")}
        return {
            name: (np.concatenate([[0.0], np.cumsum(share[:-1] * duration_s)]), share)
            for name, share in shares.items()
        }


def concat(timelines: Iterable[Timeline]) -> Timeline:
    """One timeline of several of one unit that follow each other."""
    parts = list(timelines)
    return Timeline(
        join([part.pieces for part in parts]),
        parts[-1].end_ns,
        np.concatenate([part.step_ends_ns for part in parts]),
    )


def join(pieces: Sequence[NDArray[np.void]]) -> NDArray[np.void]:
    """Concatenate pieces as plain 64-bit words: numpy would copy them field by field."""
    if len(pieces) == 1:
        return pieces[0]
    return np.concatenate([block.view(np.int64) for block in pieces]).view(PIECE)
