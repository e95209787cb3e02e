"""Entries of sweeps in the index of a store, by which sweeps are listed and found.

``sweep.json`` has a line for each run, some 50 kB of a sweep of 50 runs. To list 2,000 sweeps, or
to find the newest, the index is enough: each ``sweep.json`` is stat'ed, and read only if it has
changed since the last time (see ``store.index``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from joulewise.data import Source
from joulewise.data.sweeps import RunCounts, Sweep
from joulewise.errors import JoulewiseError
from joulewise.store.index.conditions import ALWAYS, SqlCondition, text_is, text_value
from joulewise.store.index.database import FolderKind, Record, fields_of
from joulewise.store.index.folder_index import FolderIndex, ListPage, query_index
from joulewise.store.layout import SWEEPS
from joulewise.sweep.lock import is_running
from joulewise.sweep.spec import SweepSpec
from joulewise.sweep.stored_sweeps import (
    INTERRUPTED,
    RUNNING,
    SWEEP_FILE,
    SWEEP_FORMAT,
    load_as_written,
)

_T = TypeVar("_T")

_NEWEST_FIRST: Final = "is_damaged, start_ns DESC, folder DESC"
_PRESENT: Final = SqlCondition("is_present")
_READABLE: Final = SqlCondition("is_present AND NOT is_damaged")
_UNREADABLE: Final = SqlCondition("is_present AND is_damaged")
_PATH: Final = "\0"  # stands for the path of the sweep, which depends on how the store is named


@dataclass(frozen=True)
class SweepEntry:
    """A sweep in a list.

    ``problem`` is why it cannot be read; the rest is empty then. ``settings`` is their number,
    ``workload`` says in words what trains, ``digest`` identifies the spec.
    """

    path: Path
    problem: str = ""
    id: str = ""
    name: str = ""
    state: str = ""
    start_wall_ns: int = 0
    gpu_name: str = ""
    axes: tuple[str, ...] = ()
    settings: int = 0
    is_simulated: bool = False
    workload: str = ""
    digest: str = ""
    runs: RunCounts = RunCounts(0, 0, 0, 0)  # noqa: RUF009  # it is frozen


@dataclass(frozen=True)
class SweepPage:
    """A page of sweeps, the newest first, unreadable ones last; ``total`` counts all pages."""

    sweeps: tuple[SweepEntry, ...]
    total: int


def list_sweeps(store: Path, *, limit: int | None = None, page: int = 1) -> SweepPage:
    """Return a page of ``limit`` sweeps, counted from 1; without a limit all of them."""

    def use(index: FolderIndex) -> SweepPage:
        offset = (page - 1) * limit if limit else 0
        entries = _select(index, store, _PRESENT, limit, offset)
        return SweepPage(tuple(entries), index.count(_PRESENT))

    return _query(store, use, SweepPage((), 0))


def list_unreadable(store: Path) -> list[SweepEntry]:
    """The sweeps that cannot be read, each with its problem."""
    return _query(store, lambda index: _select(index, store, _UNREADABLE, None), [])


def find_newest(store: Path, condition: SqlCondition = ALWAYS) -> SweepEntry | None:
    """The newest readable sweep that meets a condition; None where there is none."""
    return find_newest_of(store, [condition])[0]


def find_newest_of(store: Path, conditions: Sequence[SqlCondition]) -> list[SweepEntry | None]:
    """The newest readable sweep for each of several conditions; None where there is none."""

    def use(index: FolderIndex) -> list[SweepEntry | None]:
        matches = (_select(index, store, _READABLE & condition, 1) for condition in conditions)
        return [entries[0] if entries else None for entries in matches]

    return _query(store, use, [None] * len(conditions))


def is_named(name: str) -> SqlCondition:
    return text_is("name", name)


def has_digest(digest: str) -> SqlCondition:
    return text_is("digest", digest)


def read_sweep_entry(path: Path) -> SweepEntry:
    """Read the entry of a sweep from its files."""
    return _now(_read(path)[0])


def _query(store: Path, use: Callable[[FolderIndex], _T], without: _T) -> _T:
    try:
        return query_index(store, SWEEP_FOLDERS, use)
    except OSError:  # there are no sweeps, or they cannot be listed
        return without


def _select(
    index: FolderIndex, store: Path, condition: SqlCondition, limit: int | None, offset: int = 0
) -> list[SweepEntry]:
    rows = index.select(condition, ListPage(_NEWEST_FIRST, limit, offset))
    return [_entry(store / SWEEPS / name, data) for name, data in rows]


def _read(path: Path) -> tuple[SweepEntry, bool]:
    """The entry as the file has it, and whether the index may keep it."""
    try:
        sweep = load_as_written(path)
    except JoulewiseError as error:
        cause = error.__context__
        is_lasting = not isinstance(cause, OSError) or isinstance(cause, FileNotFoundError)
        return SweepEntry(path, problem=error.message), is_lasting
    is_simulated = _is_simulated(sweep)
    entry = SweepEntry(
        path,
        id=sweep.id,
        name=sweep.name,
        state=sweep.state,
        start_wall_ns=sweep.start_wall_ns,
        gpu_name=sweep.gpu_name,
        axes=sweep.axes,
        settings=len(sweep.settings),
        is_simulated=is_simulated,
        workload=_workload(sweep, is_simulated=is_simulated),
        digest=_digest(sweep),
        runs=RunCounts.of(sweep.trials),
    )
    return entry, True


def _is_simulated(sweep: Sweep) -> bool:
    """Whether runs of the sweep were in virtual time, or on simulated GPUs or CPUs."""
    energies = (energy for trial in sweep.trials for energy in trial.energy.values())
    return bool(sweep.asked.get("simulated")) or any(
        energy.source is Source.SIMULATED for energy in energies
    )


def _workload(sweep: Sweep, *, is_simulated: bool) -> str:
    simulated = sweep.asked.get("simulated")
    if simulated:
        trains = simulated.get("workload") or f"like {simulated.get('like')}"
        return f"{trains}, simulated {simulated.get('gpu')}"
    command = " ".join(sweep.asked.get("command", ()))
    return f"simulated GPU, {command}" if is_simulated else command


def _digest(sweep: Sweep) -> str:
    """The digest of the spec; empty where it has fields of a newer joulewise."""
    try:
        return SweepSpec.from_json(sweep.asked).digest
    except (TypeError, KeyError):
        return ""


def _now(entry: SweepEntry) -> SweepEntry:
    """The entry with its present state: one that no process runs was interrupted."""
    if entry.state == RUNNING and not is_running(entry.path):
        return replace(entry, state=INTERRUPTED)
    return entry


def _entry(path: Path, data: Mapping[str, Any]) -> SweepEntry:
    """Decode the data that :func:`_record` made."""
    fields = {**data, "axes": tuple(data["axes"]), "runs": RunCounts(**data["runs"])}
    fields["problem"] = data["problem"].replace(_PATH, str(path))
    return SweepEntry(path, **fields)


def _record(entry: SweepEntry, *, is_lasting: bool = True) -> Record:
    data = {key: value for key, value in vars(entry).items() if key != "path"}
    data["problem"] = entry.problem.replace(str(entry.path), _PATH)
    data["runs"] = asdict(entry.runs)
    values = (
        int((entry.path / SWEEP_FILE).is_file()),
        int(bool(entry.problem)),
        text_value(entry.name),
        text_value(entry.digest),
        entry.start_wall_ns,
    )
    return Record(values, data, is_open=entry.state == RUNNING, is_lasting=is_lasting)


def _read_record(path: Path) -> Record:
    entry, is_lasting = _read(path)
    return _record(entry, is_lasting=is_lasting)


def _current_record(path: Path, data: Mapping[str, Any]) -> Record:
    return _record(_now(_entry(path, data)))


SWEEP_FOLDERS: Final = FolderKind(
    table="sweeps",
    parent=SWEEPS,
    excluded=frozenset(),
    files=(SWEEP_FILE,),
    columns={
        **dict.fromkeys(("is_present", "is_damaged"), "INTEGER NOT NULL"),
        **dict.fromkeys(("name", "digest"), "BLOB NOT NULL"),
        "start_ns": "INTEGER NOT NULL",
    },
    order=("start_ns", "folder", "is_damaged", "is_present"),
    read=_read_record,
    current=_current_record,
    version=1,
    fields=fields_of(SweepEntry, RunCounts),
    formats=(SWEEP_FORMAT,),
    reading_cost=8,
)
