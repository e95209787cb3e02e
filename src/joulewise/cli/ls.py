"""``joulewise ls``: lists the stored runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from joulewise.cli.options import number_option
from joulewise.cli.output import (
    STDOUT,
    console,
    joulewise_command,
    json_option,
    pass_store,
    say,
    write_json,
)
from joulewise.errors import UsageError

if TYPE_CHECKING:
    from joulewise.report.views.listings import RunPage
    from joulewise.store.index.run_entry import RunEntry

EPILOG = """\b
Examples:
  joulewise ls
  joulewise ls --filter 'state=finished energy>1kJ since=2026-11-01'
  joulewise ls --filter tag=baseline --filter name='resnet*'
  joulewise ls --page 2
  joulewise ls --all --json runs.json
"""

_MAX_SWEEP_RUNS = 20  # chosen: with more, the runs of sweeps hide the others, and a hint says so
_PAGE_RUNS = 50  # chosen: a terminal shows 24 to 60 lines


@click.command(epilog=EPILOG)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="TERMS",
    help="List only runs that meet all terms on name, tag, group, host, state, id, command, "
    "energy, time, exit, since and until; may be repeated.",
)
@number_option(
    "--limit", click.IntRange(min=1), help=f"Show N runs per page. [default: {_PAGE_RUNS}]"
)
@number_option(
    "--page",
    click.IntRange(min=1),
    metavar="P",
    help="Show page P; 1 has the newest runs. [default: 1]",
)
@click.option("--all", "has_all", is_flag=True, help="List all runs instead of one page.")
@json_option
@pass_store
def command(
    store: Path,
    *,
    filters: tuple[str, ...],
    limit: int | None,
    page: int | None,
    has_all: bool,
    json_path: str | None,
) -> None:
    """List the stored runs, the newest last, with their state, time and energy.

    A run that is being recorded has its energy so far; that of a killed run is computed by its
    first `show`. In filters, names and tags are case-sensitive and may contain * and ?; units are
    not case-sensitive (30MIN), except for mJ and MJ.
    """
    from joulewise.report.views.listings import list_runs, parse_filter, runs_as_json
    from joulewise.store.index.conditions import all_of

    if has_all and (limit or page):
        raise UsageError("--all cannot be combined with --limit or --page", "leave out one of them")
    condition = all_of(parse_filter(text) for text in filters)
    listing = list_runs(
        store, condition, limit=None if has_all else limit or _PAGE_RUNS, page=page or 1
    )
    if json_path:
        content = {
            "runs": [runs_as_json(run) for run in listing.runs],
            "skipped": [{"path": str(one.path), "reason": one.reason} for one in listing.skipped],
            "total": listing.total,
            "page": listing.page,
            "pages": listing.pages,
        }
        write_json(content, json_path)
    if json_path != STDOUT and (listing.runs or listing.skipped):
        from joulewise.report.terminal.runs import draw

        draw(listing.runs, listing.skipped, console())
        _say_not_computed(listing.runs, joulewise_command(store))
        if not filters:
            _say_of_sweeps(listing, joulewise_command(store))
    if not listing.runs:
        _say_none(listing, store, is_filtered=bool(filters))
    elif len(listing.runs) < listing.total:
        _say_of_pages(listing, filters, limit, joulewise_command(store))


def _say_none(listing: RunPage, store: Path, *, is_filtered: bool) -> None:
    if listing.total:
        say(f"there is no page {listing.page}", f"give --page a number from 1 to {listing.pages}")
        return
    some = is_filtered and listing.stored
    more = " that match the filter" if some else "; to make one: joulewise run -- CMD..."
    click.echo(f"no runs in {store}{more}", err=True)


def _say_of_pages(listing: RunPage, filters: Sequence[str], limit: int | None, again: str) -> None:
    """Say that this is one page of the list, and how to get the others."""
    filtered = "".join(f" --filter {quote(text)}" for text in filters)
    limited = f" --limit {limit}" if limit else ""
    older = f"run: {again} ls{filtered}{limited} --page {listing.page + 1} # older runs, or --all"
    say(
        f"{len(listing.runs)} of {listing.total:,} runs, page {listing.page} of {listing.pages}",
        older if listing.page < listing.pages else f"run: {again} ls{filtered} --all # all of them",
    )


def _say_of_sweeps(listing: RunPage, again: str) -> None:
    """Say how to leave out the runs of sweeps, which are hundreds and hide the others."""
    if listing.of_sweeps > _MAX_SWEEP_RUNS:
        say(
            f"{listing.of_sweeps:,} of these runs belong to sweeps; `{again} choose` lists sweeps",
            f"run: {again} ls --filter 'tag!=sweep:*' # the other runs",
        )


def _say_not_computed(runs: Sequence[RunEntry], again: str) -> None:
    """Say how to compute the energy of killed runs, which nobody did at their end."""
    from joulewise.formatting import plain
    from joulewise.store.runs import RECORDING

    waiting = [
        quote(plain(run.id)) for run in runs if not run.is_computed and run.state != RECORDING
    ]
    if waiting:
        which = waiting[0] if len(waiting) == 1 else f"{len(waiting)} runs"
        rest = "" if len(waiting) == 1 else " # the same for each"
        say(f"the energy of {which} is not computed yet", f"run: {again} show {waiting[-1]}{rest}")
