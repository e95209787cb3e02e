"""A lane while it grows: each time what is new, however much there is already."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from joulewise.record.files import open_regular

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_ALIGNMENT: Final = 8
_MARK: Final = b"\xff\xff\xff\xff"  # each message of a stream begins with it


class LaneFollower:
    """Reads what a stream gained since last time; who writes it never notices.

    ``last_b`` is how much of what is there already matters: of a day's stream the last minutes
    are found without going through the rest.
    """

    def __init__(self, path: Path, last_b: int) -> None:
        self._path = path
        self._last_b = last_b
        self._schema: pa.Schema | None = None
        self._read_b = 0

    def poll(self) -> Iterator[dict[str, NDArray[Any]]]:
        """New batches by column; half a batch at the end is left for the next time."""
        import pyarrow as pa

        try:
            if self._path.stat().st_size <= self._read_b:
                return
            open_regular(self._path).close()  # a pipe would be waited for
            with pa.OSFile(os.fsencode(self._path)) as source:
                if self._schema is None:
                    self._begin(source)
                source.seek(self._read_b)
                while (batch := _next(source, self._schema)) is not None:
                    self._read_b = source.tell()
                    yield {
                        name: column.to_numpy(zero_copy_only=False)
                        for name, column in zip(batch.schema.names, batch.columns, strict=True)
                    }
        except OSError:  # not there yet, or packed and gone
            return

    def _begin(self, source: pa.NativeFile) -> None:
        import pyarrow as pa

        try:
            self._schema = pa.ipc.read_schema(pa.ipc.read_message(source))
        except (pa.ArrowInvalid, EOFError):
            raise FileNotFoundError from None  # as good as not there yet
        first_b = self._read_b = source.tell()
        last_b, start = max(self._last_b, 1), None
        while start is None and source.size() - last_b > first_b:
            start = _next_start(source, self._schema, source.size() - last_b)
            last_b *= 4  # it was less than one batch
        self._read_b = start or first_b


def _next(source: pa.NativeFile, schema: pa.Schema) -> pa.RecordBatch | None:
    import pyarrow as pa

    try:
        message = pa.ipc.read_message(source)
        return pa.ipc.read_record_batch(message, schema)
    except (pa.ArrowInvalid, OSError, EOFError):
        return None


def _next_start(source: pa.NativeFile, schema: pa.Schema, from_b: int) -> int | None:
    """Where the first whole batch at or after ``from_b`` begins, None where there is none.

    A value may look like the beginning of a batch. It is one if a batch can be read there, and
    another begins where that one ends.
    """
    from_b -= from_b % _ALIGNMENT
    source.seek(from_b)
    rest: bytes = source.read()
    at = rest.find(_MARK)
    while at >= 0:
        if at % _ALIGNMENT == 0:
            source.seek(from_b + at)
            if _next(source, schema) is not None:
                after = source.tell() - from_b
                if rest[after : after + len(_MARK)] in {_MARK, b""}:
                    return from_b + at
        at = rest.find(_MARK, at + 1)
    return None
