"""A figure: tables, and a drawing that takes all its numbers from their records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from joulewise.report.tables import Table

if TYPE_CHECKING:
    import altair as alt

Drawing = Callable[[], "alt.TopLevelMixin"]
"""It names its data (``altair.NamedData``) as the chart's tables are named."""


@dataclass(frozen=True)
class Chart:
    """One figure, not drawn yet.

    ``key`` is its name as a file, ``title`` says what is seen, ``description`` says it to whoever
    cannot see it and stands below it. ``tables`` are what it shows, the first of them what a
    reader wants in numbers; names are those of its data.
    """

    key: str
    title: str
    description: str
    tables: Mapping[str, Table]
    drawing: Drawing

    @property
    def table(self) -> Table:
        return next(iter(self.tables.values()))

    def spec(self) -> dict[str, Any]:
        """As Vega-Lite with the data; a look is put on it in :mod:`.look`."""
        drawn = self.drawing().to_dict(validate=False)
        drawn["datasets"] = {name: list(table.records) for name, table in self.tables.items()}
        drawn["description"] = self.description
        return drawn
