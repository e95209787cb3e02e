"""Draws a comparison in the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

from joulewise.report.terminal.layout import Sheet
from joulewise.report.views.compare import CompareView


def draw(
    shown: CompareView,
    console: Console,
    *,
    judged: Iterable[tuple[bool, str]] = (),
    commands: Iterable[tuple[str, str]] = (),
) -> None:
    """Draw tables, warnings and the finding; then each ``--fail-if`` condition in ``judged``.

    A condition is whether it is the case, and the sentence that says why.
    """
    sheet = Sheet(console)
    sheet.line(shown.title, "bold", 0)
    for fact in shown.facts:
        sheet.line(fact, "dim")
    for table in shown.tables:
        sheet.table(table)
    console.print()
    sheet.warnings(shown.warnings)
    if shown.warnings:
        console.print()
    sheet.line(shown.finding, "bold", 0)
    for is_the_case, sentence in judged:
        sheet.line(sentence, "red" if is_the_case else "green", 0)
    for command, what in commands:
        sheet.paste(command, what)
