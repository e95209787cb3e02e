"""Draws the plan and the result of a sweep in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.text import Text

from joulewise.formatting import amount, fitting, joules, seconds
from joulewise.metrics.result import SweepResult
from joulewise.report.settings_text import runs_planned, setting_words, settings_counted
from joulewise.report.tables import Table
from joulewise.report.terminal.layout import Sheet, indent
from joulewise.report.views.sweep import PlanView, SweepOutcome, SweepView, sweep_view

if TYPE_CHECKING:
    from joulewise.sweep.estimate import SweepEstimate

_SHOWN_SETTINGS: Final = 8  # of a repetition that are listed (chosen: one or two lines)


def draw(
    result: SweepResult,
    console: Console,
    *,
    how: SweepOutcome | None = None,
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


def _draw_remarks(shown: SweepView, how: SweepOutcome | None, sheet: Sheet, *, fits: bool) -> None:
    notes = [*(how.notes if how else ()), *(shown.fits if fits else ()), *shown.notes]
    for note in notes:
        sheet.line(note)
    sheet.warnings(shown.warnings)
    for problem, under in how.problems if how else ():
        sheet.line(problem, "red")
        for text in under:
            sheet.line(text, "dim", 4)
    if notes or shown.warnings or (how and how.problems):
        sheet.console.print()


def draw_plan(shown: PlanView, console: Console) -> None:
    """Draw what a sweep will do and take (``sweep --dry-run``)."""
    for text in _plan_lines(shown):
        indent(Text(fitting(text, console.encoding)), console)


def _plan_lines(shown: PlanView) -> Iterator[str]:
    expected = shown.estimate
    name = f"{shown.name}: " if shown.name else ""
    at_once = f", {expected.lanes} at a time" if expected.lanes > 1 else ""
    settings = settings_counted(shown.settings, shown.reference)
    points = (shown.reference, *shown.settings)
    runs = runs_planned(points, expected.runs, is_search=not shown.blocks)
    as_needed = at_once if shown.blocks else ", as they are needed"
    yield f"{name}{settings}, {runs}{as_needed}"
    yield f"reference: {setting_words(shown.reference)}"
    for number, block in enumerate(shown.blocks, 1):
        first = " | ".join(map(setting_words, block[:_SHOWN_SETTINGS]))
        rest = f" | … {len(block) - _SHOWN_SETTINGS} more" if len(block) > _SHOWN_SETTINGS else ""
        yield f"repetition {number}: {first}{rest}"
    if shown.is_simulated:
        yield f"real runs would take {_totals(expected)} ({expected.basis.source})"
        yield "the simulation takes seconds"
    else:
        yield f"{_taking(expected)} ({expected.basis.source})"
    if expected.left_out:
        yield f"not included: {expected.left_out}"


def _taking(expected: SweepEstimate) -> str:
    if expected.time_s is None:
        if expected.most_s is None:
            return "it is not known how long it takes"
        return f"it takes at most {seconds(expected.most_s)}"
    return f"it takes about {_totals(expected)}"


def _totals(expected: SweepEstimate) -> str:
    """Time, energy and price, as far as they are known."""
    parts = (
        None if expected.time_s is None else seconds(expected.time_s),
        None if expected.energy_j is None else joules(expected.energy_j),
        None if expected.price is None else f"{amount(expected.price)} in the currency of --price",
    )
    return ", ".join(filter(None, parts))
