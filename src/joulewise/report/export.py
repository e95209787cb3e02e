"""Writes tables of readings or spans as CSV, JSON or Parquet, piece by piece."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

import pyarrow as pa

from joulewise.errors import JoulewiseError, UsageError
from joulewise.store.files import is_file, is_folder, path_exists

_FULL: Final = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your quota there is used up",
    errno.EFBIG: "no file may be so large",
}


def write_error(path: Path, error: OSError, hint: str) -> JoulewiseError:
    """The error for a file that could not be written.

    ``hint`` is given where the path was a mistake; a full disk is not the user's mistake.
    """
    full = _FULL.get(error.errno or 0)
    if full:
        return JoulewiseError(
            f"cannot write {path}: {full}", "free some space there, or name another path"
        )
    if not is_folder(path.parent):
        return no_folder(path)
    return UsageError(f"cannot write {path}: {error.strerror or error}", hint)


def no_folder(path: Path) -> UsageError:
    """The error for a path in a folder that does not exist."""
    return UsageError(
        f"cannot write {path}: there is no folder {path.parent}", "create it, or name another"
    )


STDOUT: Final = "-"
# Spreadsheets run a cell that begins with one of these as a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")


def write(shape: pa.Schema, pieces: Iterable[pa.Table], form: str, path: str) -> int:
    """Write all pieces, and return the number of rows. A file appears only once it is complete."""
    writer = _WRITERS[form]
    if path == STDOUT:
        rows = writer(shape, pieces, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return rows
    target = Path(path)
    # A device or a pipe is written to, never replaced.
    special = path_exists(target) and not is_file(target)
    # Written beside the target and renamed, so that a reader never sees half a file.
    part = target if special else target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            rows = writer(shape, pieces, file)
        if not special:
            part.replace(target)
    except BaseException as error:
        if not special:
            with suppress(OSError):
                part.unlink()
        if not isinstance(error, OSError):
            raise
        raise write_error(target, error, "give -o a path that can be written") from None
    return rows


def _csv(shape: pa.Schema, pieces: Iterable[pa.Table], file: IO[bytes]) -> int:
    from pyarrow import csv

    rows = 0
    with csv.CSVWriter(file, _plain_schema(shape)) as writer:
        for piece in pieces:
            writer.write_table(_without_formulas(piece))
            rows += piece.num_rows
    return rows


def _json(shape: pa.Schema, pieces: Iterable[pa.Table], file: IO[bytes]) -> int:
    """One array, with one object on each line."""
    names = shape.names
    rows = 0
    file.write(b"[")
    for piece in pieces:
        columns = [column.to_pylist() for column in piece.columns]
        for row in zip(*columns, strict=True):
            line = json.dumps(dict(zip(names, row, strict=True)), allow_nan=False)
            file.write(f"{',' if rows else ''}\n{line}".encode())
            rows += 1
    file.write(b"\n]\n")
    return rows


def _parquet(shape: pa.Schema, pieces: Iterable[pa.Table], file: IO[bytes]) -> int:
    from pyarrow import parquet

    rows = 0
    with parquet.ParquetWriter(file, shape, compression="zstd") as writer:
        for piece in pieces:
            writer.write_table(piece)
            rows += piece.num_rows
    return rows


_WRITERS: Final[dict[str, Callable[[pa.Schema, Iterable[pa.Table], IO[bytes]], int]]] = {
    "csv": _csv,
    "json": _json,
    "parquet": _parquet,
}
FORMATS: Final = tuple(_WRITERS)


def _plain_schema(shape: pa.Schema) -> pa.Schema:
    """The schema with dictionary columns as plain strings."""
    is_text = pa.types.is_dictionary
    return pa.schema([(f.name, pa.string() if is_text(f.type) else f.type) for f in shape])


def _without_formulas(piece: pa.Table) -> pa.Table:
    columns = []
    for column in piece.columns:
        if pa.types.is_dictionary(column.type):
            combined = column.combine_chunks()
            words = [_escape_formula(word) for word in combined.dictionary.to_pylist()]
            columns.append(pa.array(words, pa.string()).take(combined.indices))
        else:
            columns.append(column)
    return pa.Table.from_arrays(columns, schema=_plain_schema(piece.schema))


def _escape_formula(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text
