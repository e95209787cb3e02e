"""``Chart``: tables with what to show, and a function that draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from joulewise.report.charts.vega import load_altair
from joulewise.report.tables import Table

if TYPE_CHECKING:
    from joulewise.report.charts.vega import alt

Drawing = Callable[[], "alt.TopLevelMixin"]
"""Draws a chart. Its data sources (``altair.NamedData``) have the names of the chart's tables."""


@dataclass(frozen=True)
class Chart:
    """One figure, not drawn yet.

    ``key`` is its file name without a suffix. ``title`` states the finding; ``description`` stands
    below the figure and describes it to readers who cannot see it. ``tables`` hold all numbers that
    are drawn, first the one that a reader wants to read. ``provenance`` qualifies the whole figure,
    such as ``GPU simulated``; it is part of the drawing, which may be copied without its page.
    """

    key: str
    title: str
    description: str
    tables: Mapping[str, Table]
    drawing: Drawing
    provenance: str = ""

    @property
    def table(self) -> Table:
        """The main table."""
        return next(iter(self.tables.values()))

    def spec(self) -> dict[str, Any]:
        """Vega-Lite with its data, without a theme (see :func:`.theme.apply_theme`)."""
        load_altair()
        drawn = self.drawing().to_dict(validate=False)
        drawn["datasets"] = {name: list(table.records) for name, table in self.tables.items()}
        drawn["description"] = self.caption
        if self.provenance:
            drawn["title"] = {"text": self.provenance, "style": ["group-title", "provenance"]}
        return drawn

    @property
    def caption(self) -> str:
        """The text below the figure."""
        note = f" {self.provenance[0].upper()}{self.provenance[1:]}." if self.provenance else ""
        return f"{self.description}{note}"


def with_provenance(charts: Iterable[Chart], provenance: str) -> list[Chart]:
    """The same charts, qualified by ``provenance``, and so are their tables."""
    charts = list(charts)  # holds the tables alive, so that their ids stay unique
    if not provenance:
        return charts
    tables: dict[int, Table] = {}  # charts that share a table still do

    def qualify(table: Table) -> Table:
        return tables.setdefault(id(table), replace(table, provenance=provenance))

    return [
        replace(
            chart,
            provenance=provenance,
            tables={name: qualify(table) for name, table in chart.tables.items()},
        )
        for chart in charts
    ]
