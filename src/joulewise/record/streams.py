"""Arrow IPC streams that only grow: what was written stays readable, however the writer ends.

A stream is a schema and then batches, each a message of its own. Whoever reads it takes whole
messages until there are no more; half a message at the end is as if it were not there.
"""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from joulewise.record.rows import TIME, Batch, typecode

if TYPE_CHECKING:
    import pyarrow as pa

_END: Final = b"\xff\xff\xff\xff\0\0\0\0"


def schema(columns: Sequence[str]) -> pa.Schema:
    import pyarrow as pa

    types = {"q": pa.int64(), "d": pa.float64(), "f": pa.float32()}
    return pa.schema(
        [pa.field(name, types[typecode(name)], nullable=name != TIME) for name in columns]
    )


def message(batch: Batch) -> bytes:
    """A batch as it stands in a stream."""
    import pyarrow as pa

    shape = schema(batch.columns)
    arrays = [
        pa.Array.from_buffers(
            field.type,
            len(values),
            [_validity(values) if batch.gaps and field.nullable else None, pa.py_buffer(values)],
        )
        for field, values in zip(shape, batch.values, strict=True)
    ]
    whole = pa.RecordBatch.from_arrays(arrays, schema=shape).serialize()
    return bytes(whole.to_pybytes())


class Stream:
    """The file of one lane, open for writing."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        self._whole_b = 0
        self._header = schema(columns).serialize().to_pybytes()

    def append(self, messages: bytes) -> None:
        """Add whole messages, or raise the OSError that says why none of them was added."""
        if not self._whole_b:
            messages = self._header + messages
        try:
            rest = memoryview(messages)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            os.ftruncate(self._descriptor, self._whole_b)
            raise
        self._whole_b += len(messages)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Say that this is all; where the disk is full, the stream is as readable without."""
        try:
            self.append(_END)
        except OSError:
            pass
        finally:
            os.close(self._descriptor)


def read_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Every whole batch of a stream, mapped from the file and not copied."""
    import pyarrow as pa

    if not path.stat().st_size:
        return
    with pa.memory_map(str(path)) as source:
        try:
            reader = pa.ipc.open_stream(source)
            while True:
                yield reader.read_next_batch()
        except (StopIteration, pa.ArrowInvalid, OSError):
            return  # the end, or what was being written when the writer was killed


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
