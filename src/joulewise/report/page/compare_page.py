"""The page of a comparison."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from joulewise.metrics.compare_runs import Comparison
from joulewise.record.manifest import Manifest
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.compare_charts import runs_charts, sweeps_charts
from joulewise.report.compared import Compared
from joulewise.report.figures import capitalised, plain
from joulewise.report.page.guarded import charts_or_why
from joulewise.report.page.page import Notice, Page, Section
from joulewise.report.page.surroundings import surroundings


def compare_page(made: Compared, store: Path | None = None, again: str = "") -> Page:
    """What ``compare`` tells, and the figures; ``again`` is the command that made it."""
    shown = made.view
    charts, unread = charts_or_why(lambda: (_charts(made), ()))
    return Page(
        title=shown.title,
        verdict=f"{capitalised(shown.finding)}.",
        facts=shown.facts,
        notices=(
            *unread,
            *(Notice(plain(each.message), plain(each.hint)) for each in shown.cautions),
        ),
        sections=(
            Section("B against A", tuple(said for _, said in made.judged), shown.tables),
            Section("Figures", charts=charts),
        ),
        environment=surroundings(list(_manifests(made)), store),
        commands=((again, "the same comparison again"),) if again else (),
        data=made.told,
    )


def _charts(made: Compared) -> list[Chart]:
    if isinstance(made.found, Comparison):
        return runs_charts(made.found)
    return sweeps_charts(made.found)


def _manifests(made: Compared) -> Iterator[Manifest]:
    if isinstance(made.found, Comparison):
        for side in (made.found.a, made.found.b):
            for run in side.runs:
                yield from run.manifests
