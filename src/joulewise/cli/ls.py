"""``joulewise ls``: the stored runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from joulewise.cli.output import STDOUT, console, json_option, pass_store, program, write_json
from joulewise.cli.stderr import say

if TYPE_CHECKING:
    from joulewise.report.runs import Listed

EPILOG = """\b
Examples:
  joulewise ls
  joulewise ls --filter 'state=complete energy>1kJ since=2026-11-01'
  joulewise ls --filter tag=baseline --filter name='resnet*'
"""

_MANY = 20


@click.command(epilog=EPILOG)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="TERMS",
    help="Only runs that meet all terms: name, tag, group, host, state, id, command, energy, "
    "time, exit, since, until; may be repeated.",
)
@json_option
@pass_store
def command(store: Path, filters: tuple[str, ...], json_path: str | None) -> None:
    """List the stored runs, the newest last: how each ended, its time and its energy.

    Reads what is stored and computes nothing: a run that was killed has its energy after its
    first `show`. Names, tags and the like may have * and ? in them, and are
    told apart by case; units are not (30MIN), but for mJ and MJ.
    """
    from joulewise.record.store import Skipped
    from joulewise.report.filters import parse_filter
    from joulewise.report.runs import Listed, as_json, listing

    tests = [parse_filter(text) for text in filters]
    found = list(listing(store))
    runs = [run for run in found if isinstance(run, Listed) and all(test(run) for test in tests)]
    skipped = [one for one in found if isinstance(one, Skipped)]
    if json_path:
        told = {
            "runs": [as_json(run) for run in runs],
            "skipped": [{"path": str(one.path), "reason": one.reason} for one in skipped],
        }
        write_json(told, json_path)
    if json_path != STDOUT and (runs or skipped):
        from joulewise.report.runs_table import draw

        draw(runs, skipped, console())
        _say_how_to_compute(runs, program(store))
        if not filters:
            _say_of_sweeps(runs, program(store))
    if not runs:
        some = filters and len(found) > len(skipped)
        more = " that this filter lets through" if some else "; joulewise run -- CMD... makes one"
        click.echo(f"no runs in {store}{more}", err=True)


def _say_of_sweeps(runs: Sequence[Listed], again: str) -> None:
    """They are hundreds as a rule, and hide the others."""
    theirs = sum(any(tag.startswith("sweep:") for tag in run.tags) for run in runs)
    if theirs > _MANY:
        say(
            f"{theirs} of these runs are of sweeps, which `{again} choose` lists",
            f"run: {again} ls --filter 'tag!=sweep:*' # without them",
        )


def _say_how_to_compute(runs: Sequence[Listed], again: str) -> None:
    """A run that was killed has nobody who did it at its end."""
    from joulewise.record.store import RECORDING
    from joulewise.report.figures import plain

    waiting = [
        quote(plain(run.id)) for run in runs if not run.is_computed and run.state != RECORDING
    ]
    if waiting:
        which = waiting[0] if len(waiting) == 1 else f"{len(waiting)} runs"
        rest = "" if len(waiting) == 1 else " # and so for each"
        say(f"the energy of {which} is not computed yet", f"run: {again} show {waiting[-1]}{rest}")
