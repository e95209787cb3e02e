"""What ``ls`` has to show: a page of the runs in a store, from the index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, Final

from joulewise.record.index.condition import ALWAYS, Condition
from joulewise.record.index.folder_index import FolderIndex, Page, query_index
from joulewise.record.index.run_entry import (
    NEWEST_FIRST,
    OLDEST_FIRST,
    READABLE,
    RUNS,
    RunEntry,
    select_runs,
)
from joulewise.record.store import Skipped, unlistable

_DAMAGED: Final = Condition("is_damaged")


@dataclass(frozen=True)
class RunPage:
    """``runs`` are those of one page, oldest first; page 1 has the newest.

    ``total`` is how many meet the condition, ``stored`` how many there are, ``of_sweeps`` how many
    of the total belong to sweeps.
    """

    runs: tuple[RunEntry, ...]
    skipped: tuple[Skipped, ...]
    total: int = 0
    stored: int = 0
    of_sweeps: int = 0
    page: int = 1
    pages: int = 1


def list_runs(
    store: Path, condition: Condition = ALWAYS, *, limit: int | None = None, page: int = 1
) -> RunPage:
    """A page of ``limit`` runs that meet a condition; all of them without a limit."""

    def use(index: FolderIndex) -> RunPage:
        wanted = READABLE & condition
        total, stored, of_sweeps, damages = index.counts(
            [wanted, READABLE, wanted & Condition("is_of_sweep"), _DAMAGED]
        )
        offset = (page - 1) * limit if limit else 0
        found = select_runs(index, store, wanted, Page(NEWEST_FIRST, limit, offset))
        damaged = select_runs(index, store, _DAMAGED, Page(OLDEST_FIRST)) if damages else []
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
        raise unlistable(store, error) from None


def listing(store: Path) -> Iterator[RunEntry | Skipped]:
    """What cannot be read with the reason, then every run, oldest first."""
    found = list_runs(store)
    yield from found.skipped
    yield from found.runs


def as_json(run: RunEntry) -> dict[str, Any]:
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
