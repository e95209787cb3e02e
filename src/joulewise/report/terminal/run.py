"""Draws a run's result.

The one line before a command starts: what is measured, how, and under which name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from joulewise.data import RunResult
from joulewise.formatting import fitting, one_line, plain
from joulewise.report.tables import Column, Style, drawn
from joulewise.report.tables import Table as ResultTable
from joulewise.report.terminal.layout import Sheet
from joulewise.report.views.run import (
    NO_RATES,
    DeviceRow,
    PriceAndCarbon,
    RunView,
    SpanRow,
    run_view,
    warned,
)
from joulewise.report.views.run_tables import rates_table

# Of a name in the table of spans, so that its figures stand beside it at 80 columns (chosen). With
# more, a long name pushes figures into a block below. Marks keep about 200.
_SPAN_LETTERS: Final = 24

_SOURCE_STYLE = {
    "measured": "green",
    "simulated": "magenta",
    "modelled": "yellow",
    "assumed": "yellow",
    "mixed": "yellow",
}


def draw(
    result: RunResult,
    console: Console,
    *,
    rates: PriceAndCarbon = NO_RATES,
    errors: bool = False,
    program: str = "joulewise",
) -> None:
    """The whole result; with ``errors`` each error's two parts have columns of their own.

    Then it also says how often the sensors had a new value, which is what sampling errors rest on.
    """
    tables = [table for table in (rates_table({"": result}),) if errors and table.rows]
    _draw(run_view(result, rates, program), console, errors=errors, tables=tables)


def _draw(shown: RunView, console: Console, *, errors: bool, tables: Sequence[ResultTable]) -> None:
    def text(line: str, style: str = "") -> Text:
        return Text(fitting(line, console.encoding), style=style)

    def indent(what: Table | Text) -> None:
        console.print(Padding(what, (0, 0, 0, 2), expand=False))

    console.print(text(shown.title, "bold"))
    for fact in shown.facts:
        indent(text(fact, "dim"))
    console.print()
    _draw_devices(shown.rows, shown.total, console, errors=errors)
    for note in shown.notes:
        indent(text(note))
    if shown.spans:
        console.print()
        _draw_spans(shown.spans, console)
    _draw_tables(tables, console)
    if shown.warnings:
        console.print()
    for warning in shown.warnings:
        lines = Table.grid(padding=(0, 1, 0, 0))
        lines.add_row(
            text("warning:", "yellow"),
            text(warned(warning), "yellow"),
        )
        if warning.hint:
            lines.add_row("", text(plain(warning.hint)))
        indent(lines)
    console.print()
    Sheet(console).line(shown.finding, "bold", 0)
    for command, what in shown.commands:
        # Not wrapped: it is there to be pasted.
        console.print(Text.assemble("  ", (command, "cyan"), f"  # {what}"), soft_wrap=True)


def _draw_tables(tables: Iterable[ResultTable], console: Console) -> None:
    for table in tables:
        Sheet(console).table(table)


def _draw_devices(
    rows: Sequence[DeviceRow], total: DeviceRow, console: Console, *, errors: bool
) -> None:
    two = ("sampling", "gain") if errors else ("mean", "peak")
    source = Column("source", right=False, spare=1)
    columns = (
        Column("device", right=False),
        Column("energy"),
        Column("error"),
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
        of_source = _SOURCE_STYLE.get(cells[row][-1].partition(" ")[0], "")
        bold = "bold" if row == len(rows) else ""
        return " ".join(filter(None, (bold, of_source if columns[column] is source else "")))

    _draw_blocks(ResultTable("", columns, cells), console, style)


def _draw_spans(rows: Sequence[SpanRow], console: Console) -> None:
    columns = (
        Column("span", right=False),
        Column("count"),
        Column("mean time"),
        Column("time min-max", spare=1),
        Column("mean energy"),
        Column("energy min-max", spare=1),
    )
    cells = (
        (one_line(it.name, _SPAN_LETTERS), it.count, it.time, it.times, it.energy, it.energies)
        for it in rows
    )
    _draw_blocks(ResultTable("", columns, tuple(cells)), console)


def _draw_blocks(table: ResultTable, console: Console, style: Style | None = None) -> None:
    blocks = drawn(table, console.encoding, console.width - 2, style, "dim")
    Sheet(console).grids(blocks)
