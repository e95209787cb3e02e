"""Draws the result of a sweep in the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

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
    """Draw the best setting per objective; with ``points`` also every setting.

    ``also`` are more tables, ``ahead`` sentences on what the choices lead to, and ``commands`` what
    to run next, each with its purpose.
    """
    shown = sweep_view(result)
    sheet = Sheet(console)
    sheet.line(shown.title, "bold", 0)
    for fact in shown.facts:
        sheet.line(fact, "dim")
    settings = (shown.points,) if points or not result.best else ()
    choices = (shown.choices, *also, shown.boundaries) if result.best else ()
    for table in (*settings, *choices):
        if table.rows:
            sheet.table(table)
    console.print()
    _draw_remarks(shown, how, sheet, fits=fits)
    for finding in shown.findings:
        sheet.line(finding, "bold", 0)
    for sentence in (*(how.search if how else ()), *ahead):
        sheet.line(sentence)
    for command, what in commands:
        sheet.paste(command, what)


def _draw_remarks(shown: SweepView, how: Went | None, sheet: Sheet, *, fits: bool) -> None:
    notes = [*(how.notes if how else ()), *(shown.fits if fits else ()), *shown.notes]
    for note in notes:
        sheet.line(note)
    sheet.warnings(shown.cautions)
    for problem, under in how.problems if how else ():
        sheet.line(problem, "red")
        for text in under:
            sheet.line(text, "dim", 4)
    if notes or shown.cautions or (how and how.problems):
        sheet.console.print()
