"""How well a lane kept its time, counted as it goes and kept in a few numbers."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final

from joulewise.store.arrow_stream import EXTRA_NS, Batch
from joulewise.units import NS_PER_MS, NS_PER_S

_BIN_NS: Final = 50_000
_ENOUGH: Final = 30  # batches
_BINS: Final = 2_000  # up to 100 ms; the largest is kept apart


class StreamStatistics:
    """Rows, new values, their rate, and how late they were asked for.

    Rates are those of the rows that deadlines asked for: dense readings at the edges of a run say
    nothing of how often it was read.
    """

    def __init__(self, period_ns: int, news: str) -> None:
        self._period_ns = period_ns
        self._news = news
        self._waiting: list[Batch] = []
        self.unavailable = ""  # why nothing can be read, where a lane says so itself
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
        """Some more rows. They are counted when there are more: little by little costs more."""
        self._waiting.append(batch)
        if len(self._waiting) >= _ENOUGH:
            self._count_all()

    def _count_all(self) -> None:
        for batch in self._waiting:
            self._count(batch)
        self._waiting.clear()

    def _count(self, batch: Batch) -> None:
        """The values of one column are looked at for news: a repeat is none."""
        self.rows += len(batch)
        values: Sequence[float] = batch.values[batch.columns.index(self._news)]
        for value in values:
            if value != self._last and not math.isnan(value):
                self.new_values += 1
                self._last = value
        times_ns: Sequence[int] = batch.values[0]
        if self._period_ns and EXTRA_NS in batch.late_ns:  # a lateness for each row
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
        """From one row to the next; the first of all is none, since no time has passed."""
        for value in values:
            if value != self._last_due and not math.isnan(value):
                self._changes += not math.isnan(self._last_due)
                self._last_due = value

    def _count_seconds(self, times_ns: Sequence[int]) -> None:
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
        """For run.json. What cannot be said yet is null."""
        self._count_all()
        mean, cv = self._rate()
        summary = {
            "rows": self.rows,
            "new_values": self.new_values,
            "effective_hz": _said(self._effective_hz()),
            "rate_hz": _said(mean),
            "rate_cv": _said(cv),
            "missed": self.missed,
            "late_p50_ms": _said(self._percentile_ns(0.50) / NS_PER_MS),
            "late_p99_ms": _said(self._percentile_ns(0.99) / NS_PER_MS),
            "late_max_ms": _said(self._latest_ns / NS_PER_MS),
        }
        return {**summary, "unavailable": self.unavailable} if self.unavailable else summary

    def _effective_hz(self) -> float:
        """New values a second, which are never more than readings."""
        lasted_s = (self._newest_ns - self._first_ns) / NS_PER_S
        if not lasted_s:
            return math.nan
        # A first row that was late makes the time shorter than its periods.
        most_hz = NS_PER_S / self._period_ns if self._period_ns else math.inf
        return min(self._changes / lasted_s, most_hz)

    def _rate(self) -> tuple[float, float]:
        """Rows in a second: their mean, and their standard deviation as a share of it."""
        if not self._seconds:
            return math.nan, math.nan
        mean = self._sum / self._seconds
        variance = max(0.0, self._squares / self._seconds - mean**2)
        return mean, math.sqrt(variance) / mean if mean and self._seconds > 1 else math.nan

    def _percentile_ns(self, share: float) -> float:
        """The upper edge of the bin that it falls into."""
        wanted = share * sum(self._late)
        seen = 0
        for index, count in enumerate(self._late):
            seen += count
            if count and seen >= wanted:
                return (
                    min((index + 1) * _BIN_NS, self._latest_ns)
                    if index < _BINS
                    else self._latest_ns
                )
        return math.nan


def _said(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)
