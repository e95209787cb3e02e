"""One table in every form: for a terminal, a spreadsheet, a paper, a page.

Tables as files: for a spreadsheet or a program, a page, a paper.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from joulewise.data.codec import finite
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
_MARKDOWN: Final = re.compile(r"([\\`*_{}\[\]<>|#~])")
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_GAP: Final = 2
_NO_FIGURE: Final = "-"
# A file system takes names of 255 bytes; an ending and a number are still to come.
_LONGEST_NAME: Final = 120
# What fits across both columns of a paper (178 mm) in \small, gaps included (chosen).
_PAPER_CHARACTERS: Final = 100
_MINUS: Final = re.compile(r"(?<![\w.])-(?=\d)")
_RANGE: Final = re.compile(r"(?<=\d)-(?=\d)")
_RANGE_CELL: Final = re.compile(r"\d[\d.]*-\d[\d.]*( \S+)?")


@dataclass(frozen=True)
class Column:
    """``unit`` stands beside the title; what is a number stands to the right.

    In a terminal without room for all side by side, those with the highest ``spare`` are the first
    to stand in a block below.
    """

    title: str
    unit: str = ""
    right: bool = True
    spare: int = 0

    @property
    def heading(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title


@dataclass(frozen=True)
class Table:
    """Cells are as people read them; None is a figure that there is not.

    ``records`` are the same rows for programs: plain numbers, in units that their names tell.
    A row that is the sum of others is for people alone: a program that adds up records must not
    count anything twice. ``provenance`` is what must be said of all of it, such as ``GPU
    simulated``. ``name`` is what it is called as a file and as a label, else that is its title.
    The first ``keys`` columns name a row.
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
        return file_name(self.name or self.title)

    @property
    def caption(self) -> str:
        """The title as it is shown: with the provenance, since a table may travel alone."""
        return f"{self.title} ({self.provenance})" if self.provenance else self.title


def file_name(title: str) -> str:
    """Letters, digits and hyphens, whatever somebody called it; whole words where it is long."""
    words = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    if len(words) > _LONGEST_NAME:
        words = words[: _LONGEST_NAME + 1].rpartition("-")[0] or words[:_LONGEST_NAME]
    return words or "table"


def with_source(table: Table) -> tuple[Mapping[str, float | str | None], ...]:
    """The records, which say where they come from if they must and no column of theirs does."""
    if not table.provenance or any("source" in record for record in table.records):
        return table.records
    return tuple({**record, "source": table.provenance} for record in table.records)


def as_csv(table: Table) -> str:
    """The records; a text that a spreadsheet would take for a formula gets an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    records = with_source(table)
    first = (name for record in table.records for name in record)
    names = list(dict.fromkeys((*first, *(name for record in records for name in record))))
    writer.writerow(map(_unformulated, names))
    for record in records:
        writer.writerow([_unformulated(record.get(name)) for name in names])
    return out.getvalue()


def as_json(table: Table) -> str:
    """The records, where each has the same names; what is no number in JSON is null."""
    records = finite(with_source(table))
    return json.dumps(records, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_markdown(table: Table) -> str:
    rule = ["---:" if column.right else "---" for column in table.columns]
    lines = [
        _markdown_row([_marked_down(column.heading) for column in table.columns]),
        _markdown_row(rule),
        *(_markdown_row([_marked_down(_shown(cell)) for cell in row]) for row in table.rows),
    ]
    note = f"\n{_marked_down(table.note)}\n" if table.note else ""
    return f"**{_marked_down(table.caption)}**\n\n" + "\n".join(lines) + "\n" + note


def as_latex(table: Table) -> str:
    """For a document that uses the package booktabs.

    As many columns as a page has room for, by their ``spare``; a comment names the others.
    """
    cells = [[_shown(cell) for cell in row] for row in table.rows]
    widths = _widths([column.heading for column in table.columns], cells)
    kept = _blocks(table, widths, _PAPER_CHARACTERS)[0]
    columns = [table.columns[at] for at in kept]
    left_out = [table.columns[at].title for at in range(len(widths)) if at not in kept]
    comment = f"% left out for width: {_one_comment(left_out)}\n" if left_out else ""
    align = "".join("r" if column.right else "l" for column in columns)
    note = f"\n\\par\\smallskip {_in_latex(table.note)}" if table.note else ""
    rows = "\n".join(
        _latex_row([_latex_cell(row[at], table.columns[at]) for at in kept]) for row in cells
    )
    return (
        f"{comment}"
        "\\begin{table}\n"
        f"\\caption{{{_in_latex(table.caption)}}}\n"
        f"\\label{{tab:{table.file_name}}}\n"
        "\\centering\n"
        f"\\begin{{tabular}}{{{align}}}\n"
        "\\toprule\n"
        f"{_latex_row([_in_latex(column.heading) for column in columns])}\n"
        "\\midrule\n"
        f"{rows}\n"
        "\\bottomrule\n"
        f"\\end{{tabular}}{note}\n"
        "\\end{table}\n"
    )


def _latex_cell(cell: str, column: Column) -> str:
    """With the signs of mathematics in figures: a minus, a dash between two of them, and for none.

    A row must not begin with a bracket, which would be an argument of the one before.
    """
    if cell == _NO_FIGURE:
        return "--"
    if column.right:
        if _RANGE_CELL.fullmatch(cell):
            return _RANGE.sub("--", _in_latex(cell))
        return _MINUS.sub("$-$", _in_latex(cell))
    text = _in_latex(cell)
    return f"{{[}}{text[1:]}" if text.startswith("[") else text


def _one_comment(words: Sequence[str]) -> str:
    return " ".join(", ".join(dict.fromkeys(words)).split())


FORMS: Final[Mapping[str, Callable[[Table], str]]] = {
    "csv": as_csv,
    "json": as_json,
    "markdown": as_markdown,
    "latex": as_latex,
}
"""What a table can be written as, besides being drawn."""


Style = Callable[[int, int], str]
"""The style of a cell by its row and its column, such as ``bold``."""


def drawn(
    table: Table, encoding: str, width: int, style: Style | None = None, header_style: str = "bold"
) -> list[RichTable]:
    """For a terminal of so many columns: what has no room beside stands in a block below.

    Each block begins with the columns that name a row. No column is left out, and no figure is
    broken: half a figure is wrong.
    """
    from rich.table import Table as RichTable
    from rich.text import Text

    from joulewise.formatting import fitting

    cells = [[fitting(_shown(cell), encoding) for cell in row] for row in table.rows]
    headings = [fitting(column.heading, encoding) for column in table.columns]
    widths = _widths(headings, cells)
    if _together(widths) > width:
        headings = [_stacked(heading) for heading in headings]
        widths = _widths(headings, cells)
    grids = []
    for block in _blocks(table, widths, width):
        grid = RichTable(
            box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style=header_style
        )
        for at in block:
            justify: Literal["left", "right"] = "right" if table.columns[at].right else "left"
            grid.add_column(Text(headings[at]), justify=justify)
        for i, row in enumerate(cells):
            grid.add_row(*(Text(row[at], style(i, at) if style else "") for at in block))
        grids.append(grid)
    return grids


def _blocks(table: Table, widths: Sequence[int], room: int) -> list[list[int]]:
    """The numbers of the columns in each block, those with the least ``spare`` in the first."""
    columns = range(len(table.columns))
    keys, rest = list(columns[: table.keys]), list(columns[table.keys :])
    blocks = []
    while rest:
        kept = _kept(table.columns, widths, keys, rest, room)
        blocks.append([*keys, *kept])
        rest = [at for at in rest if at not in kept]
    return blocks or [keys]


def _kept(
    columns: Sequence[Column],
    widths: Sequence[int],
    keys: Sequence[int],
    rest: Sequence[int],
    room: int,
) -> list[int]:
    """Alike with alike: columns of one ``spare`` stay together where a block can hold them."""
    kept = list(rest)
    for spare in sorted({columns[at].spare for at in rest}, reverse=True):
        if _together([widths[at] for at in (*keys, *kept)]) <= room:
            return kept
        if fewer := [at for at in kept if columns[at].spare != spare]:
            kept = fewer
    while len(kept) > 1 and _together([widths[at] for at in (*keys, *kept)]) > room:
        kept.pop()
    return kept


def _widths(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    from rich.cells import cell_len

    return [
        max(map(cell_len, (*heading.split("\n"), *(row[at] for row in cells))))
        for at, heading in enumerate(headings)
    ]


def _together(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _stacked(heading: str) -> str:
    """Its last word under the others."""
    return "\n".join(heading.rsplit(" ", 1))


def _shown(cell: str | None) -> str:
    return _NO_FIGURE if cell is None else cell


def _unformulated(value: float | str | None) -> float | str | None:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _marked_down(cell: str) -> str:
    return _MARKDOWN.sub(r"\\\1", " ".join(cell.split()))


def _latex_row(cells: Sequence[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


def _in_latex(cell: str) -> str:
    return "".join(_LATEX.get(char, char) for char in " ".join(cell.split()))


_ENDINGS: Final[Mapping[str, Callable[[Table], str]]] = {
    "csv": FORMS["csv"],
    "md": FORMS["markdown"],
    "tex": FORMS["latex"],
}


def write_tables(tables: Mapping[str, Table], folder: Path) -> Iterator[Path]:
    """Every one that has rows in every form, under its name."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            for ending, form in _ENDINGS.items() if table.rows else ():
                path = folder / f"{name}.{ending}"
                path.write_text(form(table), encoding="utf-8", errors=UNENCODABLE)
                yield path
    except OSError as error:
        from joulewise.report.export import unwritten  # loads pyarrow

        raise unwritten(folder, error, "name a folder that can be written to") from None
