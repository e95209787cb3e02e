"""A figure: tables, and a drawing that takes all its numbers from their records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from joulewise.report.charts.bundle import any_home
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
    reader wants in numbers; names are those of its data. ``provenance`` is what must be said of
    all of it, such as ``GPU simulated``: it stands in the drawing itself, which may travel alone.
    """

    key: str
    title: str
    description: str
    tables: Mapping[str, Table]
    drawing: Drawing
    provenance: str = ""

    @property
    def table(self) -> Table:
        return next(iter(self.tables.values()))

    def spec(self) -> dict[str, Any]:
        """As Vega-Lite with the data; a look is put on it in :mod:`.look`."""
        with any_home():  # drawing imports altair
            drawn = self.drawing().to_dict(validate=False)
        drawn["datasets"] = {name: list(table.records) for name, table in self.tables.items()}
        drawn["description"] = self.caption
        if self.provenance:
            drawn["title"] = {"text": self.provenance, "style": ["group-title", "provenance"]}
        return drawn

    @property
    def caption(self) -> str:
        """The description as it stands below the figure."""
        said = f" {self.provenance[0].upper()}{self.provenance[1:]}." if self.provenance else ""
        return f"{self.description}{said}"


def with_provenance(charts: Iterable[Chart], provenance: str) -> list[Chart]:
    """The same charts, which say what must be said of them, as do their tables."""
    charts = list(charts)  # by its id a table is known only as long as it is there
    if not provenance:
        return charts
    tables: dict[int, Table] = {}  # charts that share a table still do

    def said(table: Table) -> Table:
        return tables.setdefault(id(table), replace(table, provenance=provenance))

    return [
        replace(
            chart,
            provenance=provenance,
            tables={name: said(table) for name, table in chart.tables.items()},
        )
        for chart in charts
    ]
