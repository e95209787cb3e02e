"""Packing a finished stream as Parquet: a quarter of the space, and quick to read in part.

The packed file is written under another name, made durable, and then renamed; the stream is
deleted last. After a kill at any point a run has at least one whole file, and readers prefer the
packed one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from joulewise.process.failpoints import failpoint
from joulewise.store.arrow_stream import TIME, read_batches
from joulewise.store.files import sync
from joulewise.store.layout import PACKED, STREAM, TRACE

if TYPE_CHECKING:
    import pyarrow as pa

LARGE_ROWS: Final = 1_000_000
"""Streams with more rows than this are packed: about 20 MB, at 20 bytes a row (chosen)."""

GROUP_ROWS: Final = 1 << 20
"""Rows of a row group, which is what is decoded at a time (chosen). Twice as many take twice the
memory to read."""

_PART: Final = ".part"


def compact(run: Path, *, over_rows: int = LARGE_ROWS) -> list[Path]:
    """Pack every stream of a finished run with more than ``over_rows`` rows; the new files."""
    packed = []
    for stream in sorted((run / TRACE).glob(f"*{STREAM}")):
        target = stream.with_suffix(PACKED)
        if target.exists():  # an earlier attempt was killed after the rename
            stream.unlink()
        elif sum(batch.num_rows for batch in read_batches(stream)) > over_rows:
            pack(stream, target)
            stream.unlink()
            packed.append(target)
    for leftover in (run / TRACE).glob(f"*{_PART}"):
        leftover.unlink()
    return packed


def pack(stream: Path, target: Path) -> None:
    """Write the Parquet file ``target`` from a stream, whole or not at all."""
    part = target.with_name(target.name + _PART)
    try:
        write_packed(part, _row_groups(stream))
        sync(part)
        failpoint("compact-written")
        part.replace(target)
        failpoint("compact-renamed")
        sync(target.parent)
    finally:
        part.unlink(missing_ok=True)


def write_packed(path: Path, groups: Iterable[pa.Table]) -> None:
    """Write a Parquet file from tables that are a row group each.

    Times are stored as differences, numbers byte by byte (BYTE_STREAM_SPLIT): neighbouring values
    share their high bytes, which zstd then compresses well.
    """
    import pyarrow as pa
    from pyarrow import parquet

    groups = iter(groups)
    first = next(groups)
    names = first.schema.names
    # Given the path, pyarrow would look up the file system that it is on.
    with (
        pa.OSFile(os.fsencode(path), "wb") as file,
        parquet.ParquetWriter(
            file,
            first.schema,
            compression="zstd",
            use_dictionary=False,
            column_encoding={
                name: "DELTA_BINARY_PACKED" if name == TIME else "BYTE_STREAM_SPLIT"
                for name in names
            },
            write_statistics=[TIME],
            write_page_checksum=True,
        ) as writer,
    ):
        writer.write_table(first, GROUP_ROWS)
        for group in groups:
            writer.write_table(group, GROUP_ROWS)


def _row_groups(stream: Path) -> Iterator[pa.Table]:
    """The rows of a stream in tables of ``GROUP_ROWS``; the last one may have fewer."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in read_batches(stream):
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= GROUP_ROWS:
            table = pa.Table.from_batches(waiting)
            whole = rows - rows % GROUP_ROWS
            yield table.slice(0, whole)
            waiting, rows = table.slice(whole).to_batches(), rows - whole
    if waiting:
        yield pa.Table.from_batches(waiting)
