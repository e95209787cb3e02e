"""``joulewise choose``: the setting that a metric prefers, what it saves and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from joulewise.cli.options import POSITIVE, metric_options, pairs, reference_option
from joulewise.cli.output import (
    STDOUT,
    form_option,
    json_option,
    pass_store,
    program,
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

_NEWEST = 20
_EPOCHS, _YEAR = "say of how many epochs: --epochs 90", "say of how many runs: --runs-per-year 50"
_TOGETHER = (
    *((option, "epochs", _EPOCHS) for option in ("samples", "look_epochs", "look_samples")),
    *((option, "runs_per_year", _YEAR) for option in ("price_per_kwh", "gco2_per_kwh")),
)


@click.command(epilog=EPILOG)
@click.argument("sweep", required=False, metavar="[SWEEP|FILE.csv]")
@metric_options(boundary=None)
@click.option(
    "--per",
    type=click.Choice(["run", "epoch", "step", "sample"]),
    default="run",
    show_default=True,
    help="What times and energies are of.",
)
@click.option("--epochs", type=POSITIVE, metavar="N", help="Extrapolate to a training of so many.")
@click.option("--samples", type=POSITIVE, metavar="N", help="In each of its epochs.")
@click.option(
    "--look-epochs", type=POSITIVE, metavar="N", help="Epochs in a run, where it does not tell."
)
@click.option(
    "--look-samples", type=POSITIVE, metavar="N", help="Samples in an epoch of a run, likewise."
)
@click.option(
    "--runs-per-year", type=POSITIVE, metavar="N", help="What so many such runs save in a year."
)
@click.option("--price", "--price-per-kwh", "price_per_kwh", type=POSITIVE, metavar="PRICE")
@click.option("--gco2-per-kwh", type=POSITIVE, metavar="G", help="What the grid emits.")
@reference_option
@click.option("--points", is_flag=True, help="Show every setting, too.")
@form_option("Of the table of choices, or of the points with --points.")
@json_option
@pass_store
def command(
    store: Path, *, sweep: str | None, form: str, json_path: str | None, **given: Any
) -> int:
    """Tell which setting of SWEEP is worth it: an id, the beginning of one, a name, or last.

    A CSV of measurements from elsewhere will do, too: a row for each run with time_s, energy_j
    and a column for each setting. Without SWEEP the newest sweeps are listed.
    """
    if sweep is None:
        return _list(store, json_path)
    _refuse_idle(given)
    from joulewise.cli.output import console
    from joulewise.cli.sweep_evaluation import evaluated
    from joulewise.report.tables import FORMS
    from joulewise.report.terminal.sweep import draw
    from joulewise.report.views.projection import (
        next_commands,
        outlook,
        outlook_json,
        outlook_lines,
    )
    from joulewise.report.views.sweep import result_json, sweep_view, unfinished, went
    from joulewise.report.views.sweep import search_as_json as went_json

    found, folder = _found(store, sweep, pairs("--reference", given["references"]))
    by = given["by"] or found.asked.get("by") or ()
    result, view = evaluated(found, by, _view(given, found))
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
        ahead = {"outlook": outlook_json(outlooks)}
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
        how=went(found, folder, result.metrics),
        points=points,
        fits=True,
        ahead=outlook_lines(outlooks, result.per),
        commands=next_commands(
            found, outlooks, program(store), points=not points, training=view.training is None
        ),
    )
    return 0


def _refuse_idle(given: Mapping[str, Any]) -> None:
    """What says nothing without another option: left out, it would seem to have been heard."""
    for option, needed, hint in _TOGETHER:
        if given[option] is not None and given[needed] is None:
            both = (f"--{each.replace('_', '-')}" for each in (option, needed))
            raise UsageError(" without ".join(both), hint)


def _list(store: Path, json_path: str | None) -> int:
    from joulewise.report.views.listings import sweeps_as_json
    from joulewise.sweep.entry import list_unreadable

    found = _sweeps(store, None if json_path else _NEWEST)
    skipped = list_unreadable(store)
    if not found and not skipped:
        raise UsageError(f"no sweeps in {store}", "joulewise sweep makes one; or name a --store")
    if json_path:
        told = {
            "sweeps": [sweeps_as_json(sweep) for sweep in found],
            "skipped": [{"path": str(one.path), "reason": one.problem} for one in skipped],
        }
        write_json(told, json_path)
    if json_path != STDOUT:
        _draw_newest(found)
        for one in skipped:
            say(f"cannot be read: {one.problem}")
        if found:
            say(f"choose among the settings of one: {program(store)} choose SWEEP")
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
        draw(found[-_NEWEST:], console(stderr=is_error))


def _found(store: Path, which: str, reference: Mapping[str, str]) -> tuple[Sweep, Path | None]:
    """With its folder, where it is one of the store."""
    from joulewise.report.inputs import MeantSweep, load_inputs
    from joulewise.report.resolve import resolve_sweep

    try:
        ref = resolve_sweep(store, which, program(store))
    except UsageError:
        _draw_newest(_sweeps(store, _NEWEST), is_error=True)
        raise
    found = load_inputs(store, ref, reference)
    assert isinstance(found, MeantSweep)  # noqa: S101  # by resolve_sweep()
    return found.sweep, found.folder


def _view(given: Mapping[str, Any], sweep: Sweep) -> View:
    from joulewise.cli.sweep_evaluation import view_asked
    from joulewise.metrics.boundary import Training

    view = replace(view_asked(given, sweep), per=given["per"])
    if not given["epochs"]:
        return view
    wanted = (given[name] for name in ("epochs", "samples", "look_epochs", "look_samples"))
    return replace(view, training=Training(*wanted))
