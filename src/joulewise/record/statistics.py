"""How well a stream kept its time, counted while it is recorded."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final

from joulewise.store.arrow_stream import EXTRA_NS, Batch
from joulewise.units import NS_PER_MS, NS_PER_S

_BIN_NS: Final = 50_000  # of the histogram of lateness: percentiles are exact to 0.05 ms (chosen)
_BINS: Final = 2_000  # up to 100 ms (chosen); the largest lateness is stored apart
_ENOUGH: Final = 30  # batches, of about 1 s each, that are counted at once (chosen)


class StreamStatistics:
    """Rows, new values, their rate, and how late they were read.

    Rates are of the rows that were read at deadlines, without the dense readings at the start and
    end of a run. ``value_column`` is the column in which new values are counted. ``period_ns`` is 0
    where rows have times of the driver.
    """

    def __init__(self, period_ns: int, value_column: str) -> None:
        self._period_ns = period_ns
        self._value_column = value_column
        self._waiting: list[Batch] = []
        self.unavailable = ""  # why nothing can be read
        self.rows = 0
        self.missed = 0
        self.new_values = 0
        self._last = math.nan
        self._last_due = math.nan
        self._changes = 0
        self._late = [0] * (_BINS + 1)
        self._latest_ns = 0
        self._first_ns = self._second_ns = self._newest_ns = 0
        self._in_second = 0
        self._seconds = 0
        self._sum = self._squares = 0

    def add(self, batch: Batch) -> None:
        """Add rows; they are counted later, because many at once cost less."""
        self._waiting.append(batch)
        if len(self._waiting) >= _ENOUGH:
            self._count_all()

    def _count_all(self) -> None:
        for batch in self._waiting:
            self._count(batch)
        self._waiting.clear()

    def _count(self, batch: Batch) -> None:
        """Count rows, and values of one column that differ from the one before."""
        self.rows += len(batch)
        values: Sequence[float] = batch.values[batch.columns.index(self._value_column)]
        for value in values:
            if value != self._last and not math.isnan(value):
                self.new_values += 1
                self._last = value
        times_ns: Sequence[int] = batch.values[0]
        if self._period_ns and EXTRA_NS in batch.late_ns:  # one lateness for each row
            due = [i for i, late_ns in enumerate(batch.late_ns) if late_ns != EXTRA_NS]
            times_ns, values = [times_ns[i] for i in due], [values[i] for i in due]
        if times_ns:
            self._count_seconds(times_ns)
            self._count_changes(values)
        for late_ns in batch.late_ns:
            if late_ns != EXTRA_NS:
                self._late[min(late_ns // _BIN_NS, _BINS)] += 1
        self._latest_ns = max(self._latest_ns, *batch.late_ns, 0)

    def _count_changes(self, values: Sequence[float]) -> None:
        """Count changes from one row to the next; the very first value is no change."""
        for value in values:
            if value != self._last_due and not math.isnan(value):
                self._changes += not math.isnan(self._last_due)
                self._last_due = value

    def _count_seconds(self, times_ns: Sequence[int]) -> None:
        """Count rows in each whole second, for the mean and the spread of the rate."""
        if not self._first_ns:
            self._first_ns = times_ns[0]
            # Halfway between deadlines, so that a row that is a little late stays in its second.
            self._second_ns = times_ns[0] - self._period_ns // 2
        self._newest_ns = times_ns[-1]
        counted = 0
        while True:
            ends = bisect_left(times_ns, self._second_ns + NS_PER_S, counted)
            self._in_second += ends - counted
            counted = ends
            if counted == len(times_ns):
                return
            self._seconds += 1
            self._sum += self._in_second
            self._squares += self._in_second**2
            self._in_second = 0
            self._second_ns += NS_PER_S
            empty = (times_ns[counted] - self._second_ns) // NS_PER_S
            self._seconds += empty
            self._second_ns += empty * NS_PER_S

    def summary(self) -> dict[str, Any]:
        """The statistics for run.json; null where there are too few rows to say."""
        self._count_all()
        mean, cv = self._rate()
        summary = {
            "rows": self.rows,
            "new_values": self.new_values,
            "effective_hz": _round(self._effective_hz()),
            "rate_hz": _round(mean),
            "rate_cv": _round(cv),
            "missed": self.missed,
            "late_p50_ms": _round(self._percentile_ns(0.50) / NS_PER_MS),
            "late_p99_ms": _round(self._percentile_ns(0.99) / NS_PER_MS),
            "late_max_ms": _round(self._latest_ns / NS_PER_MS),
        }
        return {**summary, "unavailable": self.unavailable} if self.unavailable else summary

    def _effective_hz(self) -> float:
        """New values a second, never more than readings."""
        duration_s = (self._newest_ns - self._first_ns) / NS_PER_S
        if not duration_s:
            return math.nan
        # A first row that was late makes the time shorter than its periods.
        most_hz = NS_PER_S / self._period_ns if self._period_ns else math.inf
        return min(self._changes / duration_s, most_hz)

    def _rate(self) -> tuple[float, float]:
        """Rows in a second: the mean, and the coefficient of variation."""
        if not self._seconds:
            return math.nan, math.nan
        mean = self._sum / self._seconds
        variance = max(0.0, self._squares / self._seconds - mean**2)
        return mean, math.sqrt(variance) / mean if mean and self._seconds > 1 else math.nan

    def _percentile_ns(self, share: float) -> float:
        """A percentile of the lateness, as the upper edge of its bin."""
        rank = share * sum(self._late)
        seen = 0
        for index, count in enumerate(self._late):
            seen += count
            if count and seen >= rank:
                upper_ns = (index + 1) * _BIN_NS if index < _BINS else self._latest_ns
                return min(upper_ns, self._latest_ns)
        return math.nan


def _round(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)
