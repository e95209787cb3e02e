"""What the index holds of a run (what a list shows, filters and sorts by), and queries."""

from __future__ import annotations

import json
import math
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final

from joulewise.data import Source
from joulewise.data.run_result_json import RESULT_FORMAT, TOTAL, decode_energy
from joulewise.errors import JoulewiseError
from joulewise.store.files import read_regular
from joulewise.store.index.conditions import SqlCondition, list_value, text_value
from joulewise.store.index.database import FolderKind, Record, fields_of
from joulewise.store.index.folder_index import FolderIndex, ListPage, query_index
from joulewise.store.layout import FORMAT, LIVE, MANIFEST, RESULT, SWEEPS
from joulewise.store.manifest import Manifest, read_manifest
from joulewise.store.runs import (
    RECORDING,
    RecorderSign,
    load_summary,
    order_of,
    sign_of,
    state_of,
    unlistable_store_error,
)
from joulewise.units import NS_PER_S

EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
OLDEST_FIRST: Final = "order_s, start_ns, folder"
NEWEST_FIRST: Final = "order_s DESC, start_ns DESC, folder DESC"
READABLE: Final = SqlCondition("NOT is_damaged")
UNREADABLE: Final = SqlCondition("is_damaged")
SWEEP_TAG: Final = "sweep:"

_PATH: Final = "\0"  # in place of the path of the run, which depends on how the store is named


@dataclass(frozen=True)
class RunEntry:
    """A run in a list.

    - ``problem``: why it cannot be read; then the rest is empty
    - ``link``: which part of it is a symbolic link
    - ``energy``: the total in its documented form; None where no device could be read, or, unless
      ``is_computed``, it was not computed yet. Of a run that is being recorded, the total so far
    - ``simulated``: its simulated devices; ``simulated_counted``: those of them that count
    - ``sign``: the recorder's sign of life
    """

    path: Path
    problem: str = ""
    link: str = ""
    id: str = ""
    name: str = ""
    tags: tuple[str, ...] = ()
    group: str = ""
    host: str = ""
    state: str = ""
    exit_code: int | None = None
    codes: tuple[str, ...] = ()
    start_ns: int = 0
    time_s: float | None = None
    energy: dict[str, Any] | None = None
    simulated: tuple[str, ...] = ()
    simulated_counted: tuple[str, ...] = ()
    is_computed: bool = False
    command: str = ""
    sign: RecorderSign | None = None

    @property
    def energy_j(self) -> float | None:
        return self.energy["value"] if self.energy else None

    @property
    def is_bound(self) -> bool:
        """Whether the energy is a lower bound: some device that counts was not read."""
        return bool(self.energy and self.energy.get("at_least"))

    @property
    def started(self) -> datetime:
        return datetime.fromtimestamp(self.start_ns / NS_PER_S, timezone.utc).astimezone()

    @property
    def order(self) -> tuple[int, int]:
        return order_of(self.path, self.start_ns)


def read_entry(path: Path) -> RunEntry:
    """The entry of a run, made from its files."""
    return _with_current_state(_read(path)[0])


def select_runs(
    index: FolderIndex, store: Path, condition: SqlCondition, page: ListPage
) -> list[RunEntry]:
    """The runs of one page that meet a condition."""
    return [_entry(store / name, data) for name, data in index.select(condition, page)]


def find_runs(store: Path, condition: SqlCondition) -> list[RunEntry]:
    """The runs that can be read and meet a condition, oldest first."""
    return _find_runs(store, READABLE & condition)


def find_unreadable_runs(store: Path) -> list[RunEntry]:
    """The folders whose run.json exists and cannot be read, oldest first."""
    return _find_runs(store, UNREADABLE)


def _find_runs(store: Path, condition: SqlCondition) -> list[RunEntry]:
    page = ListPage(OLDEST_FIRST)
    try:
        return query_index(
            store,
            RUNS,
            lambda index: select_runs(index, store, condition, page),
            is_first_file_enough=not condition.is_of_result,
        )
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unlistable_store_error(store, error) from None


def microseconds(moment: datetime) -> int:
    """A time as the column ``started_us`` has it: microseconds since 1970."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def _read(path: Path) -> tuple[RunEntry, bool]:
    """The entry as it can be stored, and whether it may be: not if the fault may pass."""
    names = (str(path), f"{path}/{MANIFEST}", f"{path}/{RESULT}")
    entry = RunEntry(path, link=next(filter(os.path.islink, names), ""))
    try:
        manifest = read_manifest(path)
        summary, is_lasting = load_summary(path), True
    except JoulewiseError as error:
        cause = error.__context__
        is_lasting = not isinstance(cause, OSError) or isinstance(cause, FileNotFoundError)
        return replace(entry, problem=error.message), is_lasting
    except OSError:
        summary, is_lasting = None, False
    return _fill(entry, manifest, summary), is_lasting


def _fill(entry: RunEntry, manifest: Manifest, summary: Mapping[str, Any] | None) -> RunEntry:
    result = summary or {}
    commands = manifest.commands
    energy = (result.get("energy_j") or {}).get(TOTAL)
    counted = result.get("counted") or ()
    simulated = [one.info.key for one in manifest.devices if one.is_simulated]
    if energy and counted and set(counted) <= set(simulated):
        energy["source"] = Source.SIMULATED.value  # older versions called it measured
    return replace(
        entry,
        id=manifest.id,
        name=manifest.name,
        tags=manifest.tags,
        group=manifest.group,
        host=manifest.host.get("name", ""),
        state=manifest.state,
        exit_code=manifest.exit_code,
        codes=tuple(dict.fromkeys(_codes(manifest, result))),
        start_ns=manifest.wall_start_ns,
        time_s=_time_s(manifest, result),
        energy=energy,
        simulated=tuple(simulated),
        simulated_counted=tuple(key for key in simulated if key in counted),
        is_computed=summary is not None,
        command=shlex.join(commands[0].arguments) if commands else "",
        sign=sign_of(manifest),
    )


def _codes(manifest: Manifest, summary: Mapping[str, Any]) -> Iterator[str]:
    """Of what the recorder noted, and of the warnings of the result."""
    for each in (*manifest.notes, *(summary.get("warnings") or ())):
        yield str(each.get("code", ""))


def _time_s(manifest: Manifest, summary: Mapping[str, Any]) -> float | None:
    time_s: float | None = summary.get("time_s")
    commands = manifest.commands
    if time_s is None and commands and all(command.end_ns for command in commands):
        end_ns = max(command.end_ns or 0 for command in commands)
        return (end_ns - min(command.start_ns for command in commands)) / NS_PER_S
    return time_s


def _with_current_state(entry: RunEntry) -> RunEntry:
    """If its files say recording: killed where the recorder is dead, else with joules so far."""
    if entry.problem or entry.state != RECORDING:
        return entry
    entry = replace(entry, state=state_of(entry.state, entry.sign))
    return _with_live(entry) if entry.state == RECORDING else entry


def _with_live(entry: RunEntry) -> RunEntry:
    try:
        live = json.loads(read_regular(entry.path / LIVE))
        energy, time_s = live["energy_j"][TOTAL], float(live["time_s"])
        decode_energy(energy)
        counted = set(live.get("counted", ()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return entry
    simulated = tuple(key for key in entry.simulated if key in counted)
    return replace(entry, energy=energy, time_s=time_s, simulated_counted=simulated)


def _entry(path: Path, data: Mapping[str, Any]) -> RunEntry:
    """The entry from the data that :func:`_record` made."""
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in data.items()
    }
    for key in ("problem", "link"):
        values[key] = values[key].replace(_PATH, str(path))
    if values["sign"] is not None:
        values["sign"] = RecorderSign(**values["sign"])
    return RunEntry(path, **values)


def _record(entry: RunEntry, *, is_lasting: bool = True) -> Record:
    data = {key: value for key, value in vars(entry).items() if key != "path"}
    data["sign"] = entry.sign and vars(entry.sign)
    for key in ("problem", "link"):
        data[key] = data[key].replace(str(entry.path), _PATH)
    order_s, start_ns = entry.order
    values = {
        "is_damaged": int(bool(entry.problem)),
        "is_link": int(bool(entry.link)),
        "is_of_sweep": int(any(tag.startswith(SWEEP_TAG) for tag in entry.tags)),
        "id": text_value(entry.id),
        "name": text_value(entry.name),
        "group_name": text_value(entry.group),
        "host": text_value(entry.host),
        "state": text_value(entry.state),
        "command": text_value(entry.command),
        "tags": list_value(entry.tags),
        "exit_code": _real(entry.exit_code),
        "time_s": _real(entry.time_s),
        "energy_j": _real(entry.energy_j),
        "is_bound": int(entry.is_bound),
        "order_s": order_s,
        "start_ns": start_ns,
        "started_us": microseconds(entry.started),
    }
    in_order = tuple(values[column] for column in RUNS.columns)
    return Record(in_order, data, is_open=entry.state == RECORDING, is_lasting=is_lasting)


def _real(value: float | None) -> float | None:
    if value is None:
        return None
    try:
        return float(value)
    except OverflowError:  # an integer that somebody wrote into a file
        return math.inf if value > 0 else -math.inf


def _read_record(path: Path) -> Record:
    entry, is_lasting = _read(path)
    return _record(entry, is_lasting=is_lasting)


def _current_record(path: Path, data: Mapping[str, Any]) -> Record:
    return _record(_with_current_state(_entry(path, data)))


def _columns(texts: Sequence[str], numbers: Sequence[str]) -> dict[str, str]:
    flags = ("is_damaged", "is_link", "is_of_sweep")
    return {
        **dict.fromkeys(flags, "INTEGER NOT NULL"),
        **dict.fromkeys(texts, "BLOB NOT NULL"),
        **dict.fromkeys(numbers, "REAL"),
        **dict.fromkeys(("is_bound", "order_s", "start_ns", "started_us"), "INTEGER NOT NULL"),
    }


RUNS: Final = FolderKind(
    table="runs",
    parent="",
    excluded=frozenset({SWEEPS.encode()}),
    files=(MANIFEST, RESULT),
    columns=_columns(
        ("id", "name", "group_name", "host", "state", "command", "tags"),
        ("exit_code", "time_s", "energy_j"),
    ),
    order=("order_s", "start_ns", "folder", "is_damaged", "is_link", "is_of_sweep"),
    read=_read_record,
    current=_current_record,
    version=1,
    fields=fields_of(RunEntry, RecorderSign),
    formats=(FORMAT, RESULT_FORMAT),
)
