"""``joulewise report``: writes an HTML report, and its figures and tables as files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from joulewise.cli.options import (
    carbon_option,
    metric_options,
    parse_pairs,
    price_option,
    reference_option,
    view_from_options,
)
from joulewise.cli.output import (
    joulewise_command,
    json_option,
    load_tuning_or_say,
    pass_store,
    say_if_newest,
)
from joulewise.cli.report_files import report_options, write_reports
from joulewise.errors import UsageError

if TYPE_CHECKING:
    from joulewise.report.html.render import HtmlPage
    from joulewise.report.resolve import LoadedSweep

EPILOG = """\b
Examples:
  joulewise report last
  joulewise report baseline -o baseline.html
  joulewise report last --by edp --by eds:2.0 --boundary wall
  joulewise report last --figures figures --format pdf --theme print
  joulewise report last --tables tables
  joulewise report measured.csv --reference power_limit_w=250
"""
_SWEEP_OPTIONS = dict.fromkeys(
    ("by", "boundary", "overhead_w", "pue"), "it is a run; this option is for sweeps"
)
_RUN_OPTIONS = dict.fromkeys(
    ("price_per_kwh", "gco2_per_kwh"),
    "it is a sweep; for its savings: joulewise choose --runs-per-year 50 --price 0.30",
)


@click.command(epilog=EPILOG)
@click.argument("which", nargs=-1, required=True, metavar="RUN|GROUP|SWEEP|FILE.csv...")
@report_options
@metric_options(boundary=None)
@reference_option
@price_option("Price of a kWh, in any currency; adds the cost to a run's report.")
@carbon_option("Grams of CO2 that the grid emits per kWh; adds the emissions to a run's report.")
@json_option
@pass_store
def command(
    store: Path,
    *,
    which: tuple[str, ...],
    output: str | None,
    json_path: str | None,
    **given: Any,
) -> None:
    """Write an HTML report on a run, a group of runs or a sweep: verdict, tables, figures, data.

    Each report is one file that opens offline. The argument is an id, the beginning of one, a name,
    a CSV file of measurements, or last, which after a sweep is the sweep. With only --figures,
    --tables or --json, no report is written.
    """
    write_reports(which, lambda word: _page(store, word, given), output, json_path, given)


def _check_applicable(given: Mapping[str, Any], word: str, others: Mapping[str, str]) -> None:
    for name, why in others.items():
        if given[name] not in {None, ()}:
            raise UsageError(f"--{name.replace('_', '-')} does not apply to {word}", why)


def _page(store: Path, word: str, given: Mapping[str, Any]) -> tuple[str, HtmlPage]:
    """The name of its file, and the page."""
    from joulewise.report.html.pages import run_page
    from joulewise.report.resolve import LoadedSweep, load_inputs, resolve
    from joulewise.report.tables import file_name
    from joulewise.report.views.run import PriceAndCarbon

    references = parse_pairs("--reference", given["references"])
    found = load_inputs(store, resolve(store, word), references)
    _check_applicable(
        given, word, _RUN_OPTIONS if isinstance(found, LoadedSweep) else _SWEEP_OPTIONS
    )
    if isinstance(found, LoadedSweep):
        return file_name(found.sweep.id), _sweep_page(store, found, given)
    say_if_newest(word, found.alike)
    if len(found.runs) == 1:
        load_tuning_or_say(found.runs[0])  # the page has this line, too, and the JSON has not
    rates = PriceAndCarbon(given["price_per_kwh"], given["gco2_per_kwh"])
    return file_name(found.result.id), run_page(
        found, store, rates=rates, program=joulewise_command(store)
    )


def _sweep_page(store: Path, found: LoadedSweep, given: Mapping[str, Any]) -> HtmlPage:
    from joulewise.cli.output import evaluate_sweep
    from joulewise.report.html.pages import sweep_page
    from joulewise.report.views.projection import next_commands, outlook

    sweep = found.sweep
    result, view = evaluate_sweep(
        sweep, given["by"] or sweep.asked.get("by") or (), view_from_options(given, sweep)
    )
    commands = next_commands(sweep, outlook(sweep, result, view), joulewise_command(store))
    return sweep_page(found, result, view, store, commands=commands)
