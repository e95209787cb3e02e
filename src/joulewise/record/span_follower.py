"""Trainings and epochs while they happen, for the outlook; or spans of other names."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from joulewise.data import Span
from joulewise.hooks import marks as written
from joulewise.record.files import open_regular
from joulewise.record.mark_files import (
    RECORD,
    Header,
    UnreadableMarksError,
    are_sound,
    read_header,
    read_names,
)

FOLLOWED = ("training", "epoch")
MOST_BYTES = 4096 * RECORD.itemsize


@dataclass
class _Followed:
    path: Path
    offset: int = 0
    header: Header | None = None
    codes: dict[int, str] = field(default_factory=dict)
    open: dict[int, Span] = field(default_factory=dict)


class SpanFollower:
    """Reads what the marks folder gained; the first local rank stands for its job."""

    def __init__(self, marks: Path, names: Collection[str] = FOLLOWED) -> None:
        self._marks = marks
        self._names = frozenset(names)
        self._files: dict[str, _Followed | None] = {}
        self._told: set[tuple[int, str]] = set()

    def poll(self) -> list[Span]:
        """Spans that began (``closed`` is False, the end is the start) or ended since last time.

        One that was broken off is not closed, and has its end. Of a span that did both only the
        ended one. A span that went on after its end (a step that
        followed the last batch) comes again, with the later end.
        """
        for path in sorted(self._marks.glob("*.marks")):
            if path.name not in self._files:
                self._files[path.name] = _Followed(path)
        spans: list[Span] = []
        for name, file in self._files.items():
            if file is None:
                continue
            try:
                spans += _news(file, self._told, self._names)
            except (OSError, UnreadableMarksError):
                self._files[name] = None  # read_spans says what is wrong with it
        return sorted(spans, key=lambda span: span.start_ns)


def _news(file: _Followed, told: set[tuple[int, str]], names: frozenset[str]) -> list[Span]:
    news: dict[int, Span] = {}
    with open_regular(file.path) as stream:
        stream.seek(file.offset)
        while data := stream.read(MOST_BYTES):
            records = np.frombuffer(data, RECORD, len(data) // RECORD.itemsize)
            if not len(records):
                break
            file.offset += records.nbytes
            stream.seek(file.offset)
            if file.header is None:
                file.header = read_header(records[:1].tobytes())
            if file.header.local_rank > 0:
                raise UnreadableMarksError("another rank tells the same")
            if not are_sound(records).all():
                raise UnreadableMarksError("damaged")
            file.codes |= {
                code: name for code, name in read_names(records).items() if name in names
            }
            _take(file, records, told, news)
    return list(news.values())


def _take(
    file: _Followed,
    records: NDArray[np.void],
    told: set[tuple[int, str]],
    news: dict[int, Span],
) -> None:
    pid = file.header.pid if file.header is not None else 0
    ours = np.isin(records["name"], list(file.codes)) & (records["kind"] == written.BEGIN)
    for record in records[ours]:
        name, t_ns = file.codes[int(record["name"])], int(record["t_ns"])
        if not record["flags"] & written.GUESSED:
            told.add((pid, name))
        elif (pid, name) in told:
            continue
        index, total = (_or_none(int(record[key])) for key in ("index", "total"))
        span = Span(name, index, t_ns, t_ns, pid, total, closed=False)
        file.open[int(record["token"])] = news[int(record["token"])] = span
    ours = np.isin(records["token"], list(file.open)) & (records["kind"] == written.END)
    for record in records[ours]:
        token = int(record["token"])
        is_cut = bool(record["flags"] & written.CUT)
        news[token] = replace(file.open[token], end_ns=int(record["t_ns"]), closed=not is_cut)


def _or_none(value: int) -> int | None:
    return None if value == written.NONE else value
