"""The list of runs and sweeps: filtered as in ``ls``, sorted by any column, in pages."""

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

from joulewise.data.run_result_json import decode_energy
from joulewise.errors import UsageError
from joulewise.formatting import figures, one_line, seconds
from joulewise.report.views.listings import label, parse_filter
from joulewise.report.views.run import ending, total_source
from joulewise.serve.lookup import LINK, link_problem
from joulewise.store.index.conditions import ALWAYS, SqlCondition, text_is
from joulewise.store.index.folder_index import FolderIndex, ListPage, query_index
from joulewise.store.index.run_entry import NEWEST_FIRST, OLDEST_FIRST, RUNS, RunEntry, select_runs
from joulewise.store.runs import RECORDING, unlistable_store_error
from joulewise.sweep.entry import SweepEntry, list_sweeps
from joulewise.sweep.stored_sweeps import SWEEP_FILE
from joulewise.units import NS_PER_S

COLUMNS: Final[Mapping[str, tuple[str, str]]] = {
    "name": ("Run", "nullif(name, x'')"),
    "state": ("State", "state"),
    "time": ("Time", "time_s"),
    "energy": ("Energy", "energy_j"),
    "started": ("Started", ""),
    "group": ("Group", "nullif(group_name, x'')"),
}
"""Columns that the list can be sorted by: name in the address, heading, and value in SQL."""

PAGE: Final = 100
"""Runs of a page; a browser lays out so many in some 50 ms."""

_BY_START: Final = "started"
_OF_RESULT: Final = {"time", "energy"}  # columns that need the result of a run, not only run.json
# Up to so many runs of sweeps are listed among the others (chosen); more would hide those.
_MAX_SWEEP_RUNS: Final = 20
_TEXT_LETTERS: Final = 100  # of a command or a workload in a row, which is one line of a wide page
_MAX_PAGE: Final = 10**6  # bounds what an address can ask SQLite to skip
_PAGE_DIGITS: Final = 8  # of a page number in an address
_UNREADABLE: Final = SqlCondition("is_damaged OR is_link")


@dataclass(frozen=True)
class ListQuery:
    """Which part of the list an address asks for."""

    filter: str = ""
    sort: str = _BY_START
    is_rising: bool = False
    has_all: bool = False
    page: int = 1
    sweep_page: int = 1

    @classmethod
    def parse(cls, query: Mapping[str, list[str]]) -> ListQuery:
        """From the query of an address; unknown values are replaced by the default."""
        first = {name: values[0] for name, values in query.items()}
        sort = first.get("sort", _BY_START)
        return cls(
            first.get("filter", ""),
            sort if sort in COLUMNS else _BY_START,
            first.get("order") == "rising",
            first.get("all") == "yes",
            _page_number(first.get("page", "")),
            _page_number(first.get("sweeps", "")),
        )

    def address(self, **changed: Any) -> str:
        """The address of the same list with some fields changed, at its first page by default."""
        query = replace(self, **{"page": 1, "sweep_page": 1, **changed})
        fields = {"filter": query.filter, "sort": query.sort}
        fields |= {"order": "rising"} if query.is_rising else {}
        fields |= {"all": "yes"} if query.has_all else {}
        fields |= {"page": str(query.page)} if query.page > 1 else {}
        fields |= {"sweeps": str(query.sweep_page)} if query.sweep_page > 1 else {}
        return f"?{urlencode(fields, errors='surrogateescape')}"

    def sorted_by(self, column: str) -> str:
        """The address of a column's heading, which reverses the order if sorted by it already."""
        return self.address(sort=column, is_rising=self.sort == column and not self.is_rising)

    def only(self, field: str, value: str) -> str:
        """The address of a tag or a group, which filters by it."""
        return self.address(filter=shlex.quote(f"{field}={escape(value)}"))


@dataclass(frozen=True)
class RunRow:
    """A run as text; ``problem`` is why it cannot be read."""

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
    """A sweep as text; ``of`` is its workload, ``problem`` why it cannot be read."""

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
    """A page of the runs and a page of the sweeps, of which there are ``sweep_total``.

    ``total`` runs match the filter; ``hidden`` more belong to sweeps and are not listed.
    """

    runs: tuple[RunRow, ...]
    sweeps: tuple[SweepRow, ...]
    query: ListQuery
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
        """The number of the page's first row in the whole list."""
        return (self.query.page - 1) * PAGE + 1

    @property
    def sweep_pages(self) -> int:
        return _pages(self.sweep_total)

    @property
    def first_sweep(self) -> int:
        return (self.query.sweep_page - 1) * PAGE + 1


def list_store(store: Path, query: ListQuery) -> Listing:
    """The part of the list that ``query`` asks for; raises JoulewiseError if it cannot be read."""
    try:
        condition, problem = parse_filter(query.filter), ""
    except UsageError as error:
        condition, problem = ALWAYS, f"{error.message}; {error.hint}"

    def select(index: FolderIndex) -> Listing:
        return _select_page(index, store, query, condition)

    try:
        is_first = not condition.is_of_result and query.sort not in _OF_RESULT
        listing = query_index(store, RUNS, select, is_first_file_enough=is_first)
    except FileNotFoundError:
        listing = Listing((), (), query)
    except OSError as error:
        raise unlistable_store_error(store, error) from None
    return _add_sweeps(replace(listing, problem=problem), store)


def _add_sweeps(listing: Listing, store: Path) -> Listing:
    """With the page of sweeps that is asked for, or the last one."""
    page = listing.query.sweep_page
    found = list_sweeps(store, limit=PAGE, page=page)
    if page > _pages(found.total):
        page = _pages(found.total)
        found = list_sweeps(store, limit=PAGE, page=page)
    return replace(
        listing,
        sweeps=tuple(_sweep_row(sweep) for sweep in found.sweeps),
        sweep_total=found.total,
        query=replace(listing.query, sweep_page=page),
    )


def _select_page(
    index: FolderIndex, store: Path, query: ListQuery, condition: SqlCondition
) -> Listing:
    shown = SqlCondition(f"NOT ({_UNREADABLE.sql})") & condition
    of_sweep, live = shown & SqlCondition("is_of_sweep"), text_is("state", RECORDING)
    total, of_sweeps, damaged, live_now = index.counts(
        [shown, of_sweep, _UNREADABLE, SqlCondition("is_open") & shown & live]
    )
    hidden = 0
    if not query.has_all and not query.filter and of_sweeps > _MAX_SWEEP_RUNS:
        hidden, total = of_sweeps, total - of_sweeps
        shown = shown & SqlCondition("NOT is_of_sweep")
    query = replace(query, page=min(query.page, _pages(total + damaged)))
    page = ListPage(_order(query), PAGE, (query.page - 1) * PAGE)
    return Listing(
        runs=tuple(map(_run_row, select_runs(index, store, shown | _UNREADABLE, page))),
        sweeps=(),
        query=query,
        total=total,
        live=live_now,
        damaged=damaged,
        hidden=hidden,
    )


def _page_number(text: str) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) < _PAGE_DIGITS
    return min(max(int(text), 1), _MAX_PAGE) if is_number else 1


def _pages(rows: int) -> int:
    return max(1, math.ceil(rows / PAGE))


def _order(query: ListQuery) -> str:
    """SQL that puts runs without a value last in both directions, and unreadable ones after them.

    By start, an unreadable run has its place too: its name contains the time.
    """
    if query.sort == _BY_START:
        return OLDEST_FIRST if query.is_rising else NEWEST_FIRST
    direction = "ASC" if query.is_rising else "DESC"
    value = COLUMNS[query.sort][1]
    return f"{_UNREADABLE.sql}, {value} IS NULL, {value} {direction}, {NEWEST_FIRST}"


def _run_row(run: RunEntry) -> RunRow:
    if run.problem or run.link:
        reason = f"{run.link} is {LINK}" if run.link else run.problem
        return RunRow(run.path.name, problem=reason)
    total = decode_energy(run.energy)
    energy, error = ("–", "") if total is None else figures(total)  # noqa: RUF001
    return RunRow(
        folder=run.path.name,
        id=run.id,
        name=run.name,
        command=one_line(run.command, _TEXT_LETTERS),
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
    if problem := sweep.problem or link_problem(folder, SWEEP_FILE):
        return SweepRow(folder.name, problem=problem)
    return SweepRow(
        folder=folder.name,
        name=sweep.name,
        state=sweep.state,
        runs=str(sweep.runs.whole),
        settings=f"{sweep.settings}: {', '.join(map(label, sweep.axes))}",
        of=one_line(sweep.workload, _TEXT_LETTERS),
        started=_moment(datetime.fromtimestamp(sweep.start_wall_ns / NS_PER_S).astimezone()),
    )


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M")
