"""Draws the result of a run in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from joulewise.data import RunResult
from joulewise.formatting import fitting, one_line
from joulewise.report.tables import Column, Table, number_columns
from joulewise.report.terminal.layout import Sheet, indent, print_command
from joulewise.report.views.run import (
    NO_RATES,
    DeviceRow,
    PriceAndCarbon,
    SpanRow,
    run_view,
)
from joulewise.report.views.run_tables import rates_table

# Characters of a span's name, so that its figures fit beside it at 80 columns (chosen). Doubled, a
# long name pushes figures into a block below. Marks keep about 200.
_SPAN_LETTERS: Final = 24

_SOURCE_STYLE = {
    "measured": "green",
    "simulated": "magenta",
    "modelled": "yellow",
    "assumed": "yellow",
}


def draw(
    result: RunResult,
    console: Console,
    *,
    rates: PriceAndCarbon = NO_RATES,
    errors: bool = False,
    program: str = "joulewise",
) -> None:
    """Draw the whole result; with ``errors`` both parts of each error in place of the watts.

    Then also the error of a typical span of each name, and how often the sensors had a new value,
    which the sampling errors are computed from.
    """
    shown = run_view(result, rates, program, has_errors=errors)
    sheet = Sheet(console)
    console.print(Text(fitting(shown.title, console.encoding), style="bold"))
    for fact in shown.facts:
        indent(Text(fitting(fact, console.encoding), style="dim"), console)
    console.print()
    _draw_devices(shown.rows, shown.total, sheet, errors=errors)
    for note in shown.notes:
        indent(Text(fitting(note, console.encoding)), console)
    if shown.spans:
        console.print()
        _draw_spans(shown.spans, sheet, errors=errors)
    update_rates = rates_table({"": result})
    if errors and update_rates.rows:
        sheet.table(update_rates)
    if shown.warnings:
        console.print()
    sheet.warnings(shown.warnings)
    console.print()
    sheet.line(shown.finding, "bold", 0)
    for command, what in shown.commands:
        print_command(command, what, console)


def _draw_devices(
    rows: Sequence[DeviceRow], total: DeviceRow, sheet: Sheet, *, errors: bool
) -> None:
    two = ("sampling error", "calibration error") if errors else ("mean", "peak")
    source = Column("source", right=False, spare=1)
    columns = (
        Column("device", right=False),
        *number_columns("energy", "error"),
        *(Column(title, spare=2) for title in two),
        source,
    )
    cells = tuple(
        (
            row.device,
            row.energy,
            row.error,
            *(row.parts if errors else (row.mean, row.peak)),
            row.source,
        )
        for row in (*rows, total)
    )

    def style(row: int, column: int) -> str:
        bold = "bold" if row == len(rows) else ""
        if columns[column] is not source:
            return bold
        several = "," in cells[row][-1].partition(" (")[0]
        colour = "yellow" if several else _SOURCE_STYLE.get(cells[row][-1].partition(" ")[0], "")
        return " ".join(filter(None, (bold, colour)))

    sheet.blocks(Table("", columns, cells), style, "dim")


def _draw_spans(rows: Sequence[SpanRow], sheet: Sheet, *, errors: bool) -> None:
    columns = (
        Column("span", right=False),
        *number_columns("count", "mean time"),
        Column("time min-max", spare=1),
        Column("mean energy"),
        *((Column("error of a span"),) if errors else ()),
        Column("energy min-max", spare=1),
    )
    cells = (
        (
            *(one_line(row.name, _SPAN_LETTERS), row.count, row.time, row.times, row.energy),
            *((row.error,) if errors else ()),
            row.energies,
        )
        for row in rows
    )
    sheet.blocks(Table("", columns, tuple(cells)), header_style="dim")
