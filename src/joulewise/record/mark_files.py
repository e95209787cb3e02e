"""One file of marks, as a process left it (docs/reference/marks.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulewise.hooks import marks as written

RECORD = np.dtype(
    [
        ("magic", "u1"), ("kind", "u1"), ("flags", "<u2"), ("name", "<u4"),
        ("t_ns", "<i8"), ("start_ns", "<i8"), ("index", "<i8"), ("total", "<i8"),
        ("thread", "<u4"), ("token", "<u4"),
    ]
)  # fmt: skip


class UnreadableMarksError(Exception):
    """Not a file of marks, or one of a format that is not known here."""


@dataclass(frozen=True)
class Header:
    pid: int
    start_ns: int
    rank: int
    world_size: int
    local_rank: int
    job: int


@dataclass(frozen=True)
class MarkFile:
    """``whole`` is False where something other than records came in between; it ends there.

    ``cut`` says that it ends in half a record: a disk was full, and nothing was written since.
    """

    header: Header
    names: dict[int, str]
    records: NDArray[np.void]
    whole: bool
    cut: bool


def read_mark_file(path: Path) -> MarkFile | None:
    """What can be read; half a record at the end does not count. None of an empty file."""
    records = np.fromfile(path, RECORD)
    if not len(records):
        return None
    header = read_header(records[:1].tobytes())
    cut = path.stat().st_size % RECORD.itemsize > 0
    sound = are_sound(records)
    whole = bool(sound.all())
    if not whole:
        records = records[: int(np.argmin(sound))]
    return MarkFile(header, read_names(records), records, whole, cut)


def read_header(record: bytes) -> Header:
    fields = written.HEADER_FORM.unpack(record)
    magic, kind, version, pid, start_ns, _, rank, world_size, local_rank, _, job = fields
    if (magic, kind) != (written.MAGIC, written.HEADER):
        raise UnreadableMarksError("it is not a file of marks")
    if version != written.VERSION:
        raise UnreadableMarksError(f"its format {version} is newer than this joulewise")
    return Header(pid, start_ns, rank, world_size, local_rank, job)


def are_sound(records: NDArray[np.void]) -> NDArray[np.bool_]:
    kind = records["kind"]
    sound: NDArray[np.bool_] = records["magic"] == written.MAGIC
    return sound & (kind >= written.HEADER) & (kind <= written.WHOLE)


def read_names(records: NDArray[np.void]) -> dict[int, str]:
    """Names by their code; each is written once, in parts, before its first use."""
    texts: dict[int, list[bytes]] = {}
    for record in records[records["kind"] == written.NAME]:
        *_, code, text = written.NAME_FORM.unpack(record.tobytes())
        texts.setdefault(code, []).append(text)
    return {
        code: b"".join(parts).rstrip(b"\0").decode("utf-8", "replace")
        for code, parts in texts.items()
    }


def spans_in(file: MarkFile) -> dict[str, NDArray[Any]]:
    """Columns of the file's spans; ``name`` is the file's own code."""
    records = file.records
    begun = records[records["kind"] == written.BEGIN]
    over = records[records["kind"] == written.WHOLE]
    end_ns, closed = _ends(records, begun["token"])
    columns = {
        "name": np.concatenate([begun["name"], over["name"]]).astype(np.int64),
        "index": np.concatenate([begun["index"], over["index"]]),
        "total": np.concatenate([begun["total"], over["total"]]),
        "start_ns": np.concatenate([begun["start_ns"], over["start_ns"]]),
        "end_ns": np.concatenate([end_ns, over["t_ns"]]),
        "closed": np.concatenate([closed, np.ones(len(over), bool)]),
        "guessed": np.concatenate([begun["flags"], over["flags"]]) & written.GUESSED > 0,
    }
    np.maximum(columns["end_ns"], columns["start_ns"], out=columns["end_ns"])
    return columns


def _ends(
    records: NDArray[np.void], tokens: NDArray[np.uint32]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """When the begun spans ended: at their last end, or at the last sign of life."""
    marks = records[records["kind"] >= written.BEGIN]
    last_ns = int(marks["t_ns"].max()) if len(marks) else 0
    end_ns = np.full(len(tokens), last_ns, np.int64)
    closed = np.zeros(len(tokens), bool)
    ended = records[records["kind"] == written.END]
    if len(tokens) and len(ended):
        order = np.argsort(tokens, kind="stable")
        at = np.searchsorted(tokens, ended["token"], sorter=order)
        begun = order[np.minimum(at, len(tokens) - 1)]
        known = tokens[begun] == ended["token"]
        end_ns[begun[known]] = ended["t_ns"][known]  # of several, the last one stays
        closed[begun[known]] = True
    return end_ns, closed
