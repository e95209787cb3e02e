"""Rows of a lane on their way to its file."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

TIME: Final = "t_ns"
_LATE: Final = "late_ns"
EXTRA_NS: Final = -1
"""Stands for the lateness of a row that no deadline asked for."""
# NVML tells milliwatts. A float32 holds each of them apart up to 8 kW (its steps there are 0.5 mW),
# so that it gives back what the driver said, in half the room.
_SINGLE: Final = "f"
_DOUBLE: Final = "d"
_WHOLE: Final = "q"
_TYPECODES: Final = {
    TIME: _WHOLE,
    _LATE: _WHOLE,
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

    ``late_ns`` tells how long after its deadline each row, or each piece of rows, was asked for, or
    is ``EXTRA_NS``; it is not stored.
    """

    columns: tuple[str, ...]
    values: Sequence[array[Any]]
    late_ns: array[int] = field(default_factory=lambda: array(_WHOLE))

    def __len__(self) -> int:
        return len(self.values[0])

    def has_gaps(self) -> bool:
        return any(math.isnan(sum(values)) for values in self.values[1:])


class Rows:
    """What one thread adds and another takes away, without a lock between them."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = (TIME, *columns)
        self._typecodes = tuple(typecode(column) for column in (*self.columns, _LATE))
        # Sorting values into columns is for whoever takes them: who adds them has a deadline.
        self._waiting: deque[tuple[float, ...]] = deque()

    def add(self, t_ns: int, late_ns: int, values: Sequence[float]) -> None:
        self._waiting.append((t_ns, *values, late_ns))

    def take(self) -> Batch | None:
        """All rows so far, which are then no longer here; None where there are none."""
        rows = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not rows:
            return None
        *values, late_ns = map(array, self._typecodes, zip(*rows, strict=True))
        return Batch(self.columns, values, late_ns)


class Pieces:
    """The same for rows that come column by column, many at a time."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = (TIME, *columns)
        self._typecodes = tuple(map(typecode, self.columns))
        self._waiting: deque[tuple[int, tuple[Sequence[float], ...]]] = deque()

    def add(self, late_ns: int, *columns: Sequence[float]) -> None:
        """Rows that were asked for at once, so late."""
        if columns[0]:
            self._waiting.append((late_ns, columns))

    def take(self) -> Batch | None:
        pieces = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not pieces:
            return None
        joined = map(chain.from_iterable, zip(*(columns for _, columns in pieces), strict=True))
        values = tuple(map(array, self._typecodes, joined))
        return Batch(self.columns, values, array(_WHOLE, [late_ns for late_ns, _ in pieces]))
