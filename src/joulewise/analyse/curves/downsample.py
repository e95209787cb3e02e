"""Downsampling: a column as few points as a figure has pixels, with every peak still in it.

A pixel shows the lowest, the highest and the mean reading in its time (min-max downsampling).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from joulewise.analyse.chunks import ChunkReader, Columns, Floats, Ints, typical_step_ns
from joulewise.analyse.time_intervals import TimeInterval
from joulewise.units import NS_PER_S

# Pixels for each row, so that nearly every pixel has one although rows come late now and then.
_PIXELS_PER_ROW: Final = 0.9


def pixel_edges(stream: ChunkReader, interval: TimeInterval, pixels: int) -> Ints:
    """The edges of so many pixels, or fewer, so that as a rule each of them has a row."""
    step_ns = typical_step_ns(stream) or interval.time_ns
    rows = min(stream.rows, interval.time_ns / max(step_ns, 1.0))
    return even_edges(interval, min(pixels, int(_PIXELS_PER_ROW * rows)))


def even_edges(interval: TimeInterval, pieces: int) -> Ints:
    """The edges of so many pieces of one length; fewer where they would be empty."""
    pieces = int(np.clip(interval.time_ns, 1, max(pieces, 1)))
    steps = np.arange(pieces + 1)
    # Not linspace: a long run's nanoseconds have more digits than a float.
    whole, rest = divmod(max(interval.time_ns, 1), pieces)
    return np.asarray(interval.start_ns + steps * whole + steps * rest // pieces)


@dataclass(frozen=True)
class Envelope:
    """Lowest, highest and mean reading between neighbours of ``edges_ns``; NaN where none was.

    ``count`` is how many there were.
    """

    edges_ns: Ints
    low: Floats
    high: Floats
    mean: Floats
    count: Ints

    def middle_s(self, origin_ns: int) -> Floats:
        """The middle of each pixel, in seconds from ``origin_ns``."""
        starts_ns = self.edges_ns[:-1] - origin_ns
        return np.asarray((starts_ns + np.diff(self.edges_ns) / 2) / NS_PER_S)


class EnvelopeBuilder:
    """Builds the envelope of one column, chunk by chunk.

    ``bits`` makes the column one of 0 and 1: whether any of those bits is set in it.
    """

    def __init__(self, column: str, edges_ns: Ints, bits: int = 0) -> None:
        pixels = len(edges_ns) - 1
        self.columns = (column,)
        self._edges_ns = edges_ns
        self._bits = bits
        self._low = np.full(pixels, np.inf)
        self._high = np.full(pixels, -np.inf)
        self._sum = np.zeros(pixels)
        self._count = np.zeros(pixels, np.int64)

    def take(self, chunk: Columns) -> None:
        t_ns, values = chunk["t_ns"], chunk[self.columns[0]]
        if np.isnan(values.sum(dtype=np.float64)):
            is_read = ~np.isnan(values)
            t_ns, values = t_ns[is_read], values[is_read]
        cuts = np.searchsorted(t_ns, self._edges_ns)
        cuts[-1] = np.searchsorted(t_ns, self._edges_ns[-1], "right")
        counts = np.diff(cuts)
        filled = np.flatnonzero(counts)
        if not len(filled):
            return
        # Between two filled pixels lie only empty ones: each part ends where the next begins.
        starts, values = cuts[filled], values[: cuts[-1]]
        if self._bits:
            values = (values.astype(np.int64) & self._bits != 0).astype(np.float32)
        lows, highs = (ufunc.reduceat(values, starts) for ufunc in (np.minimum, np.maximum))
        self._low[filled] = np.minimum(self._low[filled], lows)
        self._high[filled] = np.maximum(self._high[filled], highs)
        self._sum[filled] += np.add.reduceat(values, starts, dtype=np.float64)
        self._count += counts

    def envelope(self) -> Envelope:
        empty = self._count == 0
        mean = self._sum / np.maximum(self._count, 1)
        low, high, mean = (np.where(empty, np.nan, v) for v in (self._low, self._high, mean))
        return Envelope(self._edges_ns, low, high, mean, self._count)
