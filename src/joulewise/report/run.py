"""Draws a run's result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from joulewise.data import RunResult
from joulewise.report.figures import fitting, one_line, plain
from joulewise.report.run_view import NO_RATES, Rates, Row, RunView, SpanRow, view, warned
from joulewise.report.sensor_tables import rates_table
from joulewise.report.sheet import Sheet
from joulewise.report.tables import Table as ResultTable

_NARROW = 70
"""Columns of a terminal in which the figures need all the room, and the source gives way."""
# Of a span's name in the table: two lines of it at 80 columns. Marks keep about 200.
_SPAN_LETTERS: Final = 60

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
    rates: Rates = NO_RATES,
    errors: bool = False,
    program: str = "joulewise",
) -> None:
    """The whole result; with ``errors`` each error's two parts have columns of their own.

    Then it also says how often the sensors had a new value, which is what sampling errors rest on.
    """
    tables = [table for table in (rates_table({"": result}),) if errors and table.rows]
    _draw(view(result, rates, program), console, errors=errors, tables=tables)


def _draw(shown: RunView, console: Console, *, errors: bool, tables: Sequence[ResultTable]) -> None:
    def text(line: str, style: str = "") -> Text:
        return Text(fitting(line, console.encoding), style=style)

    def indent(what: Table | Text) -> None:
        console.print(Padding(what, (0, 0, 0, 2), expand=False))

    console.print(text(shown.title, "bold"))
    for fact in shown.facts:
        indent(text(fact, "dim"))
    console.print()
    indent(_device_table(shown.rows, shown.total, console, errors=errors))
    for note in shown.notes:
        indent(text(note))
    if shown.spans:
        console.print()
        indent(_span_table(shown.spans, console))
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
    console.print(text(shown.finding, "bold"))
    for command, what in shown.commands:
        # Not wrapped: it is there to be pasted.
        console.print(Text.assemble("  ", (command, "cyan"), f"  # {what}"), soft_wrap=True)


def _draw_tables(tables: Iterable[ResultTable], console: Console) -> None:
    for table in tables:
        Sheet(console).table(table)


def _device_table(rows: Sequence[Row], total: Row, console: Console, *, errors: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    two = ("sampling", "gain") if errors else ("mean", "peak")
    for header in ("device", "energy", "error", *two, "source"):
        justify: Literal["left", "right"] = "left" if header in {"device", "source"} else "right"
        table.add_column(header, justify=justify, overflow="fold")
    for row in [*rows, total]:
        cells = (row.energy, row.error, *(row.parts if errors else (row.mean, row.peak)))
        source = Text(row.source, style=_SOURCE_STYLE.get(row.source.partition(" ")[0], ""))
        style = "bold" if row is total else ""
        figures = (Text(fitting(cell, console.encoding)) for cell in cells)
        table.add_row(Text(row.device), *figures, source, style=style)
    if console.width < _NARROW:
        del table.columns[-1]
    return table


def _span_table(rows: Sequence[SpanRow], console: Console) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("span", overflow="fold")
    for header in ("count", "mean time", "min-max", "mean energy", "min-max"):
        table.add_column(header, justify="right", overflow="fold")
    for row in rows:
        cells = (row.count, row.time, row.times, row.energy, row.energies)
        name = Text(one_line(row.name, _SPAN_LETTERS))
        table.add_row(name, *(Text(fitting(cell, console.encoding)) for cell in cells))
    return table
