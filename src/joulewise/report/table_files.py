"""Tables as files: for a spreadsheet, a program, a paper, a page, a terminal."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from joulewise.record.files import UNENCODABLE
from joulewise.report.tables import FORMS, Table, drawn
from joulewise.report.unwritten import unwritten

_WIDE: Final = 10_000


def as_text(table: Table) -> str:
    from rich.console import Console

    grid, _ = drawn(table, "utf-8", _WIDE)
    out = io.StringIO()
    console = Console(file=out, width=_WIDE, highlight=False, markup=False, emoji=False)
    console.print(table.caption, soft_wrap=True)
    console.print(grid)
    if table.note:
        console.print(table.note, soft_wrap=True)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


_ENDINGS: Final[Mapping[str, Callable[[Table], str]]] = {
    "csv": FORMS["csv"],
    "json": FORMS["json"],
    "md": FORMS["markdown"],
    "tex": FORMS["latex"],
    "txt": as_text,
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
        raise unwritten(folder, error, "name a folder that can be written to") from None
