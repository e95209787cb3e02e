"""One file of marks, as a process left it (docs/reference/marks.md)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from joulewise.hooks import marks as written
from joulewise.record.files import open_regular

RECORD = np.dtype(
    [
        ("magic", "u1"), ("kind", "u1"), ("flags", "<u2"), ("name", "<u4"),
        ("t_ns", "<i8"), ("start_ns", "<i8"), ("index", "<i8"), ("total", "<i8"),
        ("thread", "<u4"), ("token", "<u4"),
    ]
)  # fmt: skip
_AT_ONCE: Final = 65_536


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
    """``spans`` are columns of equal length; ``name`` is the file's own code.

    ``whole`` is False where something other than records came in between; it ends there.
    ``cut`` says that it ends in half a record: a disk was full, and nothing was written since.
    """

    header: Header
    names: dict[int, str]
    spans: dict[str, NDArray[Any]]
    whole: bool
    cut: bool


def read_mark_file(path: Path, sound_b: int | None = None) -> MarkFile | None:
    """What can be read; half a record at the end does not count. None of an empty file.

    Only what lies within its first ``sound_b`` bytes, where it is damaged beyond them.
    """
    reading, header, whole = _Reading(), None, True
    with open_regular(path) as stream:
        left = os.fstat(stream.fileno()).st_size // RECORD.itemsize
        if sound_b is not None:
            left = min(left, sound_b // RECORD.itemsize)
        while whole and len(records := np.fromfile(stream, RECORD, min(_AT_ONCE, left))):
            left -= len(records)
            header = header or read_header(records[:1].tobytes())
            sound = are_sound(records)
            whole = bool(sound.all())
            reading.take(records if whole else records[: int(np.argmin(sound))])
    if header is None:
        return None
    cut = path.stat().st_size % RECORD.itemsize > 0
    return MarkFile(header, read_names(reading.names()), reading.spans(), whole, cut)


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


class _Reading:
    """Takes records as they come and keeps of them what spans need: millions of steps fit."""

    def __init__(self) -> None:
        self._names: list[NDArray[np.void]] = []
        self._spans: list[dict[str, NDArray[Any]]] = []
        self._ends: list[dict[str, NDArray[Any]]] = []
        self._last_ns = 0

    def take(self, records: NDArray[np.void]) -> None:
        kind = records["kind"]
        self._names.append(records[kind == written.NAME])
        spans = records[(kind == written.BEGIN) | (kind == written.WHOLE)]
        self._spans.append(
            {
                "name": spans["name"].copy(),
                "index": spans["index"].copy(),
                "total": spans["total"].copy(),
                "start_ns": spans["start_ns"].copy(),
                "end_ns": spans["t_ns"].copy(),
                "closed": spans["kind"] == written.WHOLE,
                "ended": spans["kind"] == written.WHOLE,
                "guessed": spans["flags"] & written.GUESSED > 0,
                "token": spans["token"].copy(),
            }
        )
        ends = records[kind == written.END]
        self._ends.append(
            {
                "token": ends["token"].copy(),
                "t_ns": ends["t_ns"].copy(),
                "cut": ends["flags"] & written.CUT > 0,
            }
        )
        times_ns = records["t_ns"][kind >= written.BEGIN]
        self._last_ns = max(self._last_ns, int(times_ns.max(initial=0)))

    def names(self) -> NDArray[np.void]:
        return np.concatenate(self._names)

    def spans(self) -> dict[str, NDArray[Any]]:
        columns, ends = joined(self._spans), joined(self._ends)
        tokens = columns.pop("token")
        begun = np.flatnonzero(~columns["closed"])
        columns["end_ns"][begun] = self._last_ns  # unless it ended: the last sign of life
        if len(begun) and len(ends["token"]):
            tokens = tokens[begun]
            order = np.argsort(tokens, kind="stable")
            at = np.searchsorted(tokens, ends["token"], sorter=order)
            at = order[np.minimum(at, len(order) - 1)]
            known = tokens[at] == ends["token"]
            at = begun[at[known]]
            columns["end_ns"][at] = ends["t_ns"][known]  # of several, the last one stays
            columns["closed"][at] = ~ends["cut"][known]
            columns["ended"][at] = True
        np.maximum(columns["end_ns"], columns["start_ns"], out=columns["end_ns"])
        return columns


def joined(parts: list[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """One after the other, column by column; what was joined is let go."""
    return {
        column: np.concatenate([part.pop(column) for part in parts]) for column in list(parts[0])
    }
