"""The list of runs and sweeps: filtered as ``ls`` does it, sorted by any column, in pages."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from glob import escape
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from joulewise.data.contract import told_energy
from joulewise.errors import UsageError
from joulewise.formatting import figures, one_line, seconds
from joulewise.report.filters import parse_filter
from joulewise.report.views.listings import label
from joulewise.report.views.run import ending, total_source
from joulewise.serve.lookup import LINK, leads_out
from joulewise.store.index.conditions import ALWAYS, SqlCondition, text_is
from joulewise.store.index.folder_index import FolderIndex, ListPage, query_index
from joulewise.store.index.run_entry import NEWEST_FIRST, OLDEST_FIRST, RUNS, RunEntry, select_runs
from joulewise.store.runs import RECORDING, unlistable
from joulewise.sweep.entry import SweepEntry, list_sweeps
from joulewise.sweep.stored_sweeps import FILE
from joulewise.units import NS_PER_S

COLUMNS: Final[Mapping[str, tuple[str, str]]] = {
    "name": ("Run", "nullif(name, x'')"),
    "state": ("State", "state"),
    "time": ("Time", "time_s"),
    "energy": ("Energy", "energy_j"),
    "started": ("Started", ""),
    "group": ("Group", "nullif(group_name, x'')"),
}
"""What the list can be sorted by, as it stands in the address: a heading, and the value in SQL."""

PAGE: Final = 100
"""Runs of a page; a browser lays out so many in some 50 ms."""

_NEWEST: Final = "started"
_OF_RESULT: Final = {"time", "energy"}
_FEW: Final = 20
_LONGEST: Final = 100
_MOST_PAGE: Final = 10**6
_HIDDEN: Final = SqlCondition("is_damaged OR is_link")


@dataclass(frozen=True)
class Wish:
    """What of the list is wanted, as its address says."""

    filter: str = ""
    sort: str = _NEWEST
    is_rising: bool = False
    has_all: bool = False
    page: int = 1
    sweep_page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, list[str]]) -> Wish:
        first = {name: values[0] for name, values in query.items()}
        sort = first.get("sort", _NEWEST)
        return cls(
            first.get("filter", ""),
            sort if sort in COLUMNS else _NEWEST,
            first.get("order") == "rising",
            first.get("all") == "yes",
            _page_number(first.get("page", "")),
            _page_number(first.get("sweeps", "")),
        )

    def address(self, **changed: Any) -> str:
        """Of the same list, but for what is changed; of its first pages, unless they are given."""
        wish = Wish(**{**vars(self), "page": 1, "sweep_page": 1, **changed})
        told = {"filter": wish.filter, "sort": wish.sort}
        told |= {"order": "rising"} if wish.is_rising else {}
        told |= {"all": "yes"} if wish.has_all else {}
        told |= {"page": str(wish.page)} if wish.page > 1 else {}
        told |= {"sweeps": str(wish.sweep_page)} if wish.sweep_page > 1 else {}
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
    """A page of the list, and one of the list of sweeps, of which there are ``sweep_total``.

    ``total`` runs meet the filter; ``hidden`` more belong to sweeps.
    """

    runs: tuple[RunRow, ...]
    sweeps: tuple[SweepRow, ...]
    wish: Wish
    total: int = 0
    live: int = 0
    damaged: int = 0
    hidden: int = 0
    problem: str = ""
    sweep_total: int = 0

    @property
    def pages(self) -> int:
        return _pages(self.total + self.damaged)

    @property
    def first(self) -> int:
        """The place of the page's first row in the whole list."""
        return (self.wish.page - 1) * PAGE + 1

    @property
    def sweep_pages(self) -> int:
        return _pages(self.sweep_total)

    @property
    def first_sweep(self) -> int:
        return (self.wish.sweep_page - 1) * PAGE + 1


def list_store(store: Path, wish: Wish) -> Listing:
    try:
        condition, problem = parse_filter(wish.filter), ""
    except UsageError as error:
        condition, problem = ALWAYS, f"{error.message}; {error.hint}"

    def use(index: FolderIndex) -> Listing:
        return _page_of(index, store, wish, condition)

    try:
        is_first = not condition.is_of_result and wish.sort not in _OF_RESULT
        found = query_index(store, RUNS, use, is_first_file_enough=is_first)
    except FileNotFoundError:
        found = Listing((), (), wish)
    except OSError as error:
        raise unlistable(store, error) from None
    return _with_sweeps(replace(found, problem=problem), store)


def _with_sweeps(listing: Listing, store: Path) -> Listing:
    """The page of sweeps that is wanted, or the last one there is."""
    page = listing.wish.sweep_page
    found = list_sweeps(store, limit=PAGE, page=page)
    if page > _pages(found.total):
        page = _pages(found.total)
        found = list_sweeps(store, limit=PAGE, page=page)
    return replace(
        listing,
        sweeps=tuple(_sweep_row(sweep) for sweep in found.sweeps),
        sweep_total=found.total,
        wish=replace(listing.wish, sweep_page=page),
    )


def _page_of(index: FolderIndex, store: Path, wish: Wish, condition: SqlCondition) -> Listing:
    shown = SqlCondition(f"NOT ({_HIDDEN.sql})") & condition
    of_sweep, live = shown & SqlCondition("is_of_sweep"), text_is("state", RECORDING)
    total, of_sweeps, damaged, live_now = index.counts(
        [shown, of_sweep, _HIDDEN, SqlCondition("is_open") & shown & live]
    )
    hidden = 0
    if not wish.has_all and not wish.filter and of_sweeps > _FEW:
        hidden, total = of_sweeps, total - of_sweeps
        shown = shown & SqlCondition("NOT is_of_sweep")
    wish = replace(wish, page=min(wish.page, _pages(total + damaged)))
    page = ListPage(_order(wish), PAGE, (wish.page - 1) * PAGE)
    found = select_runs(index, store, shown | _HIDDEN, page)
    return Listing(
        runs=tuple(_run_row(run) for run in found),
        sweeps=(),
        wish=wish,
        total=total,
        live=live_now,
        damaged=damaged,
        hidden=hidden,
    )


def _page_number(text: str) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) < 8
    return min(max(int(text), 1), _MOST_PAGE) if is_number else 1


def _pages(rows: int) -> int:
    return max(1, math.ceil(rows / PAGE))


def _order(wish: Wish) -> str:
    """What has no value stands last, whichever way round, and then what cannot be read.

    Only by time that has a place: its name tells it.
    """
    direction = "ASC" if wish.is_rising else "DESC"
    if wish.sort == _NEWEST:
        return OLDEST_FIRST if wish.is_rising else NEWEST_FIRST
    value = COLUMNS[wish.sort][1]
    return f"{_HIDDEN.sql}, {value} IS NULL, {value} {direction}, {NEWEST_FIRST}"


def _run_row(run: RunEntry) -> RunRow:
    if run.problem or run.link:
        reason = f"{run.link} is {LINK}" if run.link else run.problem
        return RunRow(run.path.name, problem=reason)
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


def _sweep_row(sweep: SweepEntry) -> SweepRow:
    folder = sweep.path
    if problem := sweep.problem or leads_out(folder, FILE):
        return SweepRow(folder.name, problem=problem)
    return SweepRow(
        folder=folder.name,
        name=sweep.name,
        state=sweep.state,
        runs=str(sweep.runs.whole),
        settings=f"{sweep.settings}: {', '.join(map(label, sweep.axes))}",
        of=one_line(sweep.workload, _LONGEST),
        started=_moment(datetime.fromtimestamp(sweep.start_wall_ns / NS_PER_S).astimezone()),
    )


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M")
