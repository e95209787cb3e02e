"""Going through a lane in blocks that show each row with its neighbours.

Memory for what is reckoned of one chunk after the other.

Which readings of a sensor are new: those that differ from the reading before.

Which recorded stream tells a quantity of a device, and which of several is the densest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from joulewise.data import Quantity
from joulewise.store.layout import StreamKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

Columns = dict[str, "NDArray[Any]"]
CHUNK_ROWS: Final = 1 << 18


class ChunkReader(Protocol):
    """What a lane's reader offers (``record.trace.LaneReader``)."""

    @property
    def rows(self) -> int: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    def chunks(self, columns: Sequence[str]) -> Iterator[Columns]: ...


OpenLane = Callable[[str, StreamKind], "ChunkReader | None"]
"""A device's lane by the device's key; None where nothing of it was recorded."""


class ArrayLane:
    """A lane in memory."""

    def __init__(
        self, columns: Mapping[str, NDArray[Any]], *, chunk_rows: int = CHUNK_ROWS
    ) -> None:
        self._columns = dict(columns)
        self._chunk_rows = chunk_rows
        self.columns = tuple(columns)
        self.rows = len(self._columns["t_ns"])

    def chunks(self, columns: Sequence[str]) -> Iterator[Columns]:
        for start in range(0, self.rows, self._chunk_rows):
            part = slice(start, start + self._chunk_rows)
            yield {name: self._columns[name][part] for name in columns}


@dataclass(frozen=True)
class Block:
    """Rows in order; those from ``first`` up to ``end`` have not been in a block before.

    Around them stand up to ``reach`` rows on either side. ``row`` is the number of the first
    row in the whole lane.
    """

    columns: Columns
    row: int
    first: int
    end: int


def blocks(chunks: Iterable[Columns], reach: int) -> Iterator[Block]:
    """Each row once, without copying any but those at the seams of chunks."""
    chunks = iter(chunks)
    first, second = next(chunks, None), next(chunks, None)
    if first is not None and second is None:  # as a rule: no seam, and no work done thrice
        yield Block(first, 0, 0, len(first["t_ns"]))
        return
    held: Columns = {}
    shown = row = 0
    for chunk in chain([each for each in (first, second) if each is not None], chunks):
        rows = len(chunk["t_ns"])
        large = rows >= 4 * reach
        seam = _join(held, _cut(chunk, 0, 2 * reach) if large else chunk)
        before = len(held["t_ns"]) if held else 0
        end = before + reach if large else before + rows - reach
        if end > shown:
            yield Block(seam, row - before, shown, end)
        else:
            end = shown
        if large:
            yield Block(chunk, row, reach, rows - reach)
            held, shown = _cut(chunk, rows - 2 * reach, rows), reach
        else:
            spare = max(end - reach, 0)
            held, shown = _cut(seam, spare, before + rows), end - spare
        row += rows
    if held:
        rows = len(held["t_ns"])
        yield Block(held, row - rows, shown, rows)


def readable(chunks: Iterable[Columns], name: str) -> Iterator[Columns]:
    """The chunks without the rows in which ``name`` could not be read."""
    for chunk in chunks:
        if np.isnan(chunk[name].sum()):
            there = ~np.isnan(chunk[name])
            yield {key: column[there] for key, column in chunk.items()}
        else:
            yield chunk


def near(rows: NDArray[np.intp], size: int, reach: int) -> NDArray[np.bool_]:
    """Which of ``size`` rows stand near one of these."""
    keep = np.zeros(size, bool)
    if 2 * len(rows) * reach <= size:
        found = (rows[:, None] + np.arange(-reach, reach)).reshape(-1)
        keep[found[(found >= 0) & (found < size)]] = True
        return keep
    begin, end = (np.clip(rows + side, 0, size) for side in (-reach, reach))
    steps = np.bincount(begin, minlength=size + 1) - np.bincount(end, minlength=size + 1)
    return np.asarray(np.cumsum(steps[:-1]) > 0)


def _cut(columns: Columns, start: int, end: int) -> Columns:
    return {name: column[start:end] for name, column in columns.items()}


def _join(first: Columns, second: Columns) -> Columns:
    if not first:
        return second
    return {name: np.concatenate([first[name], second[name]]) for name in second}


if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray


class Room:
    """Arrays by name, to be written over: to get fresh ones costs as much as to fill them."""

    def __init__(self) -> None:
        self._kept: dict[str, NDArray[Any]] = {}

    def of(self, name: str, rows: int, dtype: DTypeLike) -> NDArray[Any]:
        """The same memory as before under that name, as far as it is large enough."""
        kept = self._kept.get(name)
        if kept is None or len(kept) < rows or kept.dtype != dtype:
            kept = self._kept[name] = np.empty(rows, dtype)
        return kept[:rows]


if TYPE_CHECKING:
    from numpy.typing import NDArray


def mark_new_values(values: NDArray[Any], last: float = math.nan) -> NDArray[np.bool_]:
    """Which of these readings differ from the last one that could be read before them.

    ``last`` is that of the rows before these, NaN where there is none. The first reading of a
    stream is not new: new values are counted over the time between readings, and before the first
    there is none. So there are never more new values than readings in any time. A reading that
    failed (NaN) is not new, and neither is the old value after it.
    """
    is_new = np.zeros(len(values), bool)
    if not len(values):
        return is_new
    if np.isnan(values.sum(dtype=np.float64)):
        is_read = ~np.isnan(values)
        is_new[is_read] = mark_new_values(values[is_read], last)
        return is_new
    np.not_equal(values[1:], values[:-1], out=is_new[1:])
    is_new[0] = not math.isnan(last) and values[0] != last
    return is_new


def last_reading(values: NDArray[Any], before: float = math.nan) -> float:
    """The last value that could be read, else the one from ``before`` these."""
    if len(values) and not math.isnan(values[-1]):  # as a rule: no search
        return float(values[-1])
    is_read = np.flatnonzero(~np.isnan(values))
    return float(values[is_read[-1]]) if len(is_read) else before


# The driver's own samples: of power, and where they were drained of utilisation and clocks. Each
# has the quantity as its column. They come before polls, which tell the same less often.
_DRIVER: Final = tuple(
    lane for lane in StreamKind if lane.value.startswith(StreamKind.BUFFER.value)
)
_POLLED: Final = (StreamKind.FAST, StreamKind.SLOW)


@dataclass(frozen=True)
class SensorStream:
    """One column of one stream. ``name`` is that of its file: ``gpu0.buffer``."""

    name: str
    quantity: Quantity
    rows: ChunkReader


def sensor_streams(lanes: OpenLane, key: str) -> Iterator[SensorStream]:
    """Every quantity of a device in every stream that has it, the driver's own samples first."""
    known = {quantity.value: quantity for quantity in Quantity}
    for lane in (*_DRIVER, *_POLLED):
        rows = lanes(key, lane)
        for column in rows.columns if rows is not None else ():
            if rows is not None and column in known:
                yield SensorStream(f"{key}{lane.value}", known[column], rows)
