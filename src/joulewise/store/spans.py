"""The spans of a run, from the marks that its processes left.

One file of marks, as a process left it (docs/reference/marks.md).

The ranks of one job as one: an epoch is from the first rank's begin to the last one's end.

Trainings and epochs while they happen, for the outlook; or spans of other names.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from joulewise.data import Caution, RunWarning, Span
from joulewise.hooks import marks as written
from joulewise.hooks.marks import NONE
from joulewise.store.checksums import find_damage
from joulewise.store.files import open_regular
from joulewise.store.layout import MARKS

__all__ = ["SpanFollower", "SpanTable", "read_spans"]

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


Process = tuple[Header, dict[str, NDArray[Any]]]


def jobs(processes: Sequence[Process]) -> list[list[Process]]:
    """The processes that belong together, by rank.

    A job's key is not always its own (two that use one port, one after the other), so a rank that
    is there already begins the next job.
    """
    alone = [[process] for process in processes if process[0].world_size <= 1]
    open_jobs: dict[tuple[int, int], list[Process]] = {}
    together = []
    ranked = [process for process in processes if process[0].world_size > 1]
    for process in sorted(ranked, key=lambda process: process[0].start_ns):
        header = process[0]
        key = (header.job, header.world_size)
        job = open_jobs.get(key)
        if job is None or any(member.rank == header.rank for member, _ in job):
            job = open_jobs[key] = []
            together.append(job)
        job.append(process)
    for job in together:
        job.sort(key=lambda process: process[0].rank)
    return alone + together


def merged(job: Sequence[Process]) -> dict[str, NDArray[Any]]:
    """One set of spans; of a name and index that repeats, the first goes with the first, and so on.

    What only some ranks did stays as they did it. The process named is the lowest rank's.
    """
    if len(job) == 1:
        return job[0][1]
    member = np.repeat(np.arange(len(job)), [len(spans["name"]) for _, spans in job])
    columns = joined([spans for _, spans in job])
    occurrence = _occurrences(member, columns)
    order = np.lexsort((member, occurrence, columns["index"], columns["name"]))
    keys = (columns["name"][order], columns["index"][order], occurrence[order])
    first = np.flatnonzero(_changes(*keys))
    if not len(first):
        return columns
    ordered = {column: columns.pop(column)[order] for column in list(columns)}
    return {
        "name": ordered["name"][first],
        "index": ordered["index"][first],
        "pid": ordered["pid"][first],
        "total": np.maximum.reduceat(ordered["total"], first),
        "start_ns": np.minimum.reduceat(ordered["start_ns"], first),
        "end_ns": np.maximum.reduceat(ordered["end_ns"], first),
        "closed": np.logical_and.reduceat(ordered["closed"], first),
        "ended": np.logical_and.reduceat(ordered["ended"], first),
    }


def _occurrences(member: NDArray[np.int64], columns: dict[str, NDArray[Any]]) -> NDArray[np.int64]:
    """How many of the same name and index the same process had before."""
    order = np.lexsort((columns["start_ns"], columns["index"], columns["name"], member))
    new = _changes(member[order], columns["name"][order], columns["index"][order])
    position = np.arange(len(order))
    begins = np.maximum.accumulate(np.where(new, position, 0))
    occurrence = np.empty(len(order), np.int64)
    occurrence[order] = position - begins
    return occurrence


def _changes(*keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True where a row differs from the one before."""
    changed = np.ones(len(keys[0]), bool)
    changed[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    return changed


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


COLUMNS: Final = ("name", "index", "start_ns", "end_ns", "pid", "total", "closed", "ended")


@dataclass(frozen=True)
class SpanTable:
    """Spans by their start, an outer one before what it contains; columns of equal length.

    ``name`` holds positions in ``names``; ``index`` and ``total`` are ``NONE`` where not told.
    ``closed`` are those that came to their end, ``ended`` those whose end was marked: one that was
    broken off, as by Ctrl-C, is ended and not closed.
    """

    names: tuple[str, ...]
    name: NDArray[np.int64]
    index: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    pid: NDArray[np.int64]
    total: NDArray[np.int64]
    closed: NDArray[np.bool_]
    ended: NDArray[np.bool_]
    warnings: tuple[RunWarning, ...] = ()

    def __len__(self) -> int:
        return len(self.start_ns)

    def __iter__(self) -> Iterator[Span]:
        columns = (getattr(self, column).tolist() for column in COLUMNS if column != "ended")
        for name, index, start_ns, end_ns, pid, total, closed in zip(*columns, strict=True):
            yield Span(
                self.names[name],
                None if index == NONE else index,
                start_ns,
                end_ns,
                pid,
                None if total == NONE else total,
                closed,
            )

    def named(self, *names: str) -> SpanTable:
        """Those of the given names only."""
        return self.where(self.is_named(*names))

    def is_named(self, *names: str) -> NDArray[np.bool_]:
        """Which of them have one of the given names."""
        return np.array([name in names for name in self.names], bool)[self.name]

    def where(self, chosen: NDArray[Any]) -> SpanTable:
        """Those that a mask or positions choose."""
        columns = {column: getattr(self, column)[chosen] for column in COLUMNS}
        return SpanTable(self.names, **columns, warnings=self.warnings)


def read_spans(run: Path) -> SpanTable:
    """Every span of a run; the ranks of one job appear as one. Never raises for what it finds."""
    codes: dict[str, int] = {}
    warnings: list[RunWarning] = []
    parts: list[Process] = []
    ended_early = {path.stem for path in (run / MARKS).glob("*.lost")}
    for path in sorted((run / MARKS).glob("*.marks")):
        try:
            damage = find_damage(run, path)
            file = read_mark_file(path, None if damage is None else damage.sound_b)
        except (OSError, UnreadableMarksError) as error:
            warnings.append(_lost(path, str(error)))
            continue
        if path.stem in ended_early or (file and file.cut):
            warnings.append(_lost(path, "its process could write no more, as on a full disk"))
        if file is None:
            continue
        if not file.whole:
            warnings.append(_lost(path, "it is damaged; what stands before the damage is used"))
        columns = file.spans
        known = {code: codes.setdefault(name, len(codes)) for code, name in file.names.items()}
        columns["name"] = _translated(columns["name"], known, codes)
        columns["pid"] = np.full(len(columns["name"]), file.header.pid, np.int64)
        parts.append((file.header, columns))
    return _table(codes, [merged(job) for job in jobs(_without_guesses(parts))], warnings)


def _without_guesses(parts: list[Process]) -> list[Process]:
    """Where a process tells of its epochs, those that were guessed from its loaders go."""
    told: dict[int, set[int]] = {}
    for header, columns in parts:
        told.setdefault(header.pid, set()).update(
            np.unique(columns["name"][~columns["guessed"]]).tolist()
        )
    kept = []
    for header, columns in parts:
        keep = ~columns["guessed"] | ~np.isin(columns["name"], list(told[header.pid]))
        rows = slice(None) if keep.all() else keep
        kept.append((header, {column: columns.pop(column)[rows] for column in COLUMNS}))
    return kept


def _translated(
    names: NDArray[np.int64], known: dict[int, int], codes: dict[str, int]
) -> NDArray[np.int64]:
    used = np.unique(names)
    unknown = any(code not in known for code in used.tolist())
    other = codes.setdefault("?", len(codes)) if unknown else -1
    ours = np.array([known.get(code, other) for code in used.tolist()], np.int64)
    return ours[np.searchsorted(used, names)]


def _table(
    codes: dict[str, int], parts: list[dict[str, NDArray[Any]]], warnings: list[RunWarning]
) -> SpanTable:
    flags = ("closed", "ended")
    empty = {column: np.zeros(0, bool if column in flags else np.int64) for column in COLUMNS}
    columns = joined([empty, *parts])
    order = np.lexsort((-columns["end_ns"], columns["start_ns"]))
    sorted_columns = {column: columns.pop(column)[order] for column in COLUMNS}
    return SpanTable(tuple(codes), **sorted_columns, warnings=tuple(warnings))


def _lost(path: Path, reason: str) -> RunWarning:
    return RunWarning(
        Caution.SPANS_LOST,
        f"spans in {path.name} were lost: {reason}",
        "the energy of the whole run is not affected",
    )
