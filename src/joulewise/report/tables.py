"""A table of results, in every form: for a terminal, CSV, JSON, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from joulewise.data.codec import encode
from joulewise.store.files import UNENCODABLE

if TYPE_CHECKING:
    from rich.table import Table as RichTable

_LATEX: Final = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "·": r"$\cdot$",
    "−": "$-$",  # noqa: RUF001  # the sign that stands in figures
    "≤": r"$\leq$",
    "₀": r"$_0$",
    "°": r"$^\circ$",
    "µ": r"$\mu$",
    "…": r"\dots{}",
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
}
# Characters with a meaning in Markdown and, below, in LaTeX's figures: a minus sign is a hyphen
# before a number; a range is two numbers with a hyphen between them.
_MARKDOWN: Final = re.compile(r"([\\`*_{}\[\]<>|#~])")
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_GAP: Final = 2  # columns of a terminal between two columns of a table (chosen, as in ls -l)
_NO_FIGURE: Final = "-"
# A file system takes names of 255 bytes; an ending and a number are added.
_LONGEST_NAME: Final = 120
# Characters that fit across both columns of a paper (178 mm) in \small, gaps included (chosen).
# Doubled, wide tables run over the margin.
_PAPER_CHARACTERS: Final = 100
_MINUS: Final = re.compile(r"(?<![\w.])-(?=\d)")
_RANGE: Final = re.compile(r"(?<=\d)-(?=\d)")
_RANGE_CELL: Final = re.compile(r"\d[\d.]*-\d[\d.]*( \S+)?")


@dataclass(frozen=True)
class Column:
    """A column; ``unit`` is in its heading, and ``right`` aligns it as a number.

    Where a terminal is too narrow for all columns side by side, those with the highest ``spare``
    are the first to be moved into a block below.
    """

    title: str
    unit: str = ""
    right: bool = True
    spare: int = 0

    @property
    def heading(self) -> str:
        """``limit (W)``."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


def text_columns(*titles: str) -> tuple[Column, ...]:
    """Columns of words, aligned to the left."""
    return tuple(Column(title, right=False) for title in titles)


def number_columns(*titles: str) -> tuple[Column, ...]:
    """Columns of numbers, aligned to the right."""
    return tuple(map(Column, titles))


@dataclass(frozen=True)
class Table:
    """A table of results; a cell is a text for people, or None where there is no figure.

    ``records`` are the same rows for programs: plain numbers, in the units of their names. A row
    that sums up others is for people alone, since a program may add up the records. ``provenance``
    holds for the whole table, such as ``GPU simulated``. ``name`` is used for files and labels in
    place of the title. The first ``keys`` columns name a row, and are repeated in every block.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str | None, ...], ...]
    records: tuple[Mapping[str, float | str | None], ...] = ()
    note: str = ""
    provenance: str = ""
    name: str = ""
    keys: int = 1

    @property
    def file_name(self) -> str:
        """The name for files and labels."""
        return file_name(self.name or self.title)

    @property
    def caption(self) -> str:
        """The title with the provenance, since a table may be copied by itself."""
        return f"{self.title} ({self.provenance})" if self.provenance else self.title


def file_name(title: str) -> str:
    """A title as a file name: letters, digits and hyphens, cut off between words if long."""
    words = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    if len(words) > _LONGEST_NAME:
        words = words[: _LONGEST_NAME + 1].rpartition("-")[0] or words[:_LONGEST_NAME]
    return words or "table"


def with_source(table: Table) -> tuple[Mapping[str, float | str | None], ...]:
    """The records, with the provenance as ``source`` where they have no such field."""
    if not table.provenance or any("source" in record for record in table.records):
        return table.records
    return tuple({**record, "source": table.provenance} for record in table.records)


def as_csv(table: Table) -> str:
    """The records as CSV; text that a spreadsheet would run as a formula gets an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    records = with_source(table)
    first = (name for record in table.records for name in record)
    names = list(dict.fromkeys((*first, *(name for record in records for name in record))))
    writer.writerow(map(_escape_formula, names))
    for record in records:
        writer.writerow([_escape_formula(record.get(name)) for name in names])
    return out.getvalue()


def as_json(table: Table) -> str:
    """The records as JSON; what is not a number in JSON is null."""
    records = encode(with_source(table))
    return json.dumps(records, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_markdown(table: Table) -> str:
    """The cells as a Markdown table with its caption and note."""
    rule = ["---:" if column.right else "---" for column in table.columns]
    lines = [
        _markdown_row([_escape_markdown(column.heading) for column in table.columns]),
        _markdown_row(rule),
        *(_markdown_row([_escape_markdown(_shown(cell)) for cell in row]) for row in table.rows),
    ]
    note = f"\n{_escape_markdown(table.note)}\n" if table.note else ""
    return f"**{_escape_markdown(table.caption)}**\n\n" + "\n".join(lines) + "\n" + note


def as_latex(table: Table) -> str:
    """The cells as a LaTeX table, for a document that uses the package booktabs.

    Columns that do not fit on a page are left out by their ``spare``; a comment names them.
    """
    cells = [[_shown(cell) for cell in row] for row in table.rows]
    widths = _widths([column.heading for column in table.columns], cells)
    first = _blocks(table, widths, _PAPER_CHARACTERS)[0]
    columns = [table.columns[at] for at in first]
    others = [table.columns[at].title for at in range(len(widths)) if at not in first]
    comment = f"% left out for width: {_one_comment(others)}\n" if others else ""
    align = "".join("r" if column.right else "l" for column in columns)
    note = f"\n\\par\\smallskip {_escape_latex(table.note)}" if table.note else ""
    rows = "\n".join(
        _latex_row([_latex_cell(row[at], table.columns[at]) for at in first]) for row in cells
    )
    return (
        f"{comment}"
        "\\begin{table}\n"
        f"\\caption{{{_escape_latex(table.caption)}}}\n"
        f"\\label{{tab:{table.file_name}}}\n"
        "\\centering\n"
        f"\\begin{{tabular}}{{{align}}}\n"
        "\\toprule\n"
        f"{_latex_row([_escape_latex(column.heading) for column in columns])}\n"
        "\\midrule\n"
        f"{rows}\n"
        "\\bottomrule\n"
        f"\\end{{tabular}}{note}\n"
        "\\end{table}\n"
    )


def _latex_cell(cell: str, column: Column) -> str:
    """A cell with a minus sign before numbers, and a dash in ranges and for no figure.

    A row must not begin with a bracket, which would be an argument of the row before.
    """
    if cell == _NO_FIGURE:
        return "--"
    if column.right:
        if _RANGE_CELL.fullmatch(cell):
            return _RANGE.sub("--", _escape_latex(cell))
        return _MINUS.sub("$-$", _escape_latex(cell))
    text = _escape_latex(cell)
    return f"{{[}}{text[1:]}" if text.startswith("[") else text


def _one_comment(words: Sequence[str]) -> str:
    return " ".join(", ".join(dict.fromkeys(words)).split())


FORMS: Final[Mapping[str, Callable[[Table], str]]] = {
    "csv": as_csv,
    "json": as_json,
    "markdown": as_markdown,
    "latex": as_latex,
}
"""The forms of a table as text."""


Style = Callable[[int, int], str]
"""The rich style of a cell by its row and its column, such as ``bold``."""


def drawn(
    table: Table, encoding: str, width: int, style: Style | None = None, header_style: str = "bold"
) -> list[RichTable]:
    """The table for a terminal of ``width`` columns, in several blocks if it is too wide.

    Each block begins with the columns that name a row. No column is left out, and no figure is
    broken over two lines, where it could be misread.
    """
    from rich.text import Text

    from joulewise.formatting import fitting

    cells = [[fitting(_shown(cell), encoding) for cell in row] for row in table.rows]
    headings = [fitting(column.heading, encoding) for column in table.columns]
    widths = _widths(headings, cells)
    # First the headings are stacked; only then columns move into another block.
    if _total_width(widths) > width:
        headings = [_stacked(heading) for heading in headings]
        widths = _widths(headings, cells)
    grids = []
    for block in _blocks(table, widths, width):
        grid = new_rich_table(header_style)
        for at in block:
            justify: Literal["left", "right"] = "right" if table.columns[at].right else "left"
            grid.add_column(Text(headings[at]), justify=justify)
        for i, row in enumerate(cells):
            grid.add_row(*(Text(row[at], style(i, at) if style else "") for at in block))
        grids.append(grid)
    return grids


def new_rich_table(header_style: str = "dim", *headers: str) -> RichTable:
    """An empty table for a terminal; every table in the terminal is set up here."""
    from rich.table import Table as RichTable

    return RichTable(
        *headers, box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style=header_style
    )


def _blocks(table: Table, widths: Sequence[int], width: int) -> list[list[int]]:
    """The numbers of the columns in each block, those with the least ``spare`` in the first."""
    columns = range(len(table.columns))
    keys, rest = list(columns[: table.keys]), list(columns[table.keys :])
    blocks = []
    while rest:
        block = _fill_block(table.columns, widths, keys, rest, width)
        blocks.append([*keys, *block])
        rest = [at for at in rest if at not in block]
    return blocks or [keys]


def _fill_block(
    columns: Sequence[Column],
    widths: Sequence[int],
    keys: Sequence[int],
    rest: Sequence[int],
    width: int,
) -> list[int]:
    """The columns of the next block: those of one ``spare`` stay together if they fit."""
    block = list(rest)
    for spare in sorted({columns[at].spare for at in rest}, reverse=True):
        if _total_width([widths[at] for at in (*keys, *block)]) <= width:
            return block
        if fewer := [at for at in block if columns[at].spare != spare]:
            block = fewer
    # Even those with the least spare are too wide together: the last ones move on.
    while len(block) > 1 and _total_width([widths[at] for at in (*keys, *block)]) > width:
        block.pop()
    return block


def _widths(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    from rich.cells import cell_len

    return [
        max(map(cell_len, (*heading.split("\n"), *(row[at] for row in cells))))
        for at, heading in enumerate(headings)
    ]


def _total_width(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _stacked(heading: str) -> str:
    """A heading in two lines, its last word below the others."""
    return "\n".join(heading.rsplit(" ", 1))


def _shown(cell: str | None) -> str:
    return _NO_FIGURE if cell is None else cell


def _escape_formula(value: float | str | None) -> float | str | None:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape_markdown(cell: str) -> str:
    return _MARKDOWN.sub(r"\\\1", " ".join(cell.split()))


def _latex_row(cells: Sequence[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


def _escape_latex(cell: str) -> str:
    return "".join(_LATEX.get(char, char) for char in " ".join(cell.split()))


_ENDINGS: Final[Mapping[str, Callable[[Table], str]]] = {
    "csv": FORMS["csv"],
    "md": FORMS["markdown"],
    "tex": FORMS["latex"],
}


def write_tables(tables: Mapping[str, Table], folder: Path) -> Iterator[Path]:
    """Write every table that has rows as CSV, Markdown and LaTeX; yields the paths."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            for ending, form in _ENDINGS.items() if table.rows else ():
                path = folder / f"{name}.{ending}"
                path.write_text(form(table), encoding="utf-8", errors=UNENCODABLE)
                yield path
    except OSError as error:
        from joulewise.report.export import write_error  # loads pyarrow

        raise write_error(folder, error, "name a folder that can be written to") from None
