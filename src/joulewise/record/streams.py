"""Arrow IPC streams that only grow: what was written stays readable, however the writer ends.

A stream is a schema and then batches, each a message of its own. Whoever reads it takes whole
messages until there are no more; half a message at the end is as if it were not there.
"""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from joulewise.record.files import GrowingFile, open_regular
from joulewise.record.rows import TIME, Batch, typecode

if TYPE_CHECKING:
    import pyarrow as pa


_ALIGNMENT: Final = 8


@lru_cache(maxsize=64)
def schema(columns: tuple[str, ...]) -> pa.Schema:
    import pyarrow as pa

    types = {"q": pa.int64(), "d": pa.float64(), "f": pa.float32()}
    return pa.schema(
        [pa.field(name, types[typecode(name)], nullable=name != TIME) for name in columns]
    )


def message(batch: Batch) -> bytes:
    """A batch as it stands in a stream."""
    if batch.has_gaps():
        return _built(batch)
    start, padding = _frame(batch.columns, len(batch))
    parts = (values.tobytes() + padding[i] for i, values in enumerate(batch.values))
    return start + b"".join(parts)


@lru_cache(maxsize=1024)
def _frame(columns: tuple[str, ...], rows: int) -> tuple[bytes, tuple[bytes, ...]]:
    """What goes before the values of a batch without gaps, and after each column.

    It is the same for all that have as many rows, and building it costs ten times the rest.
    """
    values = [array(typecode(column), bytes(8 * rows))[:rows] for column in columns]
    whole = _built(Batch(columns, values))
    start_b = 8 + int.from_bytes(whole[4:8], "little")
    return whole[:start_b], tuple(bytes(-len(v) * v.itemsize % _ALIGNMENT) for v in values)


def _built(batch: Batch) -> bytes:
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
    """A lane's file, open for writing: batches wait in memory until they can be written.

    Whoever reads the path in this process gets what waits, too: a full disk hides nothing.
    """

    def __init__(self, path: Path, columns: tuple[str, ...]) -> None:
        header = schema(columns).serialize().to_pybytes()
        self.file = GrowingFile(path, header)
        _waiting[path] = lambda: header + b"".join(self.file.backlog) if self.file.backlog else b""

    def add(self, batch: Batch) -> None:
        self.file.add(message(batch))


def write_stream(path: Path, table: pa.Table) -> None:
    """A whole lane at once, as a stream that was written to its end."""
    import pyarrow as pa

    with (
        pa.OSFile(os.fsencode(path), "wb") as file,
        pa.ipc.new_stream(file, table.schema) as writer,
    ):
        writer.write_table(table)


_waiting: dict[Path, Callable[[], bytes]] = {}


def read_batches(path: Path, sound_b: int | None = None) -> Iterator[pa.RecordBatch]:
    """Every whole batch of a stream, mapped from the file and not copied.

    Only what lies within its first ``sound_b`` bytes, where it is damaged beyond them.
    """
    import pyarrow as pa

    with suppress(OSError):  # it is gone, a folder, a link that leads back to itself…
        if sound_b != 0 and _regular_size_b(path):
            with pa.memory_map(os.fsencode(path)) as source:
                sound = source if sound_b is None else pa.BufferReader(source.read_buffer(sound_b))
                yield from _whole_batches(sound)
    waiting = _waiting[path]() if path in _waiting else b""
    if waiting:
        yield from _whole_batches(pa.BufferReader(waiting))


def _regular_size_b(path: Path) -> int:
    with open_regular(path) as file:
        return os.fstat(file.fileno()).st_size


def is_whole(path: Path) -> bool:
    """Whether nothing but whole batches is there: half of one, or other bytes, reads as the end."""
    import pyarrow as pa

    try:
        open_regular(path).close()  # a pipe would be waited for
        with pa.OSFile(os.fsencode(path)) as source:
            for _ in _checked_batches(source):
                pass
    except (pa.ArrowException, OSError, ValueError, MemoryError):
        return False
    return True


def _whole_batches(source: Any) -> Iterator[pa.RecordBatch]:
    """Up to the end, to what was being written when the writer was killed, or to damage."""
    import pyarrow as pa

    with suppress(pa.ArrowException, OSError, ValueError, MemoryError):
        yield from _checked_batches(source)


def _checked_batches(source: Any) -> Iterator[pa.RecordBatch]:
    """All batches; an error where one is not as we write them, such as after damage."""
    import pyarrow as pa

    reader = pa.ipc.open_stream(source)
    names = tuple(reader.schema.names)
    if TIME not in names or len(set(names)) < len(names) or reader.schema != schema(names):
        raise pa.ArrowInvalid("these are not the columns of a lane")
    for batch in reader:
        batch.validate(full=True)
        if batch.column(names.index(TIME)).null_count:
            raise pa.ArrowInvalid("a row has no time")
        yield batch


def _validity(values: array[Any]) -> Any:
    """Arrow's bitmap of what is there, lowest bit first; None where all is."""
    import pyarrow as pa

    bits = bytearray((len(values) + 7) // 8)
    missing = 0
    for index, value in enumerate(values):
        if math.isnan(value):
            missing += 1
        else:
            bits[index >> 3] |= 1 << (index & 7)
    return pa.py_buffer(bytes(bits)) if missing else None
