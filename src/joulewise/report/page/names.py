"""What the tables of a page are called as files."""

from __future__ import annotations

from collections.abc import Iterator

from joulewise.report.page.page import Page
from joulewise.report.tables import Table, file_name


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


def written_tables(page: Page) -> dict[str, Table]:
    """Those that ``--tables`` writes: what the page found, without what its figures are drawn from.

    The numbers behind a figure are written with it: ``--figures DIR --format csv``.
    """
    wanted = {id(table) for it in page.sections if it.written for table in it.tables}
    return {name: table for name, table in named_tables(page).items() if id(table) in wanted}


def _wishes(page: Page) -> Iterator[tuple[str, Table]]:
    for section in page.sections:
        for table in section.tables:
            yield table.file_name, table
        for chart in section.charts:
            for at, (name, table) in enumerate(chart.tables.items()):
                yield file_name(f"{chart.key} {name}" if at else chart.key), table
