"""Draws what came of a sweep."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from joulewise.metrics.result import SweepResult
from joulewise.report.figures import fitting, plain
from joulewise.report.sweep_outlook import Outlook, outlook_lines
from joulewise.report.sweep_view import SweepView, view
from joulewise.report.tables import Table, drawn


def draw(
    result: SweepResult,
    console: Console,
    *,
    program: str = "joulewise",
    points: bool = False,
    outlooks: tuple[Outlook, ...] = (),
    also: tuple[Table, ...] = (),
    commands: tuple[tuple[str, str], ...] | None = None,
) -> None:
    """The choices; with ``points`` every setting, too, and ``also`` what somebody has beside them.

    It ends with ``commands`` to try next, or with those that always fit.
    """
    shown = view(result, program)
    if commands is not None:
        shown = replace(shown, commands=commands)
    tables = (*((shown.points,) if points else ()), shown.choices, *also, shown.boundaries)
    _draw(shown, tables, tuple(outlook_lines(outlooks, result.per)), console)


def _draw(
    shown: SweepView, tables: Iterable[Table], ahead: Iterable[str], console: Console
) -> None:
    def line(text: str, style: str = "", indent: int = 2) -> None:
        fitted = Text(fitting(text, console.encoding), style=style)
        console.print(Padding(fitted, (0, 0, 0, indent), expand=False))

    def table(what: Table) -> None:
        console.print()
        line(what.title, "dim")
        console.print(Padding(drawn(what, console.encoding), (0, 0, 0, 2), expand=False))

    line(shown.title, "bold", 0)
    for fact in shown.facts:
        line(fact, "dim")
    for each in tables:
        table(each)
    console.print()
    for note in shown.notes:
        line(note)
    for caution in shown.cautions:
        line(f"warning: {plain(caution.message)}", "yellow")
        line(plain(caution.hint), "dim", 11)
    console.print()
    for finding in shown.findings:
        line(finding, "bold", 0)
    for text in ahead:
        line(text)
    for command, what in shown.commands:
        line(f"{command}  # {what}", "dim")
