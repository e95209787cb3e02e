"""The list of runs and sweeps: filtered as ``ls`` does it, sorted by any column."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from glob import escape
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from joulewise.data.contract import told_energy
from joulewise.data.sweeps import Sweep
from joulewise.errors import UsageError
from joulewise.record.layout import MANIFEST, RESULT
from joulewise.record.store import RECORDING, Skipped
from joulewise.report.figures import figures, one_line, seconds
from joulewise.report.filters import parse_filter
from joulewise.report.run_view import ending, total_source
from joulewise.report.runs import Listed, listing
from joulewise.report.serve.lookup import leads_out
from joulewise.report.sweeps import as_json as sweep_json
from joulewise.report.sweeps import label, what
from joulewise.sweep.store import FILE, sweeps
from joulewise.units import NS_PER_S

COLUMNS: Final[Mapping[str, tuple[str, Callable[[Listed], Any]]]] = {
    "name": ("Run", lambda run: run.name or None),
    "state": ("State", lambda run: run.state),
    "time": ("Time", lambda run: run.time_s),
    "energy": ("Energy", lambda run: run.energy_j),
    "started": ("Started", lambda run: run.started),
    "group": ("Group", lambda run: run.group or None),
}
"""What the list can be sorted by, as it stands in the address: a heading, and the value."""

_NEWEST: Final = "started"
_FEW: Final = 20
_MOST: Final = 500
_LONGEST: Final = 100


@dataclass(frozen=True)
class Wish:
    """What of the list is wanted, as its address says."""

    filter: str = ""
    sort: str = _NEWEST
    is_rising: bool = False
    has_all: bool = False

    @classmethod
    def of(cls, query: Mapping[str, list[str]]) -> Wish:
        first = {name: values[0] for name, values in query.items()}
        sort = first.get("sort", _NEWEST)
        return cls(
            first.get("filter", ""),
            sort if sort in COLUMNS else _NEWEST,
            first.get("order") == "rising",
            first.get("all") == "yes",
        )

    def address(self, **changed: Any) -> str:
        """Of the same list, but for what is changed."""
        wish = Wish(**{**vars(self), **changed})
        told = {"filter": wish.filter, "sort": wish.sort}
        told |= {"order": "rising"} if wish.is_rising else {}
        told |= {"all": "yes"} if wish.has_all else {}
        return f"?{urlencode(told, errors='surrogateescape')}"

    def sorted_by(self, column: str) -> str:
        """Where a column's heading leads: the other way round if it is sorted by that already."""
        return self.address(sort=column, is_rising=self.sort == column and not self.is_rising)

    def only(self, field: str, value: str) -> str:
        """Where a tag or a group leads."""
        return self.address(filter=shlex.quote(f"{field}={escape(value)}"))


@dataclass(frozen=True)
class RunRow:
    """``problem`` is why there is nothing else to tell of it."""

    folder: str
    id: str = ""
    name: str = ""
    command: str = ""
    state: str = ""
    is_live: bool = False
    time: str = ""
    energy: str = ""
    error: str = ""
    source: str = ""
    started: str = ""
    tags: tuple[str, ...] = ()
    group: str = ""
    problem: str = ""


@dataclass(frozen=True)
class SweepRow:
    folder: str
    name: str = ""
    state: str = ""
    runs: str = ""
    settings: str = ""
    of: str = ""
    started: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Listing:
    """``hidden`` runs belong to sweeps, ``cut`` ones are beyond what a page can show."""

    runs: tuple[RunRow, ...]
    sweeps: tuple[SweepRow, ...]
    wish: Wish
    live: int = 0
    damaged: int = 0
    hidden: int = 0
    cut: int = 0
    problem: str = ""


def list_store(store: Path, wish: Wish) -> Listing:
    try:
        test, problem = parse_filter(wish.filter), ""
    except UsageError as error:
        test, problem = parse_filter(""), f"{error.message}; {error.hint}"
    found = [_unless_link(one) for one in listing(store)]
    damaged = [one for one in found if isinstance(one, Skipped)]
    runs = [one for one in found if isinstance(one, Listed) and test(one)]
    hidden = 0
    if not wish.has_all and not wish.filter:
        own = [run for run in runs if not any(tag.startswith("sweep:") for tag in run.tags)]
        if len(runs) - len(own) > _FEW:
            runs, hidden = own, len(runs) - len(own)
    ordered = _in_order(runs, wish)
    shown = ordered if wish.has_all else ordered[:_MOST]
    return Listing(
        runs=tuple(_with_damaged(shown, damaged, wish)),
        sweeps=tuple(reversed([_sweep_row(one) for one in sweeps(store)])),
        wish=wish,
        live=sum(run.state == RECORDING for run in runs),
        damaged=len(damaged),
        hidden=hidden,
        cut=len(ordered) - len(shown),
        problem=problem,
    )


def _in_order(runs: list[Listed], wish: Wish) -> list[Listed]:
    """What has no value stands last, whichever way round."""
    value = COLUMNS[wish.sort][1]
    known = [run for run in runs if value(run) is not None]
    known.sort(key=value, reverse=not wish.is_rising)
    return known + [run for run in runs if value(run) is None]


def _with_damaged(runs: list[Listed], damaged: list[Skipped], wish: Wish) -> list[RunRow]:
    """In their place where the list goes by time, which their names tell; else last."""
    rows = [(run.started.timestamp(), _run_row(run)) for run in runs]
    rows += [
        (_told_by(one.path.name), RunRow(one.path.name, problem=one.reason)) for one in damaged
    ]
    if wish.sort == _NEWEST:
        rows.sort(key=lambda row: row[0], reverse=not wish.is_rising)
    return [row for _, row in rows]


def _told_by(name: str) -> float:
    """When a run of that name began; long ago where it does not tell."""
    with suppress(ValueError):
        return datetime.strptime(f"{name[:15]}Z", "%Y%m%d-%H%M%S%z").timestamp()
    return 0.0


def _unless_link(one: Listed | Skipped) -> Listed | Skipped:
    reason = leads_out(one.path, MANIFEST, RESULT)
    return Skipped(one.path, reason) if reason else one


def _run_row(run: Listed) -> RunRow:
    total = told_energy(run.energy)
    energy, error = ("–", "") if total is None else figures(total)  # noqa: RUF001
    return RunRow(
        folder=run.path.name,
        id=run.id,
        name=run.name,
        command=one_line(run.command, _LONGEST),
        state=ending(run.state, run.exit_code, run.codes, is_bound=run.is_bound),
        is_live=run.state == RECORDING,
        time="–" if run.time_s is None else seconds(run.time_s),  # noqa: RUF001
        energy=energy,
        error=error,
        source=total_source(total, run.simulated_counted) if total else "",
        started=_moment(run.started),
        tags=run.tags,
        group=run.group,
    )


def _sweep_row(one: tuple[Path, Sweep] | Skipped) -> SweepRow:
    if isinstance(one, Skipped):
        return SweepRow(one.path.name, problem=one.reason)
    folder, sweep = one
    if reason := leads_out(folder, FILE):
        return SweepRow(folder.name, problem=reason)
    told = sweep_json(sweep)
    return SweepRow(
        folder=folder.name,
        name=sweep.name,
        state=sweep.state,
        runs=str(told["runs"]["whole"]),
        settings=f"{told['settings']}: {', '.join(map(label, told['axes']))}",
        of=one_line(what(sweep), _LONGEST),
        started=_moment(datetime.fromtimestamp(sweep.start_wall_ns / NS_PER_S).astimezone()),
    )


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M")
