"""Draws what came of a sweep."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

from joulewise.formatting import plain
from joulewise.metrics.result import SweepResult
from joulewise.report.tables import Table
from joulewise.report.terminal.layout import Sheet
from joulewise.report.views.sweep import SweepView, Went, sweep_view


def draw(
    result: SweepResult,
    console: Console,
    *,
    how: Went | None = None,
    points: bool = False,
    fits: bool = False,
    also: tuple[Table, ...] = (),
    ahead: Iterable[str] = (),
    commands: Iterable[tuple[str, str]] = (),
) -> None:
    """The choices; with ``points`` every setting, too, and ``also`` what somebody has beside them.

    ``ahead`` is what they mean from here on, and it ends with ``commands`` to try next.
    """
    shown = sweep_view(result)
    page = Sheet(console)
    page.line(shown.title, "bold", 0)
    for fact in shown.facts:
        page.line(fact, "dim")
    points_too = (shown.points,) if points or not result.best else ()
    choices = (shown.choices, *also, shown.boundaries) if result.best else ()
    for table in (*points_too, *choices):
        if table.rows:
            page.table(table)
    console.print()
    _draw_remarks(shown, how, page, fits=fits)
    for finding in shown.findings:
        page.line(finding, "bold", 0)
    for sentence in how.search if how else ():
        page.line(sentence)
    for sentence in ahead:
        page.line(sentence)
    for command, what in commands:
        page.paste(command, what)


def _draw_remarks(shown: SweepView, how: Went | None, page: Sheet, *, fits: bool) -> None:
    said = [*(how.notes if how else ()), *(shown.fits if fits else ()), *shown.notes]
    for note in said:
        page.line(note)
    for caution in shown.cautions:
        page.line(f"warning: {plain(caution.message)}", "yellow")
        page.line(plain(caution.hint), "dim", 11)
    for problem, under in how.problems if how else ():
        page.line(problem, "red")
        for text in under:
            page.line(text, "dim", 4)
    if said or shown.cautions or (how and how.problems):
        page.console.print()
