"""What the tables of a page are called as files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from joulewise.report.page.page import Page
from joulewise.report.tables import Table


def named_tables(page: Page) -> dict[str, Table]:
    """Each table once, in the order of the page: by its title, or by the figure that shows it."""
    found: dict[str, Table] = {}
    seen: set[int] = set()
    for wish, table in _wishes(page):
        if id(table) in seen:
            continue
        seen.add(id(table))
        names = (wish, *(f"{wish}-{number}" for number in range(2, len(seen) + 1)))
        found[next(name for name in names if name not in found)] = table
    return found


def file_name(title: str) -> str:
    """Letters, digits and hyphens, whatever somebody called it."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60].strip("-") or "table"


def _wishes(page: Page) -> Iterator[tuple[str, Table]]:
    for section in page.sections:
        for table in section.tables:
            yield file_name(table.title), table
        for chart in section.charts:
            for at, (name, table) in enumerate(chart.tables.items()):
                yield file_name(f"{chart.key} {name}" if at else chart.key), table
