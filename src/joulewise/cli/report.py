"""``joulewise report``: one HTML file that opens offline, and its figures and tables as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from joulewise.cli.options import POSITIVE, Number, metric_options, pairs, reference_option
from joulewise.cli.output import (
    STDOUT,
    json_option,
    pass_store,
    program,
    say,
    say_if_newest,
    write_json,
)
from joulewise.errors import UsageError
from joulewise.store.files import is_folder

if TYPE_CHECKING:
    from joulewise.report.charts.theme import Theme
    from joulewise.report.html.render import HtmlPage
    from joulewise.report.inputs import MeantSweep

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
_OF_SWEEPS = dict.fromkeys(
    ("by", "boundary", "overhead_w", "pue"), "it is a run, and that is for the settings of a sweep"
)
_OF_RUNS = dict.fromkeys(
    ("price_per_kwh", "gco2_per_kwh"),
    "it is a sweep; what a choice saves: joulewise choose --runs-per-year 50 --price 0.30",
)


@click.command(epilog=EPILOG)
@click.argument("which", nargs=-1, required=True, metavar="RUN|GROUP|SWEEP|FILE.csv...")
@click.option(
    "-o",
    "--output",
    "place",
    metavar="PATH|DIR/",
    help="The page; - is stdout, and DIR/ is made. [default: joulewise-ID.html here]",
)
@click.option("--force", is_flag=True, help="Replace PATH even if it is no report.")
@metric_options(boundary=None)
@click.option(
    "--figures",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Each as a file in DIR, made if need be.",
)
@click.option(
    "--format",
    "forms",
    default="svg",
    show_default=True,
    metavar="FORM,...",
    help=f"Of figures: {', '.join(FORMATS)}.",
)
@click.option(
    "--theme",
    type=click.Choice(["light", "dark", "print"]),
    default="light",
    show_default=True,
    help="Of figures; print is for a paper, without title.",
)
@click.option(
    "--width-mm",
    type=Number(min=30, max=500),
    metavar="MM",
    help="Of figures for print. [default: one column, 85]",
)
@click.option(
    "--tables",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The tables of results as CSV, Markdown and LaTeX (booktabs) in DIR, made if need be.",
)
@reference_option
@click.option("--price", "--price-per-kwh", "price_per_kwh", type=POSITIVE, metavar="PRICE")
@click.option("--gco2-per-kwh", type=POSITIVE, metavar="G", help="What the grid emits.")
@json_option
@pass_store
def command(
    store: Path,
    *,
    which: tuple[str, ...],
    place: str | None,
    json_path: str | None,
    **given: Any,
) -> None:
    """Write a page about a run, a group of runs or a sweep: verdict, tables, figures, data.

    Each is one HTML file that needs nothing else and asks nothing of the network. WHICH is an id,
    the beginning of one, a name, a table of measurements, or last, which after a sweep is the
    sweep. Where only --figures, --tables or --json are asked for, no page is written.
    """
    _refuse_idle(given)
    wants_page = place is not None or not (given["figures"] or given["tables"] or json_path)
    forms = _forms(given["forms"])
    if len(which) > 1 and place and not _is_folder(place):
        raise UsageError(f"{len(which)} reports, and one place: {place}", "give -o a folder/")
    from joulewise.report.html.render import require_extra

    if wants_page or given["figures"]:
        require_extra()
    told = []
    for word in which:
        name, page = _page(store, word, given)
        told.append(page.data)
        if wants_page:
            _write(page, name, place, force=given["force"])
        own = Path(name) if len(which) > 1 else Path()
        if given["figures"]:
            _write_figures(page, given["figures"] / own, forms, given)
        if given["tables"]:
            _write_tables(page, given["tables"] / own)
    if json_path:
        write_json(dict(told[0]) if len(told) == 1 else {"reports": told}, json_path)


def _refuse_idle(given: Mapping[str, Any]) -> None:
    """What says nothing without another option: left out, it would seem to have been heard."""
    context = click.get_current_context()
    for name, option in (("forms", "--format"), ("theme", "--theme"), ("width_mm", "--width-mm")):
        typed = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if typed and not given["figures"]:
            raise UsageError(f"{option} without --figures", "say where to: --figures DIR")
    if given["width_mm"] and given["theme"] != "print":
        raise UsageError("--width-mm is for paper", "add --theme print")


def _refuse_of_others(given: Mapping[str, Any], word: str, others: Mapping[str, str]) -> None:
    for name, why in others.items():
        if given[name] not in {None, ()}:
            raise UsageError(f"--{name.replace('_', '-')} says nothing of {word}", why)


def _page(store: Path, word: str, given: Mapping[str, Any]) -> tuple[str, HtmlPage]:
    """What it is called as a file, and the page."""
    from joulewise.report.html.pages import run_page
    from joulewise.report.inputs import MeantSweep, load_inputs
    from joulewise.report.resolve import resolve
    from joulewise.report.tables import file_name
    from joulewise.report.views.run import PriceAndCarbon

    references = pairs("--reference", given["references"])
    found = load_inputs(store, resolve(store, word), references)
    _refuse_of_others(given, word, _OF_RUNS if isinstance(found, MeantSweep) else _OF_SWEEPS)
    if isinstance(found, MeantSweep):
        return file_name(found.sweep.id), _sweep_page(store, found, given)
    say_if_newest(word, found.alike)
    rates = PriceAndCarbon(given["price_per_kwh"], given["gco2_per_kwh"])
    return file_name(found.result.id), run_page(found, store, rates=rates, program=program(store))


def _sweep_page(store: Path, found: MeantSweep, given: Mapping[str, Any]) -> HtmlPage:
    from joulewise.cli.sweep_evaluation import evaluated, view_asked
    from joulewise.report.html.pages import sweep_page
    from joulewise.report.views.projection import next_commands, outlook

    sweep = found.sweep
    result, view = evaluated(
        sweep, given["by"] or sweep.asked.get("by") or (), view_asked(given, sweep)
    )
    commands = next_commands(sweep, outlook(sweep, result, view), program(store))
    return sweep_page(found, result, view, store, commands=commands)


def _forms(text: str) -> list[str]:
    forms = [form.strip().lower().lstrip(".") for form in text.split(",")]
    for form in forms:
        if form not in FORMATS:
            raise UsageError(f"no figure is written as {form!r}", f"there are {', '.join(FORMATS)}")
    return forms


def _is_folder(place: str) -> bool:
    return place.endswith("/") or is_folder(place)


def _write(page: HtmlPage, name: str, place: str | None, *, force: bool) -> None:
    from joulewise.report.html.render import default_name, write_page

    if place == STDOUT:
        from joulewise.report.html.render import render

        click.echo(render(page), nl=False)
        return
    path = Path(place or default_name(name))
    if place and _is_folder(place):
        _make(path, "-o")
        path /= default_name(name)
    write_page(page, path, force=force)
    say(f"the report is {path}: open it in a browser")


def _make(folder: Path, option: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot make {folder}: {error.strerror}", f"give {option} another folder"
        ) from None


def _write_figures(
    page: HtmlPage, folder: Path, forms: Sequence[str], given: Mapping[str, Any]
) -> None:
    from joulewise.report.charts.files import write_chart
    from joulewise.report.charts.theme import COLUMN_MM
    from joulewise.report.tables import file_name

    theme: Theme = given["theme"]
    _make(folder, "--figures")
    charts = [chart for section in page.sections for chart in section.charts]
    for chart in charts:
        for form in forms:
            path = folder / f"{file_name(chart.key)}.{form}"
            write_chart(chart, path, theme, width_mm=given["width_mm"] or COLUMN_MM)
    say(f"{len(charts)} figures as {', '.join(forms)} in {folder}")


def _write_tables(page: HtmlPage, folder: Path) -> None:
    from joulewise.report.html.render import written_tables
    from joulewise.report.tables import write_tables

    files = list(write_tables(written_tables(page), folder))
    say(f"{len({path.stem for path in files})} tables in {len(files)} files in {folder}")
