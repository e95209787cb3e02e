"""``joulewise report``: writes an HTML report, and its figures and tables as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from joulewise.cli.options import (
    Number,
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
    joulewise_command,
    json_option,
    pass_store,
    say,
    say_if_newest,
    write_json,
)
from joulewise.errors import UsageError
from joulewise.store.files import is_folder

if TYPE_CHECKING:
    from joulewise.report.charts.theme import Theme
    from joulewise.report.html.render import HtmlPage
    from joulewise.report.inputs import LoadedSweep

FORMATS = ("svg", "pdf", "png", "html", "json", "csv")
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
@click.option(
    "-o",
    "--output",
    "output",
    metavar="PATH|DIR/",
    help="Write the report to PATH or into DIR/; - is stdout. [default: joulewise-ID.html]",
)
@click.option("--force", is_flag=True, help="Replace PATH even if it is not a report of joulewise.")
@metric_options(boundary=None)
@click.option(
    "--figures",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write each figure as a file into DIR.",
)
@click.option(
    "--format",
    "forms",
    default="svg",
    show_default=True,
    metavar="FORM,...",
    help=f"Formats of the figures: {', '.join(FORMATS)}.",
)
@click.option(
    "--theme",
    type=click.Choice(["light", "dark", "print"]),
    default="light",
    show_default=True,
    help="Theme of the figures; print is for papers and has no title.",
)
@number_option(
    "--width-mm",
    Number(min=30, max=500),
    metavar="MM",
    help="Width of figures for print in mm. [default: 85, one column]",
)
@click.option(
    "--tables",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the tables as CSV, Markdown and LaTeX (booktabs) into DIR.",
)
@reference_option
@price_option("Price of a kWh, in any currency; adds the cost to a run's report.")
@carbon_option("Grams of CO2 that the grid emits per kWh; adds the carbon to a run's report.")
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
    _check_figure_options(given)
    wants_page = output is not None or not (given["figures"] or given["tables"] or json_path)
    forms = _parse_formats(given["forms"])
    if len(which) > 1 and output and not _is_folder(output):
        raise UsageError(
            f"{len(which)} reports cannot be written to one file: {output}", "give -o a folder/"
        )
    from joulewise.report.html.render import require_extra

    if wants_page or given["figures"]:
        require_extra()
    data = []
    for word in which:
        name, page = _page(store, word, given)
        data.append(page.data)
        if wants_page:
            _write(page, name, output, force=given["force"])
        own = Path(name) if len(which) > 1 else Path()
        if given["figures"]:
            _write_figures(page, given["figures"] / own, forms, given)
        if given["tables"]:
            _write_tables(page, given["tables"] / own)
    if json_path:
        write_json(dict(data[0]) if len(data) == 1 else {"reports": data}, json_path)


def _check_figure_options(given: Mapping[str, Any]) -> None:
    """Raise where an option of figures has no effect without --figures."""
    context = click.get_current_context()
    for name, option in (("forms", "--format"), ("theme", "--theme"), ("width_mm", "--width-mm")):
        typed = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if typed and not given["figures"]:
            raise UsageError(f"{option} needs --figures", "add --figures DIR")
    if given["width_mm"] and given["theme"] != "print":
        raise UsageError("--width-mm needs --theme print", "add --theme print")


def _check_applicable(given: Mapping[str, Any], word: str, others: Mapping[str, str]) -> None:
    for name, why in others.items():
        if given[name] not in {None, ()}:
            raise UsageError(f"--{name.replace('_', '-')} does not apply to {word}", why)


def _page(store: Path, word: str, given: Mapping[str, Any]) -> tuple[str, HtmlPage]:
    """The name of its file, and the page."""
    from joulewise.report.html.pages import run_page
    from joulewise.report.inputs import LoadedSweep, load_inputs
    from joulewise.report.resolve import resolve
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


def _parse_formats(text: str) -> list[str]:
    forms = [form.strip().lower().lstrip(".") for form in text.split(",")]
    for form in forms:
        if form not in FORMATS:
            raise UsageError(
                f"figure format must be one of {', '.join(FORMATS)}, not {form!r}",
                "give --format one or several of them, separated by commas",
            )
    return forms


def _is_folder(output: str) -> bool:
    return output.endswith("/") or is_folder(output)


def _write(page: HtmlPage, name: str, output: str | None, *, force: bool) -> None:
    from joulewise.report.html.render import default_name, write_page

    if output == STDOUT:
        from joulewise.report.html.render import render

        click.echo(render(page), nl=False)
        return
    path = Path(output or default_name(name))
    if output and _is_folder(output):
        _make_folder(path, "-o")
        path /= default_name(name)
    write_page(page, path, force=force)
    say(f"wrote {path}: open it in a browser")


def _make_folder(folder: Path, option: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot create {folder}: {error.strerror}", f"give {option} another folder"
        ) from None


def _write_figures(
    page: HtmlPage, folder: Path, forms: Sequence[str], given: Mapping[str, Any]
) -> None:
    from joulewise.report.charts.files import write_chart
    from joulewise.report.charts.theme import COLUMN_MM
    from joulewise.report.tables import file_name

    theme: Theme = given["theme"]
    _make_folder(folder, "--figures")
    charts = [chart for section in page.sections for chart in section.charts]
    for chart in charts:
        for form in forms:
            path = folder / f"{file_name(chart.key)}.{form}"
            write_chart(chart, path, theme, width_mm=given["width_mm"] or COLUMN_MM)
    say(f"wrote {len(charts)} figures as {', '.join(forms)} to {folder}")


def _write_tables(page: HtmlPage, folder: Path) -> None:
    from joulewise.report.html.render import written_tables
    from joulewise.report.tables import write_tables

    files = list(write_tables(written_tables(page), folder))
    say(f"wrote {len({path.stem for path in files})} tables in {len(files)} files to {folder}")
