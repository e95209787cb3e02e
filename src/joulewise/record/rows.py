"""Rows of a lane while they wait to be written: a typed array a column, nothing an object a row."""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

TIME: Final = "t_ns"
# NVML tells milliwatts. A float32 holds each of them apart up to 8 kW (its steps there are 0.5 mW),
# so that it gives back what the driver said, in half the room.
_SINGLE: Final = "f"
_DOUBLE: Final = "d"
_WHOLE: Final = "q"
_TYPECODES: Final = {
    TIME: _WHOLE,
    # A counter's joules reach 1e9 with millijoules behind the point; bytes and bits are whole.
    "energy_j": _DOUBLE,
    "memory_used_b": _DOUBLE,
    "throttle_reasons": _DOUBLE,
}


def typecode(column: str) -> str:
    """How a column is held, in the letters of :mod:`array`: q, d or f."""
    return _TYPECODES.get(column, _SINGLE)


@dataclass(frozen=True)
class Batch:
    """Some rows, column by column; NaN stands for what could not be read.

    ``late_ns`` tells of each row how long after its deadline it was asked for; it is not stored.
    """

    columns: tuple[str, ...]
    values: Sequence[array[Any]]
    late_ns: array[int] = field(default_factory=lambda: array(_WHOLE))

    def __len__(self) -> int:
        return len(self.values[0])

    def has_gaps(self) -> bool:
        return any(math.isnan(sum(values)) for values in self.values[1:])


class Rows:
    """What one thread adds and another takes away."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = (TIME, *columns)
        self._lock = threading.Lock()
        self._fresh()

    def add(self, t_ns: int, late_ns: int, values: Sequence[float]) -> None:
        with self._lock:
            self._times.append(t_ns)
            self._late.append(late_ns)
            for column, value in zip(self._values, values, strict=True):
                column.append(value)

    def extend(self, t_ns: Sequence[int], late_ns: int, *values: Sequence[float]) -> None:
        """Several rows at once, column by column, all as late."""
        with self._lock:
            self._times.extend(t_ns)
            self._late.extend([late_ns] * len(t_ns))
            for column, several in zip(self._values, values, strict=True):
                column.extend(several)

    def take(self) -> Batch | None:
        """All rows so far, which are then no longer here; None where there are none."""
        with self._lock:
            if not self._times:
                return None
            batch = Batch(self.columns, (self._times, *self._values), self._late)
            self._fresh()
        return batch

    def _fresh(self) -> None:
        self._times: array[int] = array(_WHOLE)
        self._late: array[int] = array(_WHOLE)
        self._values: tuple[array[float], ...] = tuple(
            array(typecode(column)) for column in self.columns[1:]
        )
