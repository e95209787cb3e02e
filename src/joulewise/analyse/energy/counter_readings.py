"""The values of an energy counter around some times, in one pass over its stream.

Only polls that got a new value are kept, and of a long stream only those around the times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from joulewise.analyse.chunks import (
    Bools,
    ChunkReader,
    Columns,
    Floats,
    Ints,
    blocks,
    near,
    readable,
)
from joulewise.units import NS_PER_S

AROUND: Final = 48
"""New values on either side of a time, which tell how far counter and readings differ there.
Chosen: 5 s of polls at 10 Hz. Twice as many take twice the time in long runs."""

# A stream of no more rows than this (27 minutes at 10 Hz) is taken as a whole: the energy of a
# window does then not depend on the other windows, but for windows of some milliseconds, whose
# edges are changed by a part of their error so that all add up and none is negative.
_WHOLE_STREAM_ROWS: Final = 1 << 14
# A step of more than this many times the device's maximum power is a fault of the counter: a
# governor lets short peaks pass, and gains are off (chosen).
_IMPOSSIBLE_FACTOR: Final = 1.5
# Before any time, for the first row, which has no row before it.
_LONG_AGO_NS: Final = -(1 << 62)


@dataclass(frozen=True)
class CounterReadings:
    """New values of the counter: first seen at the poll ``t_ns``, and not yet at ``before_ns``.

    ``broken`` marks values that no device could have drawn since the one before. ``row`` numbers
    all new values of the stream, so that neighbours are told from those that are only side by side
    times.
    """

    t_ns: Ints
    before_ns: Ints
    count_j: Floats
    broken: Bools
    row: Ints

    @property
    def joined(self) -> Bools:
        """Whether each value is the next of the stream after the one before it."""
        return np.append(False, np.diff(self.row) == 1)


def read_counter(
    stream: ChunkReader, times_ns: Ints, *, max_w: float | None, period_ns: float
) -> CounterReadings | None:
    """The new values around these times, which ascend, and around breaks of the counter.

    None where the counter was never read. ``max_w`` is the most that the device draws, None where
    that is not known, and ``period_ns`` is the time between ticks of the counter.
    """
    if stream.rows <= _WHOLE_STREAM_ROWS:
        return _read_all(stream, max_w, period_ns)
    parts: list[CounterReadings] = []
    new_values = _new_values(readable(stream.chunks(("t_ns", "energy_j")), "energy_j"))
    for block in blocks(new_values, AROUND):
        columns = block.columns
        owned = slice(block.first, block.end)
        t_ns, count_j = columns["t_ns"], columns["energy_j"]
        if block.end <= block.first:
            continue
        broken = np.append(False, _find_broken(t_ns, count_j, max_w, period_ns))
        edges = t_ns[owned.start - 1] if owned.start else np.iinfo(np.int64).min
        times = times_ns[np.searchsorted(times_ns, edges, "right") :]
        times = times[: np.searchsorted(times, t_ns[block.end - 1], "right")]
        keep = near(np.searchsorted(t_ns, times), len(t_ns), AROUND)
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
        parts.append(CounterReadings(t_ns[at], before_ns, count_j[at], broken[at], block.row + at))
    return _merge(parts) if parts else None


def _read_all(stream: ChunkReader, max_w: float | None, period_ns: float) -> CounterReadings | None:
    parts = list(_new_values(readable(stream.chunks(("t_ns", "energy_j")), "energy_j")))
    if not parts:
        return None
    t_ns, before_ns, count_j = (
        np.concatenate([part[name] for part in parts]) for name in ("t_ns", "before_ns", "energy_j")
    )
    broken = np.append(False, _find_broken(t_ns, count_j, max_w, period_ns))
    return CounterReadings(t_ns, before_ns, count_j, broken, np.arange(len(t_ns)))


def _merge(parts: Sequence[CounterReadings]) -> CounterReadings:
    """Every value once, though blocks overlap."""
    row, first = np.unique(np.concatenate([part.row for part in parts]), return_index=True)
    return CounterReadings(
        np.concatenate([part.t_ns for part in parts])[first],
        np.concatenate([part.before_ns for part in parts])[first],
        np.concatenate([part.count_j for part in parts])[first],
        np.concatenate([part.broken for part in parts])[first],
        row,
    )


def _new_values(chunks: Iterable[Columns]) -> Iterator[Columns]:
    """The rows in which the counter differs from the row before."""
    last_ns, last_j = _LONG_AGO_NS, np.nan
    for chunk in chunks:
        t_ns, count_j = chunk["t_ns"], chunk["energy_j"]
        if not len(t_ns):
            continue
        before_ns = np.empty_like(t_ns)
        before_ns[0], before_ns[1:] = last_ns, t_ns[:-1]
        changed = count_j[1:] != count_j[:-1]
        first = count_j[0] != last_j
        last_ns, last_j = t_ns[-1], count_j[-1]
        if not first or not changed.all():
            changed = np.append(first, changed)
            t_ns, before_ns, count_j = t_ns[changed], before_ns[changed], count_j[changed]
        if len(t_ns):
            yield {"t_ns": t_ns, "before_ns": before_ns, "energy_j": count_j}


def _find_broken(t_ns: Ints, count_j: Floats, max_w: float | None, period_ns: float) -> Bools:
    steps = np.diff(count_j)
    if not len(steps):
        return np.zeros(0, bool)
    broken = steps < 0
    max_per_ns = np.inf if max_w is None else _IMPOSSIBLE_FACTOR * max_w / NS_PER_S
    if steps.max() > max_per_ns * period_ns:
        broken |= steps > max_per_ns * (np.diff(t_ns) + period_ns)
    return broken
