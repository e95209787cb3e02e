"""The spans of a run, from the marks that its processes left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from joulewise.data import Caution, RunWarning, Span
from joulewise.hooks.marks import NONE
from joulewise.record.checksums import find_damage
from joulewise.record.layout import MARKS
from joulewise.record.mark_files import UnreadableMarksError, joined, read_mark_file
from joulewise.record.rank_merge import Process, jobs, merged
from joulewise.record.span_follower import SpanFollower

__all__ = ["SpanFollower", "SpanTable", "read_spans"]

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
