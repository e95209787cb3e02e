"""What is counted of rows on their way to the disk: how well a stream kept its time, joules so far.

Counting many rows at once costs less, so both keep what they get until it is much, or asked for.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from joulewise.data import Quantity
from joulewise.store.arrow_stream import EXTRA_NS, Batch
from joulewise.units import NS_PER_MS, NS_PER_S

_BIN_NS: Final = 50_000  # of the histogram of lateness: percentiles are exact to 0.05 ms (chosen)
_BINS: Final = 2_000  # up to 100 ms (chosen); the largest lateness is stored apart
_ENOUGH: Final = 30  # batches, of about 1 s each, that are counted at once (chosen)
# The newest power is extrapolated for no longer than this. Chosen: models are read once a second
# beside sensors, and the writer may be a little late.
_HELD_S: Final = 1.1


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


@dataclass(frozen=True)
class EnergySoFar:
    """Energy and time since the start of counting; ``interval_s`` is between the last readings."""

    energy_j: float
    time_s: float
    interval_s: float
    quantity: Quantity


class RunningTotal:
    """Adds up the energy of one device: steps of its counter, else power times time.

    ``since_ns`` is from when on it counts (CLOCK_MONOTONIC).
    """

    def __init__(self, since_ns: int = 0) -> None:
        self._lock = threading.Lock()
        self._since_ns = since_ns
        self._waiting: list[Batch] = []
        self._last: tuple[int, float] | None = None
        self._sum: EnergySoFar | None = None
        self._power_w: float | None = None

    def begin(self, t_ns: int) -> None:
        """Count from this time on."""
        with self._lock:
            self._add_all()
            self._since_ns, self._sum = t_ns, None

    @property
    def since_ns(self) -> int:
        """From when on it counts (CLOCK_MONOTONIC)."""
        return self._since_ns

    @property
    def sum(self) -> EnergySoFar | None:
        """The energy so far; None where the device was not read twice yet."""
        with self._lock:
            self._add_all()
            return self._sum

    @property
    def power_w(self) -> float | None:
        """The newest power; None where it was not read yet."""
        with self._lock:
            self._add_all()
            return self._power_w

    def energy_at(self, now_ns: int) -> float | None:
        """Joules up to now, with the newest power extrapolated since the last reading.

        For no longer than two readings are usually apart: after that nothing is known.
        """
        with self._lock:
            self._add_all()
            if self._power_w is None or self._last is None:
                return None
            since_s = (now_ns - max(self._last[0], self._since_ns)) / NS_PER_S
            limit_s = max(self._sum.interval_s, _HELD_S) if self._sum else _HELD_S
            energy_j = self._sum.energy_j if self._sum else 0.0
            return energy_j + self._power_w * min(max(0.0, since_s), limit_s)

    def add(self, batch: Batch) -> None:
        """Add rows; they are added up when the total is needed, or there are many."""
        with self._lock:
            self._waiting.append(batch)
            if len(self._waiting) >= _ENOUGH:
                self._add_all()

    def _add_all(self) -> None:
        for batch in self._waiting:
            self._add(batch)
        self._waiting.clear()

    def _add(self, batch: Batch) -> None:
        quantity = Quantity.ENERGY if Quantity.ENERGY.value in batch.columns else Quantity.POWER
        values = batch.values[batch.columns.index(quantity.value)]
        energy_j, interval_s, last = 0.0, 0.0, self._last
        power_w = self._power_w
        for t_ns, value in zip(batch.values[0], values, strict=True):
            if math.isnan(value):
                continue
            if last is not None and t_ns >= self._since_ns:
                interval_s = (t_ns - last[0]) / NS_PER_S
                # After a reset a counter shows less than before: that step is lost.
                grown_j = max(value - last[1], 0.0)
                step_j = grown_j if quantity is Quantity.ENERGY else last[1] * interval_s
                energy_j += step_j
                power_w = step_j / interval_s if interval_s else power_w
            last = (t_ns, value)
        self._last = last
        sensor_w = _newest_power_w(batch)
        self._power_w = power_w if sensor_w is None else sensor_w
        if last is not None and interval_s:
            before_j = self._sum.energy_j if self._sum else 0.0
            time_s = (last[0] - self._since_ns) / NS_PER_S
            self._sum = EnergySoFar(before_j + energy_j, time_s, interval_s, quantity)


def _newest_power_w(batch: Batch) -> float | None:
    """The last reading of power in a batch; None where there is none."""
    if Quantity.POWER.value not in batch.columns:
        return None
    newest_first_w = reversed(batch.values[batch.columns.index(Quantity.POWER.value)])
    return next((power_w for power_w in newest_first_w if not math.isnan(power_w)), None)
