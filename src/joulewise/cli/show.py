"""``joulewise show``: what a stored run came to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from joulewise.cli.options import Number
from joulewise.cli.output import (
    STDOUT,
    console,
    json_option,
    pass_store,
    program,
    say,
    say_if_newest,
    write_json,
)

if TYPE_CHECKING:
    from joulewise.data import RunResult


@click.command()
@click.option(
    "--errors",
    is_flag=True,
    help="Show both parts of each error in place of watts, and how often sensors update.",
)
@click.option(
    "--price-per-kwh",
    type=Number(min=0),
    metavar="MONEY",
    help="Also show the cost. [default: as given to run]",
)
@click.option(
    "--gco2-per-kwh",
    type=Number(min=0),
    metavar="GRAMS",
    help="Also show the carbon. [default: as given to run]",
)
@json_option
@click.argument("which", metavar="RUN|GROUP")
@pass_store
def command(
    store: Path,
    which: str,
    *,
    errors: bool,
    price_per_kwh: float | None,
    gco2_per_kwh: float | None,
    json_path: str | None,
) -> None:
    """Show a run's energy on every device, its spans, and what a reader must know.

    RUN is an id, the beginning of one, a name, or `last`, the newest run, also after a sweep (of
    which `report last` is a page). One that is being recorded is shown up to now. A GROUP is shown
    as the sum of its runs, each device once.
    """
    from joulewise.data.contract import as_json

    result = _result(store, which)
    if json_path:
        write_json(as_json(result), json_path)
    if json_path != STDOUT:
        from joulewise.report.terminal.run import draw
        from joulewise.report.views.run import PriceAndCarbon

        rates = PriceAndCarbon(price_per_kwh, gco2_per_kwh)
        draw(result, console(), rates=rates, errors=errors, program=program(store))


def _result(store: Path, which: str) -> RunResult:
    from joulewise.analyse.stored_result import result_of
    from joulewise.report.inputs import load_group
    from joulewise.report.resolve import GroupRef, resolve_runs
    from joulewise.store.runs import LAST

    ref = resolve_runs(store, which, program(store))
    if isinstance(ref, GroupRef):
        return load_group(store, ref).result
    say_if_newest(which, len(ref.paths))
    if which == LAST:
        _say_if_of_sweep(store, ref.newest)
    return result_of(ref.newest)


def _say_if_of_sweep(store: Path, run: Path) -> None:
    """`report last` is then the sweep, and `show last` its last run."""
    from joulewise.report.resolve import sweep_of_last_run
    from joulewise.sweep.stored_sweeps import load

    if found := sweep_of_last_run(store, run):
        sweep = load(found.folder, has_trials=False)
        say(
            f"the newest run; it is one of the newest sweep, {sweep.name or sweep.id}",
            f"run: {program(store)} choose {sweep.id} # all of the sweep",
        )
