"""``Chart``: tables with what to show, and a function that draws them with Altair (Vega-Lite).

Altair comes with the extra ``report`` and takes about a second to load. Modules that draw take
``alt`` from here instead of ``import altair as alt``: it is imported when it is first used.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from joulewise.report.tables import Table

__all__ = ["Chart", "Drawing", "alt", "load_altair", "with_provenance"]


def load_altair() -> ModuleType:
    """Import Altair, also where the user has no home folder, as in many containers.

    Altair looks up the home folder when it is imported (``altair/datasets/_cache.py``, for a cache
    that joulewise does not use) and fails where there is none. For that moment ``HOME`` is a folder
    that does not exist.
    """
    if altair := sys.modules.get("altair"):
        return altair
    try:
        Path.home()
    except RuntimeError:
        before = os.environ.get("HOME")
        os.environ["HOME"] = "/nonexistent"  # what Debian calls the home of users without one
        try:
            return importlib.import_module("altair")
        finally:
            del os.environ["HOME"]
            if before is not None:
                os.environ["HOME"] = before
    return importlib.import_module("altair")


if TYPE_CHECKING:
    import altair as alt
else:

    class _LazyAltair:
        """Stands for the module ``altair``, which is imported at the first use of a name in it."""

        def __getattr__(self, name: str) -> Any:
            return getattr(load_altair(), name)

    alt = _LazyAltair()


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
