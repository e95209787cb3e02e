"""Tables as files: for a spreadsheet or a program, a page, a paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from joulewise.record.files import UNENCODABLE
from joulewise.report.tables import FORMS, Table
from joulewise.report.unwritten import unwritten

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
        raise unwritten(folder, error, "name a folder that can be written to") from None
