"""Draws the outcome of a tuning, or its state, in the terminal."""

from __future__ import annotations

from rich.console import Console

from joulewise.data.tuning import Tuning
from joulewise.report.terminal.layout import Sheet
from joulewise.report.views.tuning import tuning_view


def draw(tuning: Tuning, console: Console) -> None:
    """Draw what won and why, what it saves, what exploring took, and what was tried."""
    shown = tuning_view(tuning)
    sheet = Sheet(console)
    console.print()
    sheet.line(shown.title, "bold", 0)
    if shown.tried.rows:
        sheet.blocks(shown.tried, header_style="dim")
        if shown.tried.note:
            sheet.line(shown.tried.note, "dim")
        console.print()
    for fact in (*shown.facts, *shown.notes):
        sheet.line(fact)
    sheet.line(shown.finding, "bold", 0)
