"""``joulewise compare``: compares two runs, groups of runs or sweeps, quantity by quantity."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from joulewise.cli.options import metric_options
from joulewise.cli.output import (
    STDOUT,
    console,
    form_option,
    joulewise_command,
    json_option,
    pass_store,
    say,
    write_json,
)
from joulewise.errors import UsageError

if TYPE_CHECKING:
    from joulewise.report.views.compare import ComparisonResult

EPILOG = """\b
Examples:
  joulewise compare before after
  joulewise compare 20260711-101530-3c2a last
  joulewise compare baseline/ last --fail-if 'energy>+5%' --fail-if 'time>+10%'
  joulewise compare monday tuesday --by edp     # two sweeps
  joulewise compare before after --html difference.html
"""


@click.command(epilog=EPILOG)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--fail-if",
    "fail_if",
    multiple=True,
    metavar="CONDITION",
    help="Exit with status 1 if this holds, as in energy>+5%; may be repeated.",
)
@click.option(
    "--sure",
    is_flag=True,
    help="Fail only if the whole 95 % interval meets a condition of --fail-if, not just its mean.",
)
@metric_options(boundary=None)
@form_option("Format of the table of quantities, or of settings for two sweeps.")
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Also write an HTML page with figures to PATH.",
)
@click.option("--force", is_flag=True, help="Replace PATH even if it is not a report of joulewise.")
@json_option
@pass_store
def command(
    store: Path,
    a: str,
    b: str,
    *,
    fail_if: Sequence[str],
    sure: bool,
    form: str,
    html: Path | None,
    force: bool,
    json_path: str | None,
    **given: Any,
) -> int:
    """Show how B differs from A, and whether the difference is more than noise.

    A and B are each a run (an id, the beginning of one, last, or the path of its directory),
    several runs (a name or tag that they share, a folder of run directories, or a list separated
    by commas), a group, or a sweep (its id, its name, or a CSV file of measurements).
    """
    from joulewise.compare.conditions import parse_condition

    conditions = tuple(parse_condition(text) for text in fail_if)
    if sure and not conditions:
        raise UsageError("--sure needs --fail-if", "add, for example, --fail-if 'energy>+5%'")
    if html is not None:
        from joulewise.report.html.render import check_page_path, require_extra

        require_extra()
        check_page_path(html, force=force)
    from joulewise.report.views.compare import CompareOptions, compared

    result = compared(store, a, b, CompareOptions(conditions, sure, **given))
    if html is not None:
        from joulewise.report.html.pages import compare_page
        from joulewise.report.html.render import write_page

        again = f"{joulewise_command(store)} compare {shlex.join([a, b])}"
        write_page(compare_page(result, store, again), html, force=force)
        say(f"wrote {html}: open it in a browser")
    if json_path:
        write_json(result.payload, json_path)
    if json_path != STDOUT:
        _show(result, form)
    return 1 if result.has_failed else 0


def _show(result: ComparisonResult, form: str) -> None:
    from joulewise.report.tables import FORMS
    from joulewise.report.terminal.compare import draw

    judged = [(condition.is_the_case, sentence) for condition, sentence in result.judged]
    if form == "text":
        draw(result.view, console(), judged=judged)
        return
    click.echo(FORMS[form](result.view.tables[0]), nl=False)
    for _, sentence in judged:
        say(sentence)
