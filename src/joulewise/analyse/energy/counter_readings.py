"""The readings of an energy counter around some moments, in one pass over its chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.chunks import ChunkReader, Columns, blocks, near, readable
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

AROUND: Final = 48
"""Points on either side of a moment that tell how far counter and readings differ there."""

# A lane of no more rows than this (27 minutes at 10 Hz) is taken as a whole: what a window took
# does then not depend on which others are asked for, but for windows of some milliseconds, whose
# edges are moved by a part of their error so that all add up and none is negative.
_WHOLE_ROWS: Final = 1 << 14
# A governor lets short peaks pass, and gains are off.
_IMPOSSIBLE: Final = 1.5
_LONG_AGO_NS: Final = -(1 << 62)


@dataclass(frozen=True)
class Points:
    """Where the counter was seen to have moved: at the poll ``t_ns``, and not yet at ``before_ns``.

    Only those around the moments asked for, and on both sides of a step that no device could have
    drawn (``broken``: from the point before). ``row`` numbers all points of the lane, so that
    neighbours are told from those that only stand side by side here.
    """

    t_ns: NDArray[np.int64]
    before_ns: NDArray[np.int64]
    count_j: NDArray[np.float64]
    broken: NDArray[np.bool_]
    row: NDArray[np.int64]

    @property
    def joined(self) -> NDArray[np.bool_]:
        """Whether each point follows on the one before it."""
        return np.append(False, np.diff(self.row) == 1)

    @property
    def moves_hz(self) -> float | None:
        """New values a second."""
        time_s = (self.t_ns[-1] - self.t_ns[0]) / NS_PER_S
        return float((self.row[-1] - self.row[0]) / time_s) if time_s > 0 else None


def points_around(
    lane: ChunkReader, times_ns: NDArray[np.int64], *, most_w: float | None, period_ns: float
) -> Points | None:
    """The counter's points around these moments, which ascend; None where it was never read."""
    if lane.rows <= _WHOLE_ROWS:
        return _all_points(lane, most_w, period_ns)
    found: list[Points] = []
    moves = _moves(readable(lane.chunks(("t_ns", "energy_j")), "energy_j"))
    for block in blocks(moves, AROUND):
        columns = block.columns
        owned = slice(block.first, block.end)
        t_ns, count_j = columns["t_ns"], columns["energy_j"]
        if block.end <= block.first:
            continue
        broken = np.append(False, _broken(t_ns, count_j, most_w, period_ns))
        edges = t_ns[owned.start - 1] if owned.start else np.iinfo(np.int64).min
        here = times_ns[np.searchsorted(times_ns, edges, "right") :]
        here = here[: np.searchsorted(here, t_ns[block.end - 1], "right")]
        keep = near(np.searchsorted(t_ns, here), len(t_ns), AROUND)
        if broken[owned].any():
            keep |= near(block.first + np.flatnonzero(broken[owned]), len(t_ns), AROUND)
        if block.row == 0:  # the ends, for what lies beyond them
            keep[:AROUND] = True
        if block.end == len(t_ns):
            keep[-AROUND:] = True
        # A block's first row does not know the step before it; a neighbour block does.
        keep[0] &= block.row == 0
        at = np.flatnonzero(keep)
        before_ns = columns["before_ns"][at]
        found.append(Points(t_ns[at], before_ns, count_j[at], broken[at], block.row + at))
    return _merge(found) if found else None


def _all_points(lane: ChunkReader, most_w: float | None, period_ns: float) -> Points | None:
    parts = list(_moves(readable(lane.chunks(("t_ns", "energy_j")), "energy_j")))
    if not parts:
        return None
    t_ns, before_ns, count_j = (
        np.concatenate([part[name] for part in parts]) for name in ("t_ns", "before_ns", "energy_j")
    )
    broken = np.append(False, _broken(t_ns, count_j, most_w, period_ns))
    return Points(t_ns, before_ns, count_j, broken, np.arange(len(t_ns)))


def _merge(parts: Sequence[Points]) -> Points:
    """Each point once, though blocks overlap."""
    row, first = np.unique(np.concatenate([part.row for part in parts]), return_index=True)
    return Points(
        np.concatenate([part.t_ns for part in parts])[first],
        np.concatenate([part.before_ns for part in parts])[first],
        np.concatenate([part.count_j for part in parts])[first],
        np.concatenate([part.broken for part in parts])[first],
        row,
    )


def _moves(chunks: Iterable[Columns]) -> Iterator[Columns]:
    """The rows in which the counter is not what it was in the row before."""
    last_ns, last_j = _LONG_AGO_NS, np.nan
    for chunk in chunks:
        t_ns, count_j = chunk["t_ns"], chunk["energy_j"]
        if not len(t_ns):
            continue
        before_ns = np.empty_like(t_ns)
        before_ns[0], before_ns[1:] = last_ns, t_ns[:-1]
        moved = count_j[1:] != count_j[:-1]
        first = count_j[0] != last_j
        last_ns, last_j = t_ns[-1], count_j[-1]
        if not first or not moved.all():
            moved = np.append(first, moved)
            t_ns, before_ns, count_j = t_ns[moved], before_ns[moved], count_j[moved]
        if len(t_ns):
            yield {"t_ns": t_ns, "before_ns": before_ns, "energy_j": count_j}


def _broken(
    t_ns: NDArray[np.int64], count_j: NDArray[np.float64], most_w: float | None, period_ns: float
) -> NDArray[np.bool_]:
    steps = np.diff(count_j)
    if not len(steps):
        return np.zeros(0, bool)
    broken = steps < 0
    most_per_ns = np.inf if most_w is None else _IMPOSSIBLE * most_w / NS_PER_S
    if steps.max() > most_per_ns * period_ns:
        broken |= steps > most_per_ns * (np.diff(t_ns) + period_ns)
    return broken
