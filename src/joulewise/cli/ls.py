"""``joulewise ls``: the stored runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from joulewise.cli.output import STDOUT, console, json_option, pass_store, program, say, write_json
from joulewise.errors import UsageError

if TYPE_CHECKING:
    from joulewise.report.views.listings import RunPage
    from joulewise.store.index.run_entry import RunEntry

EPILOG = """\b
Examples:
  joulewise ls
  joulewise ls --filter 'state=complete energy>1kJ since=2026-11-01'
  joulewise ls --filter tag=baseline --filter name='resnet*'
  joulewise ls --page 2
  joulewise ls --all --json runs.json
"""

_MANY = 20
_PAGE = 50  # runs: a terminal shows 24 to 60 lines


@click.command(epilog=EPILOG)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="TERMS",
    help="Only runs that meet all terms: name, tag, group, host, state, id, command, energy, "
    "time, exit, since, until; may be repeated.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Runs per page.  [default: {_PAGE}]",
)
@click.option(
    "--page",
    type=click.IntRange(min=1),
    metavar="P",
    help="Which page; 1 has the newest runs.  [default: 1]",
)
@click.option("--all", "has_all", is_flag=True, help="List all runs, not a page of them.")
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
    """List the stored runs, the newest last: how each ended, its time and its energy.

    Reads what is stored and computes nothing: a run that was killed has its energy after its
    first `show`; of one that is being recorded it is that so far. Names, tags and the like may have
    * and ? in them, and are told apart by case; units are not (30MIN), but for mJ and MJ.
    """
    from joulewise.report.filters import parse_filter
    from joulewise.report.views.listings import list_runs, runs_as_json
    from joulewise.store.index.conditions import all_of

    if has_all and (limit or page):
        raise UsageError(
            "--all lists all runs: --limit and --page say nothing then", "leave it out"
        )
    condition = all_of(parse_filter(text) for text in filters)
    found = list_runs(store, condition, limit=None if has_all else limit or _PAGE, page=page or 1)
    if json_path:
        told = {
            "runs": [runs_as_json(run) for run in found.runs],
            "skipped": [{"path": str(one.path), "reason": one.reason} for one in found.skipped],
            "total": found.total,
            "page": found.page,
            "pages": found.pages,
        }
        write_json(told, json_path)
    if json_path != STDOUT and (found.runs or found.skipped):
        from joulewise.report.terminal.runs import draw

        draw(found.runs, found.skipped, console())
        _say_how_to_compute(found.runs, program(store))
        if not filters:
            _say_of_sweeps(found, program(store))
    if not found.runs:
        _say_none(found, store, is_filtered=bool(filters))
    elif len(found.runs) < found.total:
        _say_of_pages(found, filters, limit, program(store))


def _say_none(found: RunPage, store: Path, *, is_filtered: bool) -> None:
    if found.total:
        pages = f"there are {found.pages}" if found.pages > 1 else "there is 1"
        say(f"no page {found.page}: {pages}", "give --page a number up to that")
        return
    some = is_filtered and found.stored
    more = " that this filter lets through" if some else "; joulewise run -- CMD... makes one"
    click.echo(f"no runs in {store}{more}", err=True)


def _say_of_pages(found: RunPage, filters: Sequence[str], limit: int | None, again: str) -> None:
    """A page is not the whole list, which whoever reads it must know."""
    filtered = "".join(f" --filter {quote(text)}" for text in filters)
    limited = f" --limit {limit}" if limit else ""
    older = f"run: {again} ls{filtered}{limited} --page {found.page + 1} # older ones, or --all"
    say(
        f"{len(found.runs)} of {found.total:,} runs, page {found.page} of {found.pages}",
        older if found.page < found.pages else f"run: {again} ls{filtered} --all # all of them",
    )


def _say_of_sweeps(found: RunPage, again: str) -> None:
    """They are hundreds as a rule, and hide the others."""
    if found.of_sweeps > _MANY:
        say(
            f"{found.of_sweeps} of these runs are of sweeps, which `{again} choose` lists",
            f"run: {again} ls --filter 'tag!=sweep:*' # without them",
        )


def _say_how_to_compute(runs: Sequence[RunEntry], again: str) -> None:
    """A run that was killed has nobody who did it at its end."""
    from joulewise.formatting import plain
    from joulewise.store.runs import RECORDING

    waiting = [
        quote(plain(run.id)) for run in runs if not run.is_computed and run.state != RECORDING
    ]
    if waiting:
        which = waiting[0] if len(waiting) == 1 else f"{len(waiting)} runs"
        rest = "" if len(waiting) == 1 else " # and so for each"
        say(f"the energy of {which} is not computed yet", f"run: {again} show {waiting[-1]}{rest}")
