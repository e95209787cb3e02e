"""A device's stream while it is recorded: an Arrow IPC stream that only grows.

It is a schema and then batches, each a message of its own. A reader takes whole messages until
there are no more; half a message at the end is ignored. So what was written stays readable however
the writer ends. Rows wait in a ``RowBuffer`` or ``ColumnBuffer`` until the writer takes them.
"""

from __future__ import annotations

import math
import os
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from joulewise.store.files import GrowingFile, open_regular

if TYPE_CHECKING:
    import pyarrow as pa

TIME: Final = "t_ns"
ALIGNMENT_B: Final = 8  # of messages and columns, by the Arrow IPC format
_LATE: Final = "late_ns"
EXTRA_NS: Final = -1
"""In place of the lateness of a row that was read at no deadline."""
# NVML reports milliwatts. A float32 distinguishes them up to 8 kW (its steps there are 0.5 mW), so
# that it returns the driver's value exactly, in half the space of a float64.
_SINGLE: Final = "f"
_DOUBLE: Final = "d"
_WHOLE: Final = "q"
_TYPECODES: Final = {
    TIME: _WHOLE,
    _LATE: _WHOLE,
    # A counter reaches 1e9 J in steps of 1 mJ; bytes and bit masks must stay exact.
    "energy_j": _DOUBLE,
    "memory_used_b": _DOUBLE,
    "throttle_reasons": _DOUBLE,
}


def typecode(column: str) -> str:
    """The type of a column, as a letter of :mod:`array`: q, d or f."""
    return _TYPECODES.get(column, _SINGLE)


@dataclass(frozen=True)
class Batch:
    """Some rows, column by column; NaN stands for what could not be read.

    ``late_ns`` is how long after its deadline each row, or each group of rows, was read, or
    ``EXTRA_NS``; it is not stored.
    """

    columns: tuple[str, ...]
    values: Sequence[array[Any]]
    late_ns: array[int] = field(default_factory=lambda: array(_WHOLE))

    def __len__(self) -> int:
        return len(self.values[0])

    def has_gaps(self) -> bool:
        return any(math.isnan(sum(values)) for values in self.values[1:])


class RowBuffer:
    """Rows that one thread adds and another takes, without a lock between them."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = (TIME, *columns)
        self._typecodes = tuple(typecode(column) for column in (*self.columns, _LATE))
        # Turned into columns by the thread that takes them: the one that adds has a deadline.
        self._waiting: deque[tuple[float, ...]] = deque()

    def add(self, t_ns: int, late_ns: int, values: Sequence[float]) -> None:
        self._waiting.append((t_ns, *values, late_ns))

    def take(self) -> Batch | None:
        """Remove and return all rows; None where there are none."""
        rows = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not rows:
            return None
        *values, late_ns = map(array, self._typecodes, zip(*rows, strict=True))
        return Batch(self.columns, values, late_ns)


class ColumnBuffer:
    """The same for groups of rows that are added column by column."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = (TIME, *columns)
        self._typecodes = tuple(map(typecode, self.columns))
        self._waiting: deque[tuple[int, tuple[Sequence[float], ...]]] = deque()

    def add(self, late_ns: int, *columns: Sequence[float]) -> None:
        """Add rows that were read in one call, ``late_ns`` after its deadline."""
        if columns[0]:
            self._waiting.append((late_ns, columns))

    def take(self) -> Batch | None:
        groups = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not groups:
            return None
        joined = map(chain.from_iterable, zip(*(columns for _, columns in groups), strict=True))
        values = tuple(map(array, self._typecodes, joined))
        return Batch(self.columns, values, array(_WHOLE, [late_ns for late_ns, _ in groups]))


@lru_cache(maxsize=64)
def schema(columns: tuple[str, ...]) -> pa.Schema:
    """The Arrow schema of a stream with these columns; only the time is never null."""
    import pyarrow as pa

    types = {"q": pa.int64(), "d": pa.float64(), "f": pa.float32()}
    return pa.schema(
        [pa.field(name, types[typecode(name)], nullable=name != TIME) for name in columns]
    )


def message(batch: Batch) -> bytes:
    """A batch as a message of a stream."""
    if batch.has_gaps():
        return _serialize(batch)
    start, padding = _frame(batch.columns, len(batch))
    parts = (values.tobytes() + padding[i] for i, values in enumerate(batch.values))
    return start + b"".join(parts)


@lru_cache(maxsize=1024)
def _frame(columns: tuple[str, ...], rows: int) -> tuple[bytes, tuple[bytes, ...]]:
    """What goes before the values of a batch without gaps, and the padding after each column.

    It is the same for all batches with as many rows, and costs ten times the rest.
    """
    values = [array(typecode(column), bytes(8 * rows))[:rows] for column in columns]
    whole = _serialize(Batch(columns, values))
    # A message begins with 4 bytes 0xff and 4 of the length of its metadata.
    start_b = 8 + int.from_bytes(whole[4:8], "little")
    return whole[:start_b], tuple(bytes(-len(v) * v.itemsize % ALIGNMENT_B) for v in values)


def _serialize(batch: Batch) -> bytes:
    import pyarrow as pa

    shape = schema(batch.columns)
    gaps = batch.has_gaps()
    arrays = [
        pa.Array.from_buffers(
            field.type,
            len(values),
            [_validity(values) if gaps and field.nullable else None, pa.py_buffer(values)],
        )
        for field, values in zip(shape, batch.values, strict=True)
    ]
    whole = pa.RecordBatch.from_arrays(arrays, schema=shape).serialize()
    return bytes(whole.to_pybytes())


class Stream:
    """A stream's file, open for writing; batches wait in memory until they can be written.

    ``read_batches`` in this process returns the waiting ones, too, so that a full disk hides none.
    """

    def __init__(self, path: Path, columns: tuple[str, ...]) -> None:
        header = schema(columns).serialize().to_pybytes()
        self.file = GrowingFile(path, header)
        backlog = self.file.backlog
        _unwritten[path] = lambda: header + b"".join(backlog) if backlog else b""

    def add(self, batch: Batch) -> None:
        self.file.add(message(batch))


def write_stream(path: Path, table: pa.Table) -> None:
    """Write a whole stream at once, as if it had been recorded to its end."""
    import pyarrow as pa

    with (
        pa.OSFile(os.fsencode(path), "wb") as file,
        pa.ipc.new_stream(file, table.schema) as writer,
    ):
        writer.write_table(table)


_unwritten: dict[Path, Callable[[], bytes]] = {}


def read_batches(path: Path, sound_b: int | None = None) -> Iterator[pa.RecordBatch]:
    """Every whole batch of a stream, mapped from the file and not copied.

    ``sound_b`` limits it to so many bytes, where the file is damaged beyond them.
    """
    import pyarrow as pa

    with suppress(OSError):  # it is gone, a folder, a circular link…
        with open_regular(path) as file:
            is_empty = not os.fstat(file.fileno()).st_size
        if sound_b != 0 and not is_empty:
            with pa.memory_map(os.fsencode(path)) as source:
                sound = source if sound_b is None else pa.BufferReader(source.read_buffer(sound_b))
                yield from _whole_batches(sound)
    unwritten = _unwritten[path]() if path in _unwritten else b""
    if unwritten:
        yield from _whole_batches(pa.BufferReader(unwritten))


def is_whole(path: Path) -> bool:
    """Whether a file consists of whole batches; ``read_batches`` would silently stop at others."""
    import pyarrow as pa

    try:
        open_regular(path).close()  # pyarrow would wait for a pipe
        with pa.OSFile(os.fsencode(path)) as source:
            for _ in _checked_batches(source):
                pass
    except (pa.ArrowException, OSError, ValueError, MemoryError):
        return False
    return True


def _whole_batches(source: Any) -> Iterator[pa.RecordBatch]:
    """Batches up to the end, to the one that a killed writer left unfinished, or to damage."""
    import pyarrow as pa

    with suppress(pa.ArrowException, OSError, ValueError, MemoryError):
        yield from _checked_batches(source)


def _checked_batches(source: Any) -> Iterator[pa.RecordBatch]:
    """All batches; an ArrowException or OSError at one that we would not have written."""
    import pyarrow as pa

    reader = pa.ipc.open_stream(source)
    names = tuple(reader.schema.names)
    if TIME not in names or len(set(names)) < len(names) or reader.schema != schema(names):
        raise pa.ArrowInvalid("these are not the columns of a stream")
    for batch in reader:
        batch.validate(full=True)
        if batch.column(names.index(TIME)).null_count:
            raise pa.ArrowInvalid("a row has no time")
        yield batch


def _validity(values: array[Any]) -> Any:
    """Arrow's validity bitmap, lowest bit first; None where no value is missing."""
    import pyarrow as pa

    bits = bytearray((len(values) + 7) // 8)
    missing = 0
    for index, value in enumerate(values):
        if math.isnan(value):
            missing += 1
        else:
            bits[index >> 3] |= 1 << (index & 7)
    return pa.py_buffer(bytes(bits)) if missing else None
