"""The lists of runs (``ls``) and sweeps (``choose``) of a store, from its index.

``ls --filter`` is parsed here, too, such as ``name=resnet energy>1kJ since=2026-11-01``.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from math import ceil
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from joulewise.errors import UsageError
from joulewise.formatting import one_line
from joulewise.report.settings_text import AXES
from joulewise.report.tables import Column, Table, drawn
from joulewise.store.index.conditions import ALWAYS, SqlCondition, all_of, any_matches, text_matches
from joulewise.store.index.folder_index import FolderIndex, ListPage, query_index
from joulewise.store.index.run_entry import (
    NEWEST_FIRST,
    OLDEST_FIRST,
    READABLE,
    RUNS,
    RunEntry,
    microseconds,
    select_runs,
)
from joulewise.store.runs import STATES, Skipped, unlistable_store_error
from joulewise.sweep.entry import SweepEntry
from joulewise.units import NS_PER_S, parse_amount

_DAMAGED: Final = SqlCondition("is_damaged")


@dataclass(frozen=True)
class RunPage:
    """A page of runs, oldest first; page 1 has the newest.

    ``total`` runs meet the condition, ``of_sweeps`` of them belong to sweeps; ``stored`` runs are
    in the store.
    """

    runs: tuple[RunEntry, ...]
    skipped: tuple[Skipped, ...]
    total: int = 0
    stored: int = 0
    of_sweeps: int = 0
    page: int = 1
    pages: int = 1


def list_runs(
    store: Path, condition: SqlCondition = ALWAYS, *, limit: int | None = None, page: int = 1
) -> RunPage:
    """A page of ``limit`` runs that meet a condition; all of them without a limit."""

    def use(index: FolderIndex) -> RunPage:
        wanted = READABLE & condition
        total, stored, of_sweeps, damages = index.counts(
            [wanted, READABLE, wanted & SqlCondition("is_of_sweep"), _DAMAGED]
        )
        offset = (page - 1) * limit if limit else 0
        found = select_runs(index, store, wanted, ListPage(NEWEST_FIRST, limit, offset))
        damaged = select_runs(index, store, _DAMAGED, ListPage(OLDEST_FIRST)) if damages else []
        return RunPage(
            runs=tuple(reversed(found)),
            skipped=tuple(Skipped(entry.path, entry.problem) for entry in damaged),
            total=total,
            stored=stored,
            of_sweeps=of_sweeps,
            page=page,
            pages=max(1, ceil(total / limit)) if limit else 1,
        )

    try:
        is_page = limit is not None and not condition.is_of_result
        return query_index(store, RUNS, use, is_first_file_enough=is_page)
    except FileNotFoundError:
        return RunPage((), ())
    except OSError as error:
        raise unlistable_store_error(store, error) from None


def listing(store: Path) -> Iterator[RunEntry | Skipped]:
    """What cannot be read, with the reason; then every run, oldest first."""
    page = list_runs(store)
    yield from page.skipped
    yield from page.runs


def runs_as_json(run: RunEntry) -> dict[str, Any]:
    """A run in ``ls --json``."""
    return {
        "id": run.id,
        "name": run.name,
        "tags": list(run.tags),
        "group": run.group,
        "host": run.host,
        "state": run.state,
        "exit_code": run.exit_code,
        "started": run.started.isoformat(timespec="seconds"),
        "time_s": run.time_s,
        "energy_j": {"total": run.energy},
        "simulated": list(run.simulated),
        "command": run.command,
    }


# Characters of a name, of the axes and of the workload (chosen: the table fits in 120 columns).
_LONGEST: Final = 32


def sweeps_as_json(sweep: SweepEntry) -> dict[str, Any]:
    """A sweep in ``choose --json`` without a name."""
    return {
        "id": sweep.id,
        "name": sweep.name,
        "state": sweep.state,
        "start_wall_ns": sweep.start_wall_ns,
        "gpu_name": sweep.gpu_name,
        "axes": list(sweep.axes),
        "settings": sweep.settings,
        "simulated": sweep.is_simulated,
        "runs": asdict(sweep.runs),
    }


def draw(sweeps: Sequence[SweepEntry], console: Console) -> None:
    """Draw the sweeps, a line each, the newest at the end."""
    named = any(sweep.name for sweep in sweeps)
    columns = (
        Column("sweep", right=False),
        *((Column("name", right=False, spare=3),) if named else ()),
        Column("started", right=False, spare=1),
        Column("state", right=False),
        Column("runs"),
        Column("settings", right=False),
        Column("workload", right=False, spare=4),
    )
    table = Table("", columns, tuple(_cells(sweep, named=named) for sweep in sweeps))
    for number, block in enumerate(drawn(table, console.encoding, console.width)):
        if number:
            console.print()
        console.print(block)


def _cells(sweep: SweepEntry, *, named: bool) -> tuple[str, ...]:
    started = datetime.fromtimestamp(sweep.start_wall_ns / NS_PER_S).astimezone()
    return (
        sweep.id,
        *((one_line(sweep.name, _LONGEST),) if named else ()),
        started.strftime("%Y-%m-%d %H:%M"),
        one_line(sweep.state),
        str(sweep.runs.whole),
        one_line(f"{sweep.settings}: {', '.join(map(label, sweep.axes))}", _LONGEST),
        one_line(sweep.workload, _LONGEST),
    )


def label(axis: str) -> str:
    """What an axis is called."""
    return AXES.get(axis, (axis, ""))[0]


_TERM: Final = re.compile(r"([a-z]+)(!=|>=|<=|=|>|<)(.*)", re.DOTALL)
# The operators that a lower bound can satisfy: it is only known to be above a limit.
_BOUND_OPERATORS: Final = {">": ">", ">=": ">=", "!=": ">"}
_TEXTS: Final = {
    "id": "id",
    "name": "name",
    "tag": "tags",
    "group": "group_name",
    "host": "host",
    "state": "state",
    "command": "command",
}
_NUMBERS: Final = {"energy": "energy_j", "time": "time_s", "exit": "exit_code"}
_A: Final = {"energy": "an energy", "time": "a time", "exit": "an exit status"}
_DATES: Final = ("since", "until")
_SHOWN_STATES: Final = {"finished": "complete", "interrupted": "stopped"}
_HINT: Final = (
    "such as: name=resnet* tag=a state=finished group=ID 'energy>1kJ' 'time<=30min' exit=0 "
    "since=2026-11-01 until=2026-11-30T18:00"
)


def parse_filter(text: str) -> SqlCondition:
    """The condition that all terms in ``text`` hold, which are separated by white space."""
    try:
        terms = shlex.split(text)
    except ValueError as error:
        raise _wrong(text, str(error).lower()) from None
    return all_of(_term(term) for term in terms)


def _term(term: str) -> SqlCondition:
    parts = _TERM.fullmatch(term)
    if parts is None:
        raise _wrong(term, "a term is a field, an operator and a value")
    field, sign, value = parts.groups()
    if field == "state":  # also by the word that ls shows
        value = _SHOWN_STATES.get(value, value)
    if field == "state" and not any(fnmatchcase(state, value) for state in STATES):
        raise _wrong(term, f"a state is one of {', '.join(STATES)}")
    if field in _TEXTS and sign in {"=", "!="}:
        matches = (any_matches if field == "tag" else text_matches)(_TEXTS[field], value)
        return matches if sign == "=" else SqlCondition(f"NOT ({matches.sql})", matches.parameters)
    if field in _NUMBERS:
        return _compared(field, sign, _number(field, value, term))
    if field in _DATES and sign == "=":
        sign = ">=" if field == "since" else "<"
        return SqlCondition(f"started_us {sign} ?", (microseconds(_date(value, term)),))
    known = ", ".join([*_TEXTS, *_NUMBERS, *_DATES])
    what = f"{field!r} takes no {sign}" if field in known.split(", ") else f"no field {field!r}"
    raise _wrong(term, f"{what}; there are {known}")


def _compared(field: str, sign: str, limit: float) -> SqlCondition:
    """A comparison with a number, which a run of unknown value never satisfies."""
    column = _NUMBERS[field]
    compared = SqlCondition(f"{column} {sign} ?", (limit,), is_of_result=field != "exit")
    if field != "energy":
        return compared
    # A lower bound of 5 kJ is above 1 kJ, but nobody knows whether it is below 10 kJ.
    exact = SqlCondition("NOT is_bound") & compared
    if sign not in _BOUND_OPERATORS:
        return exact
    return exact | (
        SqlCondition("is_bound") & SqlCondition(f"{column} {_BOUND_OPERATORS[sign]} ?", (limit,))
    )


def _number(field: str, value: str, term: str) -> float:
    with suppress(ValueError):
        plain = float(value)
        # Energy and time are neither negative nor infinite; an exit status is a whole number.
        fits = plain.is_integer() if field == "exit" else 0 <= plain < math.inf
        if not fits:
            raise _wrong(term, f"{value!r} is not {_A[field]}")
        return plain
    why = f"{value!r} is not {_A[field]}"
    if field == "exit":
        raise _wrong(term, why)
    try:
        return parse_amount(value, field).value
    except ValueError as error:
        raise _wrong(term, f"{why}: {error}") from None


def _date(value: str, term: str) -> datetime:
    try:
        return datetime.fromisoformat(value).astimezone()
    except (ValueError, OverflowError):
        raise _wrong(term, f"{value!r} is not a date") from None


def _wrong(term: str, why: str) -> UsageError:
    return UsageError(f"cannot read the filter {term!r}: {why}", _HINT)
