"""``joulewise show``: shows the result of a stored run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from joulewise.cli.options import Number, carbon_option, price_option
from joulewise.cli.output import (
    STDOUT,
    console,
    joulewise_command,
    json_option,
    load_tuning_or_say,
    pass_store,
    say,
    say_if_newest,
    write_json,
)

if TYPE_CHECKING:
    from joulewise.data import RunResult
    from joulewise.data.tuning import Tuning


@click.command()
@click.option(
    "--errors",
    is_flag=True,
    help="Show both parts of each error, in place of the watts; the typical error of a span of "
    "each name; and how often sensors update. For the error of every span: export --what spans.",
)
@price_option("Price of a kWh; adds the cost. [default: as given to run]", Number(min=0))
@carbon_option(
    "Grams of CO2 per kWh of the grid; adds the emissions. [default: as given to run]",
    Number(min=0),
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
    """Show a run's energy by device, its spans and its warnings.

    RUN is an id, the beginning of one, a name, or `last` for the newest run (after a sweep, that is
    the last run of the sweep). A run that is being recorded is shown so far. A GROUP is shown as
    the sum of its runs, with each device counted once.
    """
    from joulewise.data.run_result_json import as_json

    result, tuning, logged = _result(store, which)
    if json_path:
        write_json({**as_json(result), **logged, **_tune_json(tuning)}, json_path)
    if json_path != STDOUT:
        from joulewise.report.terminal.run import draw
        from joulewise.report.views.run import PriceAndCarbon

        rates = PriceAndCarbon(price_per_kwh, gco2_per_kwh)
        draw(result, console(), rates=rates, errors=errors, program=joulewise_command(store))
        if tuning:
            from joulewise.report.terminal.tuning import draw as draw_tuning

            draw_tuning(tuning, console())


def _tune_json(tuning: Tuning | None) -> dict[str, Any]:
    from joulewise.data.tuning import tune_json

    return {"tune": tune_json(tuning)} if tuning else {}


def _result(store: Path, which: str) -> tuple[RunResult, Tuning | None, dict[str, Any]]:
    """The result, the tuning of a run that was tuned, and in JSON what the program logged."""
    from joulewise.analyse.damage import note_damaged_marks
    from joulewise.analyse.stored_result import load_or_compute_result
    from joulewise.report.resolve import GroupRef, load_group, resolve_runs
    from joulewise.store.logged_values import logged_json
    from joulewise.store.runs import LAST

    ref = resolve_runs(store, which, joulewise_command(store))
    if isinstance(ref, GroupRef):
        return load_group(store, ref).result, None, {}
    say_if_newest(which, len(ref.paths))
    if which == LAST:
        _say_if_of_sweep(store, ref.newest)
    result = note_damaged_marks(ref.newest, load_or_compute_result(ref.newest))
    return result, load_tuning_or_say(ref.newest), {"logged": logged_json(ref.newest)}


def _say_if_of_sweep(store: Path, run: Path) -> None:
    """Say that `last` is one run of the newest sweep, and how to see the sweep."""
    from joulewise.report.resolve import sweep_of_last_run
    from joulewise.sweep.stored_sweeps import load_sweep

    if found := sweep_of_last_run(store, run):
        sweep = load_sweep(found.folder, has_trials=False)
        say(
            f"this run is one of the newest sweep, {sweep.name or sweep.id}",
            f"run: {joulewise_command(store)} choose {sweep.id} # the whole sweep",
        )
