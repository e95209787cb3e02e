"""Streams of readings: going through one chunk by chunk, and choosing among several.

A *stream* is the recorded file of one device and one kind (polled, sampled by the driver, slow).
It may hold weeks of readings, so it is never loaded as a whole: a reader gives chunks of columns,
in the order of time. Here are the helpers that every pass over a stream needs:

- ``blocks``: chunks that show each row with its neighbours
- ``readable``, ``mark_new_values``, ``last_reading``: which readings there are, and which are new
- ``typical_step_ns``, ``bounds_ns``: how dense a stream is, and from when to when it goes
- ``sensor_streams``: which streams tell a quantity of a device

Also the names for kinds of numpy arrays that signatures of the analysis use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from joulewise.data import Quantity
from joulewise.store.layout import StreamKind

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Indices = NDArray[np.intp]
Bools = NDArray[np.bool_]
Array = NDArray[Any]
"""Of any type: columns are read in the type in which they were recorded."""


Columns = dict[str, Array]
# Rows of a chunk in memory: 2 MiB a column of 8-byte numbers. Chosen; it bounds memory, not time.
CHUNK_ROWS: Final = 1 << 18
# Rows by which the typical step of a stream is judged: minutes of polls (chosen).
_STEP_ROWS: Final = 1 << 12


class ChunkReader(Protocol):
    """What reads one stream (``store.trace.StreamReader``): rows in the order of time."""

    @property
    def rows(self) -> int: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    def chunks(self, columns: Sequence[str]) -> Iterator[Columns]: ...


OpenStream = Callable[[str, StreamKind], "ChunkReader | None"]
"""Opens a stream by the key of its device; None where nothing of it was recorded."""


class ArrayStream:
    """A stream in memory."""

    def __init__(self, columns: Mapping[str, Array], *, chunk_rows: int = CHUNK_ROWS) -> None:
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

    Around them are up to ``reach`` rows on either side. ``row`` is the number of the first
    row in the whole stream.
    """

    columns: Columns
    row: int
    first: int
    end: int


def blocks(chunks: Iterable[Columns], reach: int) -> Iterator[Block]:
    """Every row once, with ``reach`` neighbours; only rows at the seams of chunks are copied."""
    chunks = iter(chunks)
    first, second = next(chunks, None), next(chunks, None)
    if first is not None and second is None:  # as a rule: no seam, and no row is copied
        yield Block(first, 0, 0, len(first["t_ns"]))
        return
    held: Columns = {}  # the last rows, some of which have been ``shown`` in a block
    shown = row = 0
    for chunk in chain([given for given in (first, second) if given is not None], chunks):
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


def _cut(columns: Columns, start: int, end: int) -> Columns:
    return {name: column[start:end] for name, column in columns.items()}


def _join(first: Columns, second: Columns) -> Columns:
    if not first:
        return second
    return {name: np.concatenate([first[name], second[name]]) for name in second}


def readable(chunks: Iterable[Columns], name: str) -> Iterator[Columns]:
    """The chunks without the rows in which ``name`` could not be read (NaN)."""
    for chunk in chunks:
        if np.isnan(chunk[name].sum()):
            is_read = ~np.isnan(chunk[name])
            yield {key: column[is_read] for key, column in chunk.items()}
        else:
            yield chunk


def near(rows: Indices, size: int, reach: int) -> Bools:
    """Which of ``size`` rows are within ``reach`` of one of these."""
    keep = np.zeros(size, bool)
    if 2 * len(rows) * reach <= size:
        around = (rows[:, None] + np.arange(-reach, reach)).reshape(-1)
        keep[around[(around >= 0) & (around < size)]] = True
        return keep
    # Many rows: +1 where a neighbourhood begins, -1 where it ends, and the running sum of these.
    begin, end = (np.clip(rows + side, 0, size) for side in (-reach, reach))
    steps = np.bincount(begin, minlength=size + 1) - np.bincount(end, minlength=size + 1)
    return np.asarray(np.cumsum(steps[:-1]) > 0)


def typical_step_ns(stream: ChunkReader) -> float:
    """The time between rows, by the first ones: a weighted median; 0 where there are no two rows.

    Each step has its length as its weight, since a stream is read densely for a moment where a run
    begins and ends, and those rows are many and short.
    """
    parts: list[Ints] = []
    for chunk in stream.chunks(("t_ns",)):
        parts.append(chunk["t_ns"][:_STEP_ROWS])
        if sum(map(len, parts)) >= _STEP_ROWS:
            break
    steps = np.sort(np.diff(np.concatenate(parts)[:_STEP_ROWS])) if parts else np.empty(0)
    steps = steps[steps > 0]  # a damaged file has times that go back
    if not len(steps):
        return 0.0
    up_to = np.cumsum(steps)
    return float(steps[np.searchsorted(up_to, up_to[-1] / 2)])


def bounds_ns(stream: ChunkReader) -> tuple[int, int]:
    """The times of the first and the last row; both 0 where there is none."""
    first_ns = last_ns = None
    for chunk in stream.chunks(("t_ns",)):
        if len(chunk["t_ns"]):
            first_ns = int(chunk["t_ns"][0]) if first_ns is None else first_ns
            last_ns = int(chunk["t_ns"][-1])
    return first_ns or 0, last_ns or 0


class ScratchArrays:
    """Arrays by name that are used again: to allocate one takes as long as to fill it."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}

    def get(self, name: str, rows: int, dtype: DTypeLike) -> Array:
        """An uninitialised array, in the memory that ``name`` had before if it is large enough."""
        array = self._arrays.get(name)
        if array is None or len(array) < rows or array.dtype != dtype:
            array = self._arrays[name] = np.empty(rows, dtype)
        return array[:rows]


def mark_new_values(values: Array, last: float = math.nan) -> Bools:
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


def last_reading(values: Array, before: float = math.nan) -> float:
    """The last value that could be read, else the one from ``before`` these."""
    if len(values) and not math.isnan(values[-1]):  # as a rule: no search
        return float(values[-1])
    is_read = np.flatnonzero(~np.isnan(values))
    return float(values[is_read[-1]]) if len(is_read) else before


# The driver's own samples: of power, and where they were drained of utilisation and clocks. Each
# has the quantity as its column. They come before polls, which tell the same less often.
_DRIVER: Final = tuple(
    kind for kind in StreamKind if kind.value.startswith(StreamKind.BUFFER.value)
)
_POLLED: Final = (StreamKind.FAST, StreamKind.SLOW)


@dataclass(frozen=True)
class SensorStream:
    """One column of one stream. ``name`` is that of its file: ``gpu0.buffer``."""

    name: str
    quantity: Quantity
    rows: ChunkReader


def sensor_streams(open_stream: OpenStream, key: str) -> Iterator[SensorStream]:
    """Every quantity of a device in every stream that has it, the driver's own samples first."""
    known = {quantity.value: quantity for quantity in Quantity}
    for kind in (*_DRIVER, *_POLLED):
        rows = open_stream(key, kind)
        for column in rows.columns if rows is not None else ():
            if rows is not None and column in known:
                yield SensorStream(f"{key}{kind.value}", known[column], rows)


class Viewer(Protocol):
    """Takes the rows of a stream in their order, some 100,000 at a time."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    def take(self, chunk: Columns) -> None: ...


def show(stream: ChunkReader, *viewers: Viewer) -> None:
    """Give every row to every viewer, decoded once."""
    wanted = dict.fromkeys(("t_ns", *(name for viewer in viewers for name in viewer.columns)))
    for chunk in stream.chunks([name for name in wanted if name in stream.columns]):
        for viewer in viewers:
            viewer.take(chunk)


class SharedStream:
    """A stream whose viewers get its chunks along with the first who reads all their columns.

    So nothing is decoded twice. ``finish`` gives the chunks to them where there was no such reader.
    """

    def __init__(self, stream: ChunkReader, *viewers: Viewer) -> None:
        self._stream = stream
        self._viewers = viewers
        self.rows, self.columns = stream.rows, stream.columns

    def chunks(self, columns: Sequence[str]) -> Iterator[Columns]:
        wanted = {name for viewer in self._viewers for name in viewer.columns}
        viewers = self._viewers if wanted <= set(columns) else ()
        self._viewers = () if viewers else self._viewers
        for chunk in self._stream.chunks(columns):
            for viewer in viewers:
                viewer.take(chunk)
            yield chunk

    def finish(self) -> None:
        if self._viewers:
            show(self._stream, *self._viewers)
