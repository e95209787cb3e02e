"""Reading a lane back, whole or cut off, a stretch of it at a time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from joulewise.record.layout import PACKED, STREAM, Lane, lane_path
from joulewise.record.streams import read_batches

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyarrow import parquet

CHUNK_ROWS: Final = 1 << 18


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
    """A lane's reader, or None where nothing of it was recorded.

    A packed file bears its name only once it is whole, so it goes before the stream.
    """
    packed = lane_path(run, key, lane, PACKED)
    if packed.exists():
        return _open_packed(packed)
    return _open_stream(lane_path(run, key, lane, STREAM))


def _open_stream(path: Path) -> LaneReader | None:
    columns: tuple[str, ...] = ()
    rows = 0
    for batch in read_batches(path):
        columns = tuple(batch.schema.names)
        rows += batch.num_rows
    if not rows:
        return None
    return LaneReader(columns, rows, lambda wanted: _of_stream(path, wanted))


def _of_stream(path: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in read_batches(path):
        waiting.append(batch.select(columns))
        rows += batch.num_rows
        if rows >= CHUNK_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _open_packed(path: Path) -> LaneReader:
    import pyarrow as pa
    from pyarrow import parquet

    # As bytes: pyarrow takes text for UTF-8, and a path need not be.
    with pa.OSFile(os.fsencode(path)) as source, parquet.ParquetFile(source) as file:
        columns, rows = tuple(file.schema_arrow.names), file.metadata.num_rows
    return LaneReader(columns, rows, lambda wanted: _of_packed(path, wanted))


def _of_packed(path: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Row group by row group, the next one decoded while the caller works on this one."""
    import pyarrow as pa
    from pyarrow import parquet

    with pa.memory_map(os.fsencode(path)) as source, parquet.ParquetFile(source) as file:
        if file.num_row_groups == 1:
            yield file.read_row_group(0, list(columns), use_threads=False).select(columns)
            return
        with ThreadPoolExecutor(1, "decode") as pool:
            yield from _decoded_ahead(file, columns, pool)


def _decoded_ahead(
    file: parquet.ParquetFile, columns: Sequence[str], pool: ThreadPoolExecutor
) -> Iterator[pa.Table]:
    ahead: deque[Future[pa.Table]] = deque()
    for group in range(file.num_row_groups):
        ahead.append(pool.submit(file.read_row_group, group, list(columns)))
        if len(ahead) > 1:
            yield ahead.popleft().result().select(columns)
    while ahead:
        yield ahead.popleft().result().select(columns)
