"""The lists of runs (``ls``) and sweeps (``choose``) of a store, from its index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from math import ceil
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from joulewise.formatting import one_line
from joulewise.report.settings_text import AXES
from joulewise.report.tables import Column, Table, drawn
from joulewise.store.index.conditions import ALWAYS, SqlCondition
from joulewise.store.index.folder_index import FolderIndex, ListPage, query_index
from joulewise.store.index.run_entry import (
    NEWEST_FIRST,
    OLDEST_FIRST,
    READABLE,
    RUNS,
    RunEntry,
    select_runs,
)
from joulewise.store.runs import Skipped, unlistable_store_error
from joulewise.sweep.entry import SweepEntry
from joulewise.units import NS_PER_S

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
