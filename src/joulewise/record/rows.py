"""Rows of a lane while they wait to be written: a typed array a column, nothing an object a row."""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

TIME: Final = "t_ns"
# NVML tells milliwatts. A float32 holds each of them apart up to 8 kW (its steps there are 0.5 mW),
# so that it gives back what the driver said, in half the room.
_SINGLE: Final = "f"
_DOUBLE: Final = "d"
_TYPECODES: Final = {
    TIME: "q",
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
    """Some rows, column by column; NaN stands for what could not be read."""

    columns: Sequence[str]
    values: Sequence[array[Any]]
    gaps: bool

    def __len__(self) -> int:
        return len(self.values[0])


class Rows:
    """What one thread adds and another takes away."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = (TIME, *columns)
        self._lock = threading.Lock()
        self._values, self._appends = self._fresh()
        self._gaps = False

    def add(self, t_ns: int, *values: float) -> None:
        with self._lock:
            for append, value in zip(self._appends, (t_ns, *values), strict=True):
                append(value)
            if not self._gaps:
                self._gaps = any(map(math.isnan, values))

    def take(self) -> Batch | None:
        """All rows so far, which are then no longer here; None where there are none."""
        with self._lock:
            if not self._values[0]:
                return None
            batch = Batch(self.columns, self._values, self._gaps)
            self._values, self._appends = self._fresh()
            self._gaps = False
        return batch

    def _fresh(self) -> tuple[list[array[Any]], list[Any]]:
        values: list[array[Any]] = [array(typecode(column)) for column in self.columns]
        return values, [each.append for each in values]
