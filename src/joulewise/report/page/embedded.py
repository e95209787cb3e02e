"""The data of a page, each table once, and the figures that are drawn from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from joulewise.data.contract import finite
from joulewise.report.charts.chart import Chart
from joulewise.report.figures import plain
from joulewise.report.page.names import named_tables
from joulewise.report.page.page import Page
from joulewise.report.tables import Table, file_name

THEMES: Final = ("light", "dark")
"""What a page is read in; it is printed in the first."""


@dataclass(frozen=True)
class Figure:
    """A chart in its place on the page; ``problem`` is why it cannot be drawn."""

    chart: Chart
    id: str
    problem: str = ""


@dataclass
class Embedded:
    """What the page's script reads; ``numbers`` are those of tables, by which they are asked for.

    A table is columns and rows, which takes half the room of records. A theme's configuration is
    alike for nearly all figures, and kept once.
    """

    tables: list[dict[str, Any]] = field(default_factory=list)
    charts: dict[str, dict[str, Any]] = field(default_factory=dict)
    configs: list[dict[str, Any]] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)

    def as_json(self, page: Page) -> dict[str, Any]:
        return {
            "result": finite(page.data),
            "tables": self.tables,
            "charts": self.charts,
            "configs": self.configs,
        }


def embedded(page: Page) -> Embedded:
    made = Embedded()
    for name, table in named_tables(page).items():
        made.numbers[id(table)] = len(made.tables)
        made.tables.append(_columns(name, table))
    for section in page.sections:
        for chart in section.charts:
            made.figures.append(_figure(chart, made))
    return made


def _columns(name: str, table: Table) -> dict[str, Any]:
    names = list(dict.fromkeys(name for record in table.records for name in record))
    rows = [[record.get(name) for name in names] for record in table.records]
    told = {"title": table.caption, "file": name, "columns": names, "rows": finite(rows)}
    # Once for all rows: a figure may have thousands. The script puts it into each row of a CSV.
    return told if "source" in names else {**told, "source": table.provenance}


def _figure(chart: Chart, made: Embedded) -> Figure:
    """One that fails is named in its place, and the others are drawn all the same."""
    number = len(made.figures) + 1
    id_ = f"figure-{number}"
    try:
        made.charts[id_] = _spec(chart, made)
    except Exception as error:  # noqa: BLE001  # whatever it is, the page is worth more
        return Figure(chart, id_, plain(f"{type(error).__name__}: {error}"))
    return Figure(chart, id_)


def _spec(chart: Chart, made: Embedded) -> dict[str, Any]:
    from joulewise.report.charts.look import dressed

    spec = chart.spec()
    for name in ("$schema", "datasets"):
        spec.pop(name, None)
    themes = {theme: dressed(finite(spec), theme) for theme in THEMES}
    configs = {theme: drawn.pop("config", {}) for theme, drawn in themes.items()}
    return {
        "file": file_name(chart.key),
        "spec": themes["light"],
        "configs": {theme: _index(made.configs, config) for theme, config in configs.items()},
        "data": {name: made.numbers[id(table)] for name, table in chart.tables.items()},
    }


def _index(known: list[dict[str, Any]], one: Mapping[str, Any]) -> int:
    if one not in known:
        known.append(dict(one))
    return known.index(dict(one))


def named(figures: Iterable[Figure]) -> dict[int, Figure]:
    """By chart, as a template looks them up."""
    return {id(figure.chart): figure for figure in figures}
