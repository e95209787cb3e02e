"""How evenly a stream was sampled (jitter), and how many of its rows had a new value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from joulewise.analyse.chunks import (
    Array,
    ChunkReader,
    Columns,
    Floats,
    Ints,
    ScratchArrays,
    last_reading,
    mark_new_values,
    typical_step_ns,
)
from joulewise.analyse.curves.downsample import even_edges
from joulewise.analyse.time_intervals import TimeInterval
from joulewise.units import NS_PER_S

# Bins of the histogram of intervals; what is longer is counted apart (chosen for a narrow figure).
_BINS: Final = 90
# The histogram goes up to so many typical intervals, and one of these is the middle of a bin.
_MAX_INTERVALS: Final = 3.0
# The rate over time has at most so many points, of so many rows or more each: with fewer the rate
# of a piece would be off by a row more or less, 5 % (chosen).
_MAX_PIECES: Final = 200
_PIECE_ROWS: Final = 20


@dataclass(frozen=True)
class Sampling:
    """How the rows in one interval of time were sampled.

    ``rate_hz`` is rows a second, ``cv`` the standard deviation of the intervals between them over
    their mean, ``sigma_hz`` the same in hertz. ``effective_hz`` is new values a second, between
    the first row and the last: a sensor that is polled more often than it updates repeats itself.
    ``histogram`` counts intervals between neighbours of ``interval_edges_s``, and ``longer`` those
    beyond. ``course_hz`` and ``course_effective_hz`` are the same rates in pieces of one length,
    between neighbours of ``edges_ns``.
    """

    rows: int
    rate_hz: float
    sigma_hz: float
    cv: float
    effective_hz: float
    longest_s: float
    interval_edges_s: Floats
    histogram: Ints
    longer: int
    edges_ns: Ints
    course_hz: Floats
    course_effective_hz: Floats


class Intervals:
    """Collects the intervals between rows of a stream, and whether ``column`` changed in them."""

    def __init__(self, stream: ChunkReader, column: str, stretch: TimeInterval) -> None:
        self.columns = (column,)
        self._scratch = ScratchArrays()
        self._usual_ns = max(typical_step_ns(stream), 1.0)
        self._bin_ns = max(_MAX_INTERVALS * self._usual_ns / _BINS, 1.0)
        expected = min(stream.rows, stretch.time_ns / self._usual_ns)
        self._edges_ns = even_edges(stretch, min(_MAX_PIECES, int(expected / _PIECE_ROWS)))
        self._rows, self._news = np.zeros((2, len(self._edges_ns) - 1), np.int64)
        self._histogram = np.zeros(_BINS + 1, np.int64)
        self._apart_ns, self._squares_ns2 = 0.0, 0.0
        self._longest_ns = 0
        self._first_ns: int | None = None
        self._last_ns, self._last = 0, math.nan

    def take(self, chunk: Columns) -> None:
        all_ns = chunk["t_ns"]
        first = np.searchsorted(all_ns, self._edges_ns[0])
        end = np.searchsorted(all_ns, self._edges_ns[-1], "right")
        t_ns, values = all_ns[first:end], chunk[self.columns[0]][first:end]
        if not len(t_ns):
            return
        self._count(t_ns, mark_new_values(values, self._last).view(np.int8))
        steps_ns = self._scratch.get("steps", len(t_ns), np.int64)
        steps_ns[0] = t_ns[0] - self._last_ns
        np.subtract(t_ns[1:], t_ns[:-1], out=steps_ns[1:])
        if self._first_ns is None:
            self._first_ns, steps_ns = int(t_ns[0]), steps_ns[1:]
        if len(steps_ns):
            self._add(steps_ns)
        self._last_ns, self._last = int(t_ns[-1]), last_reading(values, self._last)

    def _count(self, t_ns: Ints, changed: Array) -> None:
        cuts = np.searchsorted(t_ns, self._edges_ns)
        cuts[-1] = len(t_ns)
        counts = np.diff(cuts)
        filled = np.flatnonzero(counts)
        self._rows += counts
        self._news[filled] += np.add.reduceat(changed, cuts[filled], dtype=np.int64)

    def _add(self, steps_ns: Ints) -> None:
        self._longest_ns = max(self._longest_ns, int(steps_ns.max()))
        apart_ns, places = (
            self._scratch.get(name, len(steps_ns), np.float64) for name in ("apart", "places")
        )
        np.subtract(steps_ns, self._usual_ns, out=apart_ns)
        self._apart_ns += float(apart_ns.sum())
        np.multiply(apart_ns, 1 / self._bin_ns, out=places)
        places += self._usual_ns / self._bin_ns + 0.5
        np.minimum(places, _BINS, out=places)
        np.copyto(steps_ns, places, casting="unsafe")
        self._histogram += np.bincount(steps_ns, minlength=_BINS + 1)
        self._squares_ns2 += float(np.square(apart_ns, out=apart_ns).sum())

    def sampling(self) -> Sampling | None:
        """None of fewer than three rows: two intervals are the least that can differ."""
        intervals = int(self._histogram.sum())
        time_ns = self._last_ns - (self._first_ns or 0)
        if intervals < 2 or time_ns <= 0:
            return None
        apart_ns = self._apart_ns / intervals
        variance_ns2 = (self._squares_ns2 - intervals * apart_ns**2) / (intervals - 1)
        mean_ns = time_ns / intervals
        cv, rate_hz = math.sqrt(max(variance_ns2, 0.0)) / mean_ns, NS_PER_S / mean_ns
        piece_s = np.diff(self._edges_ns) / NS_PER_S
        return Sampling(
            rows=intervals + 1,
            rate_hz=rate_hz,
            sigma_hz=cv * rate_hz,
            cv=cv,
            effective_hz=int(self._news.sum()) / intervals * rate_hz,
            longest_s=self._longest_ns / NS_PER_S,
            interval_edges_s=np.maximum(np.arange(_BINS + 1) - 0.5, 0) * self._bin_ns / NS_PER_S,
            histogram=self._histogram[:_BINS],
            longer=int(self._histogram[_BINS]),
            edges_ns=self._edges_ns,
            course_hz=self._rows / piece_s,
            course_effective_hz=self._news / piece_s,
        )
