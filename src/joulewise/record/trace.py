"""Reading a lane back, whole or cut off, a stretch of it at a time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from joulewise.data import Quantity
from joulewise.record.checksums import Damage, find_damage, is_verified
from joulewise.record.files import is_there, open_regular
from joulewise.record.layout import PACKED, STREAM, Lane, lane_path
from joulewise.record.rows import TIME
from joulewise.record.streams import is_whole, read_batches, schema

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyarrow import parquet

CHUNK_ROWS: Final = 1 << 18
_OTHER_LANE: Final = "its columns are those of another file"


class LaneReader:
    """The rows of one lane in the order of their times."""

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
        """These columns, some 100,000 rows at a time; what could not be read is NaN."""
        for table in self._tables(columns):
            yield {
                name: column.to_numpy() for name, column in zip(columns, table.columns, strict=True)
            }


def open_lane(run: Path, key: str, lane: Lane) -> LaneReader | None:
    """A lane's reader, or None where nothing of it was recorded, or nothing can be read.

    Of a damaged file it has what lies before the damage (:func:`find_lane_damage`). A packed file
    bears its name only once it is whole, so it goes before the stream.
    """
    path = lane_file(run, key, lane)
    damage = find_damage(run, path)
    if path.suffix == PACKED:
        reader = _open_packed(path, damage)
    else:
        reader = _open_stream(path, None if damage is None else damage.sound_b)
    return reader if reader is not None and _has_columns_of(lane, reader.columns) else None


def find_lane_damage(
    run: Path, key: str, lane: Lane, *, is_ended: bool, rows: int | None
) -> Damage | None:
    """What is wrong with the file of a lane, None where nothing is.

    Its checksum tells. A file of an earlier version has none: there it has to be readable to its
    end where the recorder ended in order (``is_ended``), and have as many ``rows`` as the recorder
    wrote, None where that is not known.
    """
    path = lane_file(run, key, lane)
    damage = find_damage(run, path)
    if damage is not None or is_verified(run, path):
        return damage
    name = path.relative_to(run).as_posix()
    if path.suffix == PACKED:
        reason = _packed_fault(path, lane)
    elif not is_there(path):
        reason = "it is gone" if rows else ""
    else:
        reason = _stream_fault(path, lane, is_ended=is_ended)
    if not reason and is_ended and rows:
        reader = open_lane(run, key, lane)
        there = reader.rows if reader else 0
        reason = f"it has {there} of {rows} rows" if there < rows else ""
    return Damage(name, reason, 0) if reason else None


def _stream_fault(path: Path, lane: Lane, *, is_ended: bool) -> str:
    """What is wrong with a stream of which there is no checksum."""
    if is_ended and not is_whole(path):
        return "it cannot be read to its end"
    first = next(read_batches(path), None)
    if first is None:  # a kill leaves the first write, header and rows at once, or nothing
        return "" if is_ended or not path.stat().st_size else "nothing of it can be read"
    return "" if _has_columns_of(lane, first.schema.names) else _OTHER_LANE


def _has_columns_of(lane: Lane, columns: Collection[str]) -> bool:
    """Whether a file with these columns can be of a lane, and was not put in place of another."""
    joules_come_from = {Quantity.POWER.value, Quantity.ENERGY.value} & set(columns)
    if lane is Lane.FAST:
        return bool(joules_come_from)
    if lane is Lane.SLOW:
        return not joules_come_from
    sampled = Quantity.POWER.value if lane is Lane.BUFFER else lane.value.rpartition(".")[2]
    return set(columns) == {TIME, sampled}


def lane_file(run: Path, key: str, lane: Lane) -> Path:
    """The file that a lane is read from."""
    packed = lane_path(run, key, lane, PACKED)
    return packed if is_there(packed) else lane_path(run, key, lane, STREAM)


def _open_stream(path: Path, sound_b: int | None) -> LaneReader | None:
    columns: tuple[str, ...] = ()
    rows = 0
    for batch in read_batches(path, sound_b):
        columns = tuple(batch.schema.names)
        rows += batch.num_rows
    if not rows:
        return None
    return LaneReader(columns, rows, lambda wanted: _of_stream(path, sound_b, wanted))


def _of_stream(path: Path, sound_b: int | None, columns: Sequence[str]) -> Iterator[pa.Table]:
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


def _open_packed(path: Path, damage: Damage | None) -> LaneReader | None:
    """None where its index, which stands at its end, is damaged: then nothing can be found."""
    if damage is not None and not damage.has_tail:
        return None
    try:
        with _parquet_file(path) as file:
            groups = _sound_groups(file, None if damage is None else damage.sound_b)
            columns = tuple(file.schema_arrow.names)
            rows = sum(file.metadata.row_group(group).num_rows for group in groups)
            is_lane = file.schema_arrow.remove_metadata() == schema(columns)
    except _unreadable_errors():
        return None
    if not rows or not is_lane:
        return None
    return LaneReader(columns, rows, lambda wanted: _of_packed(path, groups, wanted))


def _sound_groups(file: parquet.ParquetFile, sound_b: int | None) -> range:
    """The row groups that lie before the damage, and that can be decoded."""
    groups = range(file.num_row_groups)
    if sound_b is None:
        return groups
    ends_b = [max(_chunk_ends_b(file.metadata.row_group(group))) for group in groups]
    return range(sum(end_b <= sound_b for end_b in ends_b))


def _chunk_ends_b(group: Any) -> Iterator[int]:
    for i in range(group.num_columns):
        column = group.column(i)
        yield column.data_page_offset + column.total_compressed_size


def _packed_fault(path: Path, lane: Lane) -> str:
    """Why a packed file of an earlier version, without a checksum, cannot be read to its end."""
    try:
        with _parquet_file(path) as file:
            for group in range(file.num_row_groups):
                file.read_row_group(group, [TIME])
            columns = file.schema_arrow.names
    except _unreadable_errors() as error:
        return f"it cannot be read ({str(error).splitlines()[0]:.80})"
    return "" if _has_columns_of(lane, columns) else _OTHER_LANE


@contextmanager
def _parquet_file(path: Path) -> Iterator[parquet.ParquetFile]:
    import pyarrow as pa
    from pyarrow import parquet

    open_regular(path).close()  # a pipe would be waited for
    # As bytes: pyarrow takes text for UTF-8, and a path need not be.
    with (
        pa.memory_map(os.fsencode(path)) as source,
        parquet.ParquetFile(source, page_checksum_verification=True) as file,
    ):
        yield file


def _unreadable_errors() -> tuple[type[Exception], ...]:
    """What pyarrow raises for a file that is damaged."""
    import pyarrow as pa

    return pa.ArrowException, OSError, ValueError, MemoryError, KeyError, OverflowError


def _of_packed(path: Path, groups: range, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Row group by row group, the next one decoded while the caller works on this one.

    It ends where one cannot be decoded, as a stream does.
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
