"""``joulewise compare``: two runs, groups of runs or sweeps, quantity by quantity."""

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
    json_option,
    pass_store,
    program,
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
    help="End with status 1 if this is the case, as energy>+5%; may be repeated.",
)
@click.option(
    "--sure", is_flag=True, help="Only if the whole interval lies beyond it, not the mean alone."
)
@metric_options(boundary=None)
@form_option("Of the table of quantities, or of the settings of two sweeps.")
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Also write a page with figures, which opens offline.",
)
@click.option("--force", is_flag=True, help="Write the page over a file that is no report.")
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
    """Tell what B takes more or less than A, and whether that is more than noise.

    A and B are each a run (an id, the beginning of one, last, or the path of its directory),
    several runs (a name or a tag that they share, a folder with run directories, or a list with
    commas), a --group, or a sweep (its id, its name, or a CSV of measurements).
    """
    from joulewise.compare.conditions import parse_condition

    conditions = tuple(parse_condition(text) for text in fail_if)
    if sure and not conditions:
        raise UsageError("--sure without --fail-if", "say of what: --fail-if 'energy>+5%'")
    if html is not None:
        from joulewise.report.html.render import check_place, require_extra

        require_extra()
        check_place(html, force=force)
    from joulewise.report.views.compare import CompareOptions, compared

    made = compared(store, a, b, CompareOptions(conditions, sure, **given))
    if html is not None:
        from joulewise.report.html.pages import compare_page
        from joulewise.report.html.render import write_page

        again = f"{program(store)} compare {shlex.join([a, b])}"
        write_page(compare_page(made, store, again), html, force=force)
        say(f"the page is {html}: open it in a browser")
    if json_path:
        write_json(made.told, json_path)
    if json_path != STDOUT:
        _show(made, form)
    return 1 if made.has_failed else 0


def _show(made: ComparisonResult, form: str) -> None:
    from joulewise.report.tables import FORMS
    from joulewise.report.terminal.compare import draw

    judged = [(it.is_the_case, sentence) for it, sentence in made.judged]
    if form == "text":
        draw(made.view, console(), judged=judged)
        return
    click.echo(FORMS[form](made.view.tables[0]), nl=False)
    for _, sentence in judged:
        say(sentence)
