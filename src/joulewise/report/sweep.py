"""Draws what came of a sweep."""

from __future__ import annotations

from collections.abc import Iterable

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
) -> None:
    """The choices; with ``points`` every setting, too."""
    _draw(view(result, program), tuple(outlook_lines(outlooks, result.per)), console, points=points)


def _draw(shown: SweepView, ahead: Iterable[str], console: Console, *, points: bool) -> None:
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
    for what in (*((shown.points,) if points else ()), shown.choices, shown.boundaries):
        table(what)
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
