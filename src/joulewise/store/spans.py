"""The spans of a run, from the files of marks that its processes wrote.

The format of those files is in docs/reference/marks.md. Here spans are read (``read_mark_file``),
the ranks of one job are merged (an epoch lasts from the first rank's begin to the last one's end),
and all spans of a run become one table (``read_spans``). ``SpanFollower`` reads trainings and
epochs while the program runs, for the forecast; ``MarkTail`` reads what one file gained.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from joulewise.data import QualityWarning, Span, WarningCode
from joulewise.hooks import marks as mark_format
from joulewise.store.checksums import find_damage
from joulewise.store.files import open_regular
from joulewise.store.layout import MARKS

__all__ = ["MarkTail", "SpanFollower", "SpanTable", "read_spans"]

# The fields of ``hooks.marks.MARK_FORM``, as numpy reads many of them at once.
RECORD = np.dtype(
    [
        ("magic", "u1"), ("kind", "u1"), ("flags", "<u2"), ("name", "<u4"),
        ("t_ns", "<i8"), ("start_ns", "<i8"), ("index", "<i8"), ("total", "<i8"),
        ("thread", "<u4"), ("token", "<u4"),
    ]
)  # fmt: skip
assert RECORD.itemsize == mark_format.MARK_FORM.size  # noqa: S101  # of the same fields
_RECORDS_AT_ONCE: Final = 65_536  # of 48 bytes: 3 MB; chosen, only memory depends on it


class UnreadableMarksError(Exception):
    """Not a file of marks, or one of a newer format."""


@dataclass(frozen=True)
class MarkHeader:
    """The process that wrote a file of marks, and its rank; ``job`` is common to all ranks."""

    pid: int
    start_ns: int
    rank: int
    world_size: int
    local_rank: int
    job: int


@dataclass(frozen=True)
class MarkFile:
    """The content of a file of marks.

    ``spans`` are columns of equal length, with ``name`` as a code of ``names``. ``whole`` is False
    where something other than a record was found; the rest is not read. ``cut`` says that the file
    ends in half a record: a disk was full, and nothing was written since.
    """

    header: MarkHeader
    names: dict[int, str]
    spans: dict[str, NDArray[Any]]
    whole: bool
    cut: bool


def read_mark_file(path: Path, sound_b: int | None = None) -> MarkFile | None:
    """Read a file of marks; half a record at the end is ignored. None of an empty file.

    ``sound_b`` limits it to so many bytes, where the file is damaged beyond them.
    """
    collector, header, whole = _SpanCollector(), None, True
    with open_regular(path) as stream:
        size_b = os.fstat(stream.fileno()).st_size
        left = (size_b if sound_b is None else min(size_b, sound_b)) // RECORD.itemsize
        while whole and len(records := np.fromfile(stream, RECORD, min(_RECORDS_AT_ONCE, left))):
            left -= len(records)
            header = header or read_header(records[:1].tobytes())
            is_sound = has_sound_form(records)
            whole = bool(is_sound.all())
            collector.add(records if whole else records[: int(np.argmin(is_sound))])
    if header is None:
        return None
    cut = size_b % RECORD.itemsize > 0
    return MarkFile(header, read_names(collector.names()), collector.spans(), whole, cut)


def read_header(record: bytes) -> MarkHeader:
    """Decode the first record of a file; an UnreadableMarksError where it is not a header."""
    fields = mark_format.HEADER_FORM.unpack(record)
    magic, kind, version, pid, start_ns, _, rank, world_size, local_rank, _, job = fields
    if (magic, kind) != (mark_format.MAGIC, mark_format.HEADER):
        raise UnreadableMarksError("it is not a file of marks")
    if version > mark_format.VERSION:
        raise UnreadableMarksError(f"its format {version} is newer than this joulewise")
    return MarkHeader(pid, start_ns, rank, world_size, local_rank, job)


def has_sound_form(records: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which records begin as every record does, and are of a known kind."""
    kind = records["kind"]
    has_magic: NDArray[np.bool_] = records["magic"] == mark_format.MAGIC
    return has_magic & (kind >= mark_format.HEADER) & (kind <= mark_format.FIGURE)


def read_names(records: NDArray[np.void]) -> dict[int, str]:
    """Names of spans by their code; each was written once, in parts, before its first use."""
    texts: dict[int, list[bytes]] = {}
    for record in records[records["kind"] == mark_format.NAME]:
        *_, code, text = mark_format.NAME_FORM.unpack(record.tobytes())
        texts.setdefault(code, []).append(text)
    return {
        code: b"".join(parts).rstrip(b"\0").decode("utf-8", "replace")
        for code, parts in texts.items()
    }


class _SpanCollector:
    """Collects the columns of spans from records, little enough that millions of steps fit."""

    def __init__(self) -> None:
        self._names: list[NDArray[np.void]] = []
        self._spans: list[dict[str, NDArray[Any]]] = []
        self._ends: list[dict[str, NDArray[Any]]] = []
        self._last_ns = 0

    def add(self, records: NDArray[np.void]) -> None:
        kind = records["kind"]
        self._names.append(records[kind == mark_format.NAME])
        spans = records[(kind == mark_format.BEGIN) | (kind == mark_format.WHOLE)]
        copied = ("name", "index", "total", "start_ns", "token")
        self._spans.append(
            {column: spans[column].copy() for column in copied}
            | {
                "end_ns": spans["t_ns"].copy(),
                "closed": spans["kind"] == mark_format.WHOLE,
                "ended": spans["kind"] == mark_format.WHOLE,
                "guessed": spans["flags"] & mark_format.GUESSED > 0,
            }
        )
        ends = records[kind == mark_format.END]
        self._ends.append(
            {
                "token": ends["token"].copy(),
                "t_ns": ends["t_ns"].copy(),
                "cut": ends["flags"] & mark_format.CUT > 0,
            }
        )
        times_ns = records["t_ns"][kind >= mark_format.BEGIN]
        self._last_ns = max(self._last_ns, int(times_ns.max(initial=0)))

    def names(self) -> NDArray[np.void]:
        return np.concatenate(self._names)

    def spans(self) -> dict[str, NDArray[Any]]:
        """The columns of all spans, each begin matched with its end by its token."""
        columns, ends = concatenate_columns(self._spans), concatenate_columns(self._ends)
        tokens = columns.pop("token")
        begun = np.flatnonzero(~columns["closed"])
        columns["end_ns"][begun] = self._last_ns  # without an end: the last sign of life
        if len(begun) and len(ends["token"]):
            tokens = tokens[begun]
            order = np.argsort(tokens, kind="stable")
            match = np.searchsorted(tokens, ends["token"], sorter=order)
            match = order[np.minimum(match, len(order) - 1)]
            is_known = tokens[match] == ends["token"]
            row = begun[match[is_known]]
            columns["end_ns"][row] = ends["t_ns"][is_known]  # of several ends, the last one holds
            columns["closed"][row] = ~ends["cut"][is_known]
            columns["ended"][row] = True
        np.maximum(columns["end_ns"], columns["start_ns"], out=columns["end_ns"])
        return columns


def concatenate_columns(parts: list[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Concatenate parts column by column; the parts are emptied, to save memory."""
    return {
        column: np.concatenate([part.pop(column) for part in parts]) for column in list(parts[0])
    }


ProcessSpans = tuple[MarkHeader, dict[str, NDArray[Any]]]


def group_by_job(processes: Sequence[ProcessSpans]) -> list[list[ProcessSpans]]:
    """The processes of each job, by rank.

    Two jobs may have the same key (one after the other on one port), so a rank that is present
    already begins the next job.
    """
    single = [[process] for process in processes if process[0].world_size <= 1]
    open_jobs: dict[tuple[int, int], list[ProcessSpans]] = {}
    jobs = []
    ranked = [process for process in processes if process[0].world_size > 1]
    for process in sorted(ranked, key=lambda process: process[0].start_ns):
        header = process[0]
        key = (header.job, header.world_size)
        job = open_jobs.get(key)
        if job is None or any(member.rank == header.rank for member, _ in job):
            job = open_jobs[key] = []
            jobs.append(job)
        job.append(process)
    for job in jobs:
        job.sort(key=lambda process: process[0].rank)
    return single + jobs


def merge_ranks(job: Sequence[ProcessSpans]) -> dict[str, NDArray[Any]]:
    """The spans of all ranks as one: earliest start, latest end.

    Where a name and index repeats, the first of each rank are merged, then the second, and so on.
    A span that only some ranks have is theirs. The process id is that of the lowest rank.
    """
    if len(job) == 1:
        return job[0][1]
    member = np.repeat(np.arange(len(job)), [len(spans["name"]) for _, spans in job])
    columns = concatenate_columns([spans for _, spans in job])
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
    """How many earlier spans of the same process have the same name and index."""
    order = np.lexsort((columns["start_ns"], columns["index"], columns["name"], member))
    new = _changes(member[order], columns["name"][order], columns["index"][order])
    position = np.arange(len(order))
    first = np.maximum.accumulate(np.where(new, position, 0))
    occurrence = np.empty(len(order), np.int64)
    occurrence[order] = position - first
    return occurrence


def _changes(*keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True where a row differs from the row before, and in the first."""
    changed = np.ones(len(keys[0]), bool)
    changed[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    return changed


_FOLLOWED_NAMES: Final = ("training", "epoch")
_BYTES_AT_ONCE: Final = 4096 * RECORD.itemsize  # 200 kB; chosen, only memory depends on it


class MarkTail:
    """Reads what a growing file of marks gained, and knows its header and its names so far.

    ``read`` gives each record once; half a record at the end is left for the next call. It raises
    an OSError, or an UnreadableMarksError where the file is damaged, after the records before the
    damage, or not one of marks. ``sound_b`` limits it to so many bytes.
    """

    def __init__(self, path: Path, sound_b: int | None = None) -> None:
        self.path = path
        self._sound_b = sys.maxsize if sound_b is None else sound_b
        self.header: MarkHeader | None = None
        self._read_b = 0
        self._names_by_code: dict[int, bytes] = {}

    def name_of(self, code: int) -> str:
        """The name with this code, "?" where the file has none."""
        text = self._names_by_code.get(code)
        return "?" if text is None else text.rstrip(b"\0").decode("utf-8", "replace")

    def read(self) -> Iterator[NDArray[np.void]]:
        """The records since the last call, a few thousand at a time."""
        with open_regular(self.path) as stream:
            if os.fstat(stream.fileno()).st_size < self._read_b + RECORD.itemsize:
                return
            stream.seek(self._read_b)
            while data := stream.read(min(_BYTES_AT_ONCE, self._sound_b - self._read_b)):
                records = np.frombuffer(data, RECORD, len(data) // RECORD.itemsize)
                if not len(records):
                    break
                self._read_b += records.nbytes
                stream.seek(self._read_b)
                if self.header is None:
                    self.header = read_header(records[:1].tobytes())
                is_sound = has_sound_form(records)
                is_whole = bool(is_sound.all())
                records = records if is_whole else records[: int(np.argmin(is_sound))]
                for record in records[records["kind"] == mark_format.NAME]:
                    *_, code, text = mark_format.NAME_FORM.unpack(record.tobytes())
                    self._names_by_code[code] = self._names_by_code.get(code, b"") + text
                yield records
                if not is_whole:
                    raise UnreadableMarksError("damaged")


@dataclass
class _FollowedFile:
    """A growing file: ``codes`` of the names that are followed, begun spans by their token."""

    tail: MarkTail
    codes: dict[int, str] = field(default_factory=dict)
    open: dict[int, Span] = field(default_factory=dict)


class SpanFollower:
    """Reads the spans that were marked since the last poll, of the first local rank of each job."""

    def __init__(self, marks: Path, names: Collection[str] = _FOLLOWED_NAMES) -> None:
        self._marks = marks
        self._names = frozenset(names)
        self._files: dict[str, _FollowedFile | None] = {}
        self._announced: set[tuple[int, str]] = set()

    def poll(self) -> list[Span]:
        """Spans that began or ended since the last poll, by their start.

        One that only began is not ``closed``, and its end is its start. One that was broken off is
        not closed either, and has its end. A span that went on after its end (a step that followed
        the last batch) comes again, with the later end.
        """
        for path in sorted(self._marks.glob("*.marks")):
            if path.name not in self._files:
                self._files[path.name] = _FollowedFile(MarkTail(path))
        spans: list[Span] = []
        for name, file in self._files.items():
            if file is None:
                continue
            try:
                new_spans = _read_new_spans(file, self._announced, self._names)
            except (OSError, UnreadableMarksError):
                new_spans = None  # read_spans warns of it
            if new_spans is None:
                self._files[name] = None
            else:
                spans += new_spans
        return sorted(spans, key=lambda span: span.start_ns)


def _read_new_spans(
    file: _FollowedFile, announced: set[tuple[int, str]], names: frozenset[str]
) -> list[Span] | None:
    """The spans since the last call; None of a rank whose spans another one marks as well."""
    new_spans: dict[int, Span] = {}
    for records in file.tail.read():
        if file.tail.header is not None and file.tail.header.local_rank > 0:
            return None
        for code in np.unique(records["name"][records["kind"] == mark_format.NAME]).tolist():
            if (name := file.tail.name_of(code)) in names:
                file.codes[code] = name
        _add_records(file, records, announced, new_spans)
    return list(new_spans.values())


def _add_records(
    file: _FollowedFile,
    records: NDArray[np.void],
    announced: set[tuple[int, str]],
    new_spans: dict[int, Span],
) -> None:
    """Add spans by their token; guessed ones only if the process announces none of that name."""
    pid = file.tail.header.pid if file.tail.header is not None else 0
    ours = np.isin(records["name"], list(file.codes)) & (records["kind"] == mark_format.BEGIN)
    for record in records[ours]:
        name, t_ns = file.codes[int(record["name"])], int(record["t_ns"])
        if not record["flags"] & mark_format.GUESSED:
            announced.add((pid, name))
        elif (pid, name) in announced:
            continue
        index, total = (_none_if_absent(int(record[key])) for key in ("index", "total"))
        span = Span(name, index, t_ns, t_ns, pid, total, closed=False)
        file.open[int(record["token"])] = new_spans[int(record["token"])] = span
    ours = np.isin(records["token"], list(file.open)) & (records["kind"] == mark_format.END)
    for record in records[ours]:
        token = int(record["token"])
        is_cut = bool(record["flags"] & mark_format.CUT)
        new_spans[token] = replace(file.open[token], end_ns=int(record["t_ns"]), closed=not is_cut)


def _none_if_absent(value: int) -> int | None:
    return None if value == mark_format.NONE else value


COLUMNS: Final = ("name", "index", "start_ns", "end_ns", "pid", "total", "closed", "ended")


@dataclass(frozen=True)
class SpanTable:
    """All spans of a run, in columns of equal length; sorted by start, outer spans first.

    ``name`` holds positions in ``names``; ``index`` and ``total`` are ``NONE`` where the program
    did not give them. ``closed`` are those that came to their end, ``ended`` those whose end was
    marked: one that was broken off, as by Ctrl-C, is ended and not closed.
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
    warnings: tuple[QualityWarning, ...] = ()

    def __len__(self) -> int:
        return len(self.start_ns)

    def __iter__(self) -> Iterator[Span]:
        columns = (getattr(self, column).tolist() for column in COLUMNS if column != "ended")
        for name, index, start_ns, end_ns, pid, total, closed in zip(*columns, strict=True):
            yield Span(
                self.names[name],
                _none_if_absent(index),
                start_ns,
                end_ns,
                pid,
                _none_if_absent(total),
                closed,
            )

    def named(self, *names: str) -> SpanTable:
        """Only the spans of these names."""
        return self.where(self.is_named(*names))

    def is_named(self, *names: str) -> NDArray[np.bool_]:
        """Which spans have one of these names."""
        return np.array([name in names for name in self.names], bool)[self.name]

    def where(self, chosen: NDArray[Any]) -> SpanTable:
        """Only the spans that a mask or positions select."""
        columns = {column: getattr(self, column)[chosen] for column in COLUMNS}
        return SpanTable(self.names, **columns, warnings=self.warnings)


def read_spans(run: Path) -> SpanTable:
    """Every span of a run, with the ranks of one job merged; damage is a warning, not an error."""
    codes: dict[str, int] = {}
    warnings: list[QualityWarning] = []
    parts: list[ProcessSpans] = []
    ended_early = {path.stem for path in (run / MARKS).glob("*.lost")}
    for path in sorted((run / MARKS).glob("*.marks")):
        try:
            damage = find_damage(run, path)
            file = read_mark_file(path, None if damage is None else damage.sound_b)
        except (OSError, UnreadableMarksError) as error:
            warnings.append(_lost_spans(path, str(error)))
            continue
        if path.stem in ended_early or (file and file.cut):
            warnings.append(_lost_spans(path, "its process could write no more, as on a full disk"))
        if file is None:
            continue
        if not file.whole:
            warnings.append(
                _lost_spans(path, "it is damaged; what stands before the damage is used")
            )
        columns = file.spans
        used = set(np.unique(columns["name"]).tolist())  # others are names of figures
        own_codes = {
            code: codes.setdefault(name, len(codes))
            for code, name in file.names.items()
            if code in used
        }
        columns["name"] = _translate_names(columns["name"], own_codes, codes)
        columns["pid"] = np.full(len(columns["name"]), file.header.pid, np.int64)
        parts.append((file.header, columns))
    return _make_table(
        codes, [merge_ranks(job) for job in group_by_job(_drop_guesses(parts))], warnings
    )


def _drop_guesses(parts: list[ProcessSpans]) -> list[ProcessSpans]:
    """Drop spans that were guessed from loaders where the process announces spans of that name."""
    announced: dict[int, set[int]] = {}
    for header, columns in parts:
        announced.setdefault(header.pid, set()).update(
            np.unique(columns["name"][~columns["guessed"]]).tolist()
        )
    result = []
    for header, columns in parts:
        valid = ~columns["guessed"] | ~np.isin(columns["name"], list(announced[header.pid]))
        rows = slice(None) if valid.all() else valid
        result.append((header, {column: columns.pop(column)[rows] for column in COLUMNS}))
    return result


def _translate_names(
    names: NDArray[np.int64], own_codes: dict[int, int], codes: dict[str, int]
) -> NDArray[np.int64]:
    """A file's own codes of names as those of the run; "?" for a code without a name."""
    used = np.unique(names)
    has_unknown = any(code not in own_codes for code in used.tolist())
    unknown = codes.setdefault("?", len(codes)) if has_unknown else -1
    translated = np.array([own_codes.get(code, unknown) for code in used.tolist()], np.int64)
    return translated[np.searchsorted(used, names)]


def _make_table(
    codes: dict[str, int], parts: list[dict[str, NDArray[Any]]], warnings: list[QualityWarning]
) -> SpanTable:
    flags = ("closed", "ended")
    empty = {column: np.zeros(0, bool if column in flags else np.int64) for column in COLUMNS}
    columns = concatenate_columns([empty, *parts])
    order = np.lexsort((-columns["end_ns"], columns["start_ns"]))
    sorted_columns = {column: columns.pop(column)[order] for column in COLUMNS}
    return SpanTable(tuple(codes), **sorted_columns, warnings=tuple(warnings))


def _lost_spans(path: Path, reason: str) -> QualityWarning:
    return QualityWarning(
        WarningCode.SPANS_LOST,
        f"spans in {path.name} were lost: {reason}",
        "the energy of the whole run is not affected",
    )
