"""Figures that the program logged (a loss, an accuracy), from the files of marks of a run.

``LoggedFollower`` reads them while the program runs, ``read_logged`` those of a whole run.

- A figure that a hook took from its framework counts where the process logs none of that name.
- Of several ranks of one job, the lowest that logs a name counts for that name: often each rank
  logs its own loss, and sometimes only the last one has any.
- The epoch is the one that was logged, else the last one that the process had begun by then in
  the same training.
"""

from __future__ import annotations

import math
import os
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from joulewise.hooks import marks as mark_format
from joulewise.store.checksums import find_damage
from joulewise.store.layout import MARKS
from joulewise.store.spans import MarkHeader, MarkTail, UnreadableMarksError

_TRAINING: Final = "training"
_EPOCH: Final = "epoch"
# Categories of Unicode whose characters do not print, or steer a terminal.
_NO_TEXT: Final = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")


@dataclass(frozen=True)
class LoggedValue:
    """A figure as it was logged at one moment (CLOCK_MONOTONIC); ``value`` may not be finite.

    ``epoch`` counts from 0; None where the process had begun none.
    """

    name: str
    value: float
    t_ns: int
    epoch: int | None = None


@dataclass(frozen=True)
class LoggedSummary:
    """What was logged under one name.

    ``values`` is how many, ``not_finite`` how many of them are infinite or not a number, and
    ``first``, ``last``, ``lowest`` and ``highest`` are of the others; None where there are none.
    ``epoch`` is that of the last value.
    """

    name: str
    values: int
    not_finite: int
    first: float | None
    last: float | None
    lowest: float | None
    highest: float | None
    epoch: int | None


def summarise_logged(values: Sequence[LoggedValue]) -> tuple[LoggedSummary, ...]:
    """A summary of each name, in the order in which they were first logged."""
    by_name: dict[str, list[LoggedValue]] = {}
    for each in values:
        by_name.setdefault(each.name, []).append(each)
    return tuple(_summarise(name, of_name) for name, of_name in by_name.items())


def _summarise(name: str, logged: Sequence[LoggedValue]) -> LoggedSummary:
    finite = [each.value for each in logged if math.isfinite(each.value)]
    return LoggedSummary(
        name,
        values=len(logged),
        not_finite=len(logged) - len(finite),
        first=finite[0] if finite else None,
        last=finite[-1] if finite else None,
        lowest=min(finite, default=None),
        highest=max(finite, default=None),
        epoch=logged[-1].epoch,
    )


def logged_json(run: Path) -> list[dict[str, Any]]:
    """The summaries of a run, as ``logged`` in its JSON."""
    return [asdict(summary) for summary in summarise_logged(read_logged(run))]


def clean_name(name: str) -> str:
    """A name without characters that do not print, and with single spaces."""
    shown = "".join(" " if unicodedata.category(c) in _NO_TEXT else c for c in name)
    return " ".join(shown.split()) or "?"


class _LoggedRecord(NamedTuple):
    """A logged figure, or the begin of a training or an epoch."""

    t_ns: int
    is_figure: bool
    is_guessed: bool
    name: str
    number: int | None  # of the epoch
    value: float
    header: MarkHeader


@dataclass
class _LoggingProcess:
    """What is known of a process: the epoch that it is in, and what it announces itself."""

    epoch: int | None = None
    announced: set[str] = field(default_factory=set)


class LoggedFollower:
    """Reads the figures that were logged since the last poll."""

    def __init__(self, marks: Path) -> None:
        self._marks = marks
        self._tails: dict[str, MarkTail | None] = {}  # None: it cannot be read any further
        self._processes: dict[int, _LoggingProcess] = {}
        # By the job and the name: a hook comes after the program itself, then the lowest rank.
        self._sources: dict[tuple[Any, str], tuple[bool, int]] = {}

    def poll(self) -> list[LoggedValue]:
        """Values that were logged since the last poll, by their time."""
        self._find_files()
        records = [record for name in self._tails for record in self._read(name)]
        records.sort(key=lambda record: record.t_ns)
        logged = []
        for record in records:
            process = self._processes.setdefault(record.header.pid, _LoggingProcess())
            if not record.is_figure:
                _follow_epoch(process, record)
                continue
            epoch = process.epoch if record.number is None else record.number
            source = (record.is_guessed, record.header.rank)
            key = (_job(record.header), record.name)
            self._sources[key] = min(source, self._sources.get(key, source))
            logged.append((key, source, LoggedValue(record.name, record.value, record.t_ns, epoch)))
        return [value for key, source, value in logged if source == self._sources[key]]

    def _find_files(self) -> None:
        try:
            names = [entry.name for entry in os.scandir(self._marks)]
        except OSError:
            return
        for name in sorted(names):
            if name.endswith(".marks") and name not in self._tails:
                self._tails[name] = self._open(name)

    def _open(self, name: str) -> MarkTail:
        return MarkTail(self._marks / name)

    def _read(self, name: str) -> Iterator[_LoggedRecord]:
        tail = self._tails[name]
        if tail is None:
            return
        try:
            for records in tail.read():
                yield from _decode(tail, records)
        except (OSError, UnreadableMarksError):
            self._tails[name] = None  # read_spans warns of it


class _SoundFigures(LoggedFollower):
    """The same of a run that is over, without what was damaged since."""

    def __init__(self, run: Path) -> None:
        super().__init__(run / MARKS)
        self._run = run

    def _open(self, name: str) -> MarkTail:
        path = self._marks / name
        damage = find_damage(self._run, path)
        return MarkTail(path, None if damage is None else damage.sound_b)


def read_logged(run: Path) -> list[LoggedValue]:
    """All figures that were logged in a run, by their time; damaged ones are left out."""
    return _SoundFigures(run).poll()


def _job(header: MarkHeader) -> tuple[int, ...]:
    return (header.job, header.world_size) if header.world_size > 1 else (header.pid,)


def _follow_epoch(process: _LoggingProcess, record: _LoggedRecord) -> None:
    if not record.is_guessed:
        process.announced.add(record.name)
    elif record.name in process.announced:
        return
    if record.name == _TRAINING:
        process.epoch = None
    else:
        last = -1 if process.epoch is None else process.epoch
        process.epoch = last + 1 if record.number is None else record.number


def _decode(tail: MarkTail, records: Any) -> Iterator[_LoggedRecord]:
    """The figures among some records, and the begins of trainings and epochs."""
    if tail.header is None:
        return
    kinds = records["kind"]
    is_figure, is_begin = kinds == mark_format.FIGURE, kinds == mark_format.BEGIN
    values = records["start_ns"].view("<f8")
    for at in (is_figure | is_begin).nonzero()[0].tolist():
        record = records[at]
        name, index = tail.name_of(int(record["name"])), int(record["index"])
        if is_begin[at] and name not in {_TRAINING, _EPOCH}:
            continue
        yield _LoggedRecord(
            t_ns=int(record["t_ns"]),
            is_figure=bool(is_figure[at]),
            is_guessed=bool(record["flags"] & mark_format.GUESSED),
            name=clean_name(name),
            number=None if index == mark_format.NONE else index,
            value=float(values[at]) if is_figure[at] else 0.0,
            header=tail.header,
        )
