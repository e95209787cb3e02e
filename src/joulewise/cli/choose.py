"""``joulewise choose``: finds the best setting of a sweep, what it saves and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from joulewise.cli.options import (
    POSITIVE,
    carbon_option,
    metric_options,
    number_option,
    parse_pairs,
    price_option,
    reference_option,
    view_from_options,
)
from joulewise.cli.output import (
    STDOUT,
    form_option,
    joulewise_command,
    json_option,
    pass_store,
    say,
    write_json,
)
from joulewise.errors import UsageError

if TYPE_CHECKING:
    from joulewise.data.sweeps import Sweep
    from joulewise.metrics.boundary import View
    from joulewise.sweep.entry import SweepEntry

EPILOG = """\b
Examples:
  joulewise choose last
  joulewise choose last --by edp --epochs 90 --samples 1281167
  joulewise choose last --by eds:2.0 --runs-per-year 200 --price 0.30 --gco2-per-kwh 380
  joulewise choose last --format latex > table.tex
  joulewise choose measured.csv --reference batch_size=32
"""

_MAX_LISTED = 20  # sweeps: chosen, as many as fit on a terminal of 24 lines
_EPOCHS_HINT, _YEAR_HINT = "add, for example, --epochs 90", "add, for example, --runs-per-year 50"
_NEEDED_OPTIONS = (
    *((option, "epochs", _EPOCHS_HINT) for option in ("samples", "look_epochs", "look_samples")),
    *((option, "runs_per_year", _YEAR_HINT) for option in ("price_per_kwh", "gco2_per_kwh")),
)


@click.command(epilog=EPILOG)
@click.argument("sweep", required=False, metavar="[SWEEP|FILE.csv]")
@metric_options(boundary=None)
@click.option(
    "--per",
    type=click.Choice(["run", "epoch", "step", "sample"]),
    default="run",
    show_default=True,
    help="Show time and energy per run, epoch, step or sample.",
)
@number_option("--epochs", POSITIVE, help="Extrapolate to a training of N epochs.")
@number_option("--samples", POSITIVE, help="Samples in an epoch of that training.")
@number_option(
    "--look-epochs", POSITIVE, help="Epochs in one run of the sweep. [default: as it reports]"
)
@number_option(
    "--look-samples",
    POSITIVE,
    help="Samples in one epoch of a run of the sweep. [default: as it reports]",
)
@number_option("--runs-per-year", POSITIVE, help="Show what N such runs save in a year.")
@price_option("Price of a kWh, in any currency, with --runs-per-year.")
@carbon_option("Grams of CO2 that the grid emits per kWh, with --runs-per-year.")
@reference_option
@click.option("--points", is_flag=True, help="Show every setting as well.")
@form_option("Format of the table of choices, or of all settings with --points.")
@json_option
@pass_store
def command(
    store: Path, *, sweep: str | None, form: str, json_path: str | None, **given: Any
) -> int:
    """Show which setting of a sweep is best, what it saves and what it costs in time.

    SWEEP is an id, the beginning of one, a name, or last; or a CSV file of measurements with a row
    for each run and the columns time_s, energy_j and one for each setting. Without SWEEP the newest
    sweeps are listed.
    """
    if sweep is None:
        return _list_sweeps(store, json_path)
    _check_option_pairs(given)
    from joulewise.cli.output import console, evaluate_sweep
    from joulewise.report.tables import FORMS
    from joulewise.report.terminal.sweep import draw
    from joulewise.report.views.projection import (
        next_commands,
        outlook,
        projection_json,
        projection_lines,
    )
    from joulewise.report.views.sweep import result_json, sweep_outcome, sweep_view, unfinished
    from joulewise.report.views.sweep import search_as_json as went_json

    found, folder = _found(store, sweep, parse_pairs("--reference", given["references"]))
    by = given["by"] or found.asked.get("by") or ()
    result, view = evaluate_sweep(found, by, _make_view(given, found))
    outlooks = outlook(
        found,
        result,
        view,
        runs_per_year=given["runs_per_year"],
        price_per_kwh=given["price_per_kwh"],
        gco2_per_kwh=given["gco2_per_kwh"],
    )
    if (json_path or form != "text") and (note := unfinished(found)):
        say(f"sweep {found.id}, {note}")  # in text it is among the notes
    if json_path:
        ahead = {"outlook": projection_json(outlooks)}
        write_json({**result_json(result), **went_json(found, folder), **ahead}, json_path)
    if json_path == STDOUT:
        return 0
    points = given["points"]
    if form != "text":
        shown = sweep_view(result)
        click.echo(FORMS[form](shown.points if points else shown.choices), nl=False)
        return 0
    draw(
        result,
        console(),
        how=sweep_outcome(found, folder, result.metrics),
        points=points,
        fits=True,
        ahead=projection_lines(outlooks, result.per),
        commands=next_commands(
            found,
            outlooks,
            joulewise_command(store),
            points=not points,
            training=view.training is None,
        ),
    )
    return 0


def _check_option_pairs(given: Mapping[str, Any]) -> None:
    """Raise where an option has no effect without another one that is not given."""
    for option, needed, hint in _NEEDED_OPTIONS:
        if given[option] is not None and given[needed] is None:
            names = (f"--{name.replace('_', '-')}" for name in (option, needed))
            raise UsageError(" needs ".join(names), hint)


def _list_sweeps(store: Path, json_path: str | None) -> int:
    from joulewise.report.views.listings import sweeps_as_json
    from joulewise.sweep.entry import list_unreadable

    found = _sweeps(store, None if json_path else _MAX_LISTED)
    skipped = list_unreadable(store)
    if not found and not skipped:
        raise UsageError(
            f"there are no sweeps in {store}", "run `joulewise sweep`, or give another --store"
        )
    if json_path:
        payload = {
            "sweeps": [sweeps_as_json(sweep) for sweep in found],
            "skipped": [{"path": str(one.path), "reason": one.problem} for one in skipped],
        }
        write_json(payload, json_path)
    if json_path != STDOUT:
        _draw_newest(found)
        for one in skipped:
            say(f"cannot be read: {one.problem}")
        if found:
            say(f"to choose among the settings of one: {joulewise_command(store)} choose SWEEP")
    return 0


def _sweeps(store: Path, limit: int | None) -> list[SweepEntry]:
    """The newest sweeps that can be read, oldest first; all without a limit."""
    from joulewise.sweep.entry import list_sweeps

    found = list_sweeps(store, limit=limit).sweeps
    return [sweep for sweep in reversed(found) if not sweep.problem]


def _draw_newest(found: Sequence[SweepEntry], *, is_error: bool = False) -> None:
    from joulewise.cli.output import console
    from joulewise.report.views.listings import draw

    if found:
        draw(found[-_MAX_LISTED:], console(stderr=is_error))


def _found(store: Path, which: str, reference: Mapping[str, str]) -> tuple[Sweep, Path | None]:
    """With its folder, where it is one of the store."""
    from joulewise.report.resolve import LoadedSweep, load_inputs, resolve_sweep

    try:
        ref = resolve_sweep(store, which, joulewise_command(store))
    except UsageError:
        _draw_newest(_sweeps(store, _MAX_LISTED), is_error=True)
        raise
    found = load_inputs(store, ref, reference)
    assert isinstance(found, LoadedSweep)  # noqa: S101  # by resolve_sweep()
    return found.sweep, found.folder


def _make_view(given: Mapping[str, Any], sweep: Sweep) -> View:
    from joulewise.metrics.boundary import Training

    view = replace(view_from_options(given, sweep), per=given["per"])
    if not given["epochs"]:
        return view
    wanted = (given[name] for name in ("epochs", "samples", "look_epochs", "look_samples"))
    return replace(view, training=Training(*wanted))
