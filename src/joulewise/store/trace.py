"""Reading a device's stream: whole, up to damage, or what is new while it grows.

A stream is an Arrow file while it is recorded and may be a Parquet file afterwards; readers need
not know which.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from joulewise.data import Quantity
from joulewise.store.arrow_stream import ALIGNMENT_B, TIME, is_whole, read_batches, schema
from joulewise.store.checksums import Damage, find_damage, is_verified
from joulewise.store.files import entry_exists, open_regular
from joulewise.store.layout import PACKED, STREAM, StreamKind, stream_path

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyarrow import parquet

CHUNK_ROWS: Final = 1 << 18
"""Rows of an Arrow stream that are read at a time (chosen): about 5 MB. More only takes memory."""

_OTHER_STREAM: Final = "its columns are those of another file"
_MESSAGE_START: Final = b"\xff\xff\xff\xff"  # of each message, by the Arrow IPC format


class StreamReader:
    """Reads the rows of one stream, in the order of their times."""

    def __init__(
        self,
        columns: tuple[str, ...],
        rows: int,
        tables: Callable[[Sequence[str]], Iterator[pa.Table]],
    ) -> None:
        self.columns = columns
        self.rows = rows
        self._tables = tables

    def chunks(self, columns: Sequence[str]) -> Iterator[dict[str, NDArray[Any]]]:
        """These columns, some 100,000 rows at a time; a value that could not be read is NaN."""
        for table in self._tables(columns):
            yield {
                name: column.to_numpy() for name, column in zip(columns, table.columns, strict=True)
            }


def open_device_stream(run: Path, key: str, kind: StreamKind) -> StreamReader | None:
    """The reader of a stream; None where nothing was recorded, or nothing can be read.

    Of a damaged file it reads what lies before the damage (:func:`find_stream_damage`).
    """
    path = stream_file(run, key, kind)
    damage = find_damage(run, path)
    if path.suffix == PACKED:
        reader = _open_packed(path, damage)
    else:
        reader = _open_stream(path, None if damage is None else damage.sound_b)
    return reader if reader is not None and _has_columns_of(kind, reader.columns) else None


def find_stream_damage(
    run: Path, key: str, kind: StreamKind, *, is_ended: bool, rows: int | None
) -> Damage | None:
    """The damage to the file of a stream, by its checksums; None where there is none.

    A file of an older version has no checksums: then it has to be readable to its end where the
    recorder ended in order (``is_ended``), and have as many ``rows`` as the recorder wrote, None
    where that is not known.
    """
    path = stream_file(run, key, kind)
    damage = find_damage(run, path)
    if damage is not None or is_verified(run, path):
        return damage
    name = path.relative_to(run).as_posix()
    if path.suffix == PACKED:
        reason = _packed_fault(path, kind)
    elif not entry_exists(path):
        reason = "it is gone" if rows else ""
    else:
        reason = _stream_fault(path, kind, is_ended=is_ended)
    if not reason and is_ended and rows:
        reader = open_device_stream(run, key, kind)
        rows_left = reader.rows if reader else 0
        reason = f"it has {rows_left} of {rows} rows" if rows_left < rows else ""
    return Damage(name, reason, 0) if reason else None


def _stream_fault(path: Path, kind: StreamKind, *, is_ended: bool) -> str:
    """What is wrong with an Arrow file without checksums; empty where nothing is."""
    if is_ended and not is_whole(path):
        return "it cannot be read to its end"
    first = next(read_batches(path), None)
    if first is None:  # header and first rows are one write: a kill leaves both or nothing
        return "" if is_ended or not path.stat().st_size else "nothing of it can be read"
    return "" if _has_columns_of(kind, first.schema.names) else _OTHER_STREAM


def _has_columns_of(kind: StreamKind, columns: Collection[str]) -> bool:
    """Whether a file with these columns can be that stream, and not another put in its place."""
    energy_columns = {Quantity.POWER.value, Quantity.ENERGY.value} & set(columns)
    if kind is StreamKind.FAST:
        return bool(energy_columns)
    if kind is StreamKind.SLOW:
        return not energy_columns
    sampled = Quantity.POWER.value if kind is StreamKind.BUFFER else kind.value.rpartition(".")[2]
    return set(columns) == {TIME, sampled}


def stream_file(run: Path, key: str, kind: StreamKind) -> Path:
    """The file that a stream is read from: a Parquet file has its name only once it is whole."""
    packed = stream_path(run, key, kind, PACKED)
    return packed if entry_exists(packed) else stream_path(run, key, kind, STREAM)


def _open_stream(path: Path, sound_b: int | None) -> StreamReader | None:
    columns: tuple[str, ...] = ()
    rows = 0
    for batch in read_batches(path, sound_b):
        columns = tuple(batch.schema.names)
        rows += batch.num_rows
    if not rows:
        return None
    return StreamReader(columns, rows, lambda wanted: _read_stream(path, sound_b, wanted))


def _read_stream(path: Path, sound_b: int | None, columns: Sequence[str]) -> Iterator[pa.Table]:
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in read_batches(path, sound_b):
        waiting.append(batch.select(columns))
        rows += batch.num_rows
        if rows >= CHUNK_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _open_packed(path: Path, damage: Damage | None) -> StreamReader | None:
    """The reader of a Parquet file; None where the index at its end is damaged."""
    if damage is not None and not damage.has_tail:
        return None
    try:
        with _parquet_file(path) as file:
            groups = _sound_groups(file, None if damage is None else damage.sound_b)
            columns = tuple(file.schema_arrow.names)
            rows = sum(file.metadata.row_group(group).num_rows for group in groups)
            is_ours = file.schema_arrow.remove_metadata() == schema(columns)
    except _unreadable_errors():
        return None
    if not rows or not is_ours:
        return None
    return StreamReader(columns, rows, lambda wanted: _read_packed(path, groups, wanted))


def _sound_groups(file: parquet.ParquetFile, sound_b: int | None) -> range:
    """The row groups that lie before the damage."""
    groups = range(file.num_row_groups)
    if sound_b is None:
        return groups
    ends_b = [max(_chunk_ends_b(file.metadata.row_group(group))) for group in groups]
    return range(sum(end_b <= sound_b for end_b in ends_b))


def _chunk_ends_b(group: Any) -> Iterator[int]:
    for i in range(group.num_columns):
        column = group.column(i)
        yield column.data_page_offset + column.total_compressed_size


def _packed_fault(path: Path, kind: StreamKind) -> str:
    """What is wrong with a Parquet file without checksums; empty where nothing is."""
    try:
        with _parquet_file(path) as file:
            for group in range(file.num_row_groups):
                file.read_row_group(group, [TIME])
            columns = file.schema_arrow.names
    except _unreadable_errors() as error:
        return f"it cannot be read ({str(error).splitlines()[0]:.80})"
    return "" if _has_columns_of(kind, columns) else _OTHER_STREAM


@contextmanager
def _parquet_file(path: Path) -> Iterator[parquet.ParquetFile]:
    import pyarrow as pa
    from pyarrow import parquet

    open_regular(path).close()  # pyarrow would wait for a pipe
    # As bytes, because pyarrow encodes text as UTF-8, and a path need not be.
    with (
        pa.memory_map(os.fsencode(path)) as source,
        parquet.ParquetFile(source, page_checksum_verification=True) as file,
    ):
        yield file


def _unreadable_errors() -> tuple[type[Exception], ...]:
    """What pyarrow raises for a damaged file."""
    import pyarrow as pa

    return pa.ArrowException, OSError, ValueError, MemoryError, KeyError, OverflowError


def _read_packed(path: Path, groups: range, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Row group by row group, up to one that cannot be decoded.

    The next group is decoded while the caller works on this one.
    """
    with suppress(*_unreadable_errors()), _parquet_file(path) as file:
        if len(groups) == 1:
            yield file.read_row_group(0, list(columns), use_threads=False).select(columns)
            return
        with ThreadPoolExecutor(1, "decode") as pool:
            yield from _decoded_ahead(file, groups, columns, pool)


def _decoded_ahead(
    file: parquet.ParquetFile, groups: range, columns: Sequence[str], pool: ThreadPoolExecutor
) -> Iterator[pa.Table]:
    ahead: deque[Future[pa.Table]] = deque()
    for group in groups:
        ahead.append(pool.submit(file.read_row_group, group, list(columns)))
        if len(ahead) > 1:
            yield ahead.popleft().result().select(columns)
    while ahead:
        yield ahead.popleft().result().select(columns)


class StreamFollower:
    """Reads what an Arrow stream gained since the last poll, without disturbing its writer.

    The first poll begins about ``last_b`` bytes before the end: the last minutes of a stream of a
    day are found without reading the rest.
    """

    def __init__(self, path: Path, last_b: int) -> None:
        self._path = path
        self._last_b = last_b
        self._schema: pa.Schema | None = None
        self._read_b = 0

    def poll(self) -> Iterator[dict[str, NDArray[Any]]]:
        """New batches by column; half a batch at the end is left for the next poll."""
        import pyarrow as pa

        try:
            if self._path.stat().st_size <= self._read_b:
                return
            open_regular(self._path).close()  # pyarrow would wait for a pipe
            with pa.OSFile(os.fsencode(self._path)) as source:
                if self._schema is None:
                    self._begin(source)
                source.seek(self._read_b)
                while (batch := _next_batch(source, self._schema)) is not None:
                    self._read_b = source.tell()
                    yield {
                        name: column.to_numpy(zero_copy_only=False)
                        for name, column in zip(batch.schema.names, batch.columns, strict=True)
                    }
        except OSError:  # it does not exist yet, or is packed already
            return

    def _begin(self, source: pa.NativeFile) -> None:
        import pyarrow as pa

        try:
            self._schema = pa.ipc.read_schema(pa.ipc.read_message(source))
        except (pa.ArrowInvalid, EOFError):
            raise FileNotFoundError from None  # its header is not written yet
        first_b = self._read_b = source.tell()
        last_b, start_b = max(self._last_b, 1), None
        while start_b is None and source.size() - last_b > first_b:
            start_b = _find_batch(source, self._schema, source.size() - last_b)
            last_b *= 4  # it was less than one batch
        self._read_b = start_b or first_b


def _next_batch(source: pa.NativeFile, schema: pa.Schema) -> pa.RecordBatch | None:
    import pyarrow as pa

    try:
        message = pa.ipc.read_message(source)
        return pa.ipc.read_record_batch(message, schema)
    except (pa.ArrowInvalid, OSError, EOFError):
        return None


def _find_batch(source: pa.NativeFile, schema: pa.Schema, from_b: int) -> int | None:
    """Where the first whole batch at or after ``from_b`` begins; None where there is none.

    A recorded value may look like the beginning of a message. It is one if a batch can be read
    there, and another begins where that one ends.
    """
    from_b -= from_b % ALIGNMENT_B
    source.seek(from_b)
    rest: bytes = source.read()
    start = rest.find(_MESSAGE_START)
    while start >= 0:
        if start % ALIGNMENT_B == 0:
            source.seek(from_b + start)
            if _next_batch(source, schema) is not None:
                end = source.tell() - from_b
                if rest[end : end + len(_MESSAGE_START)] in {_MESSAGE_START, b""}:
                    return from_b + start
        start = rest.find(_MESSAGE_START, start + 1)
    return None
