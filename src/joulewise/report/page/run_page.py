"""The page of a run, or of the runs of a group together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from joulewise.data.contract import as_json
from joulewise.record.store import Skipped
from joulewise.report.charts.chart import Chart
from joulewise.report.figures import capitalised, plain
from joulewise.report.meant import MeantRuns
from joulewise.report.page.cut_off import cut_off
from joulewise.report.page.guarded import charts_or_why
from joulewise.report.page.page import Notice, Page, Section
from joulewise.report.page.surroundings import surroundings
from joulewise.report.repeat import run_again
from joulewise.report.run_tables import devices_table, members_table, spans_table, total_table
from joulewise.report.run_view import NO_RATES, Rates, view, warned
from joulewise.report.sensor_tables import sensor_tables
from joulewise.report.tables import Table


def run_page(
    found: MeantRuns, store: Path, *, rates: Rates = NO_RATES, program: str = "joulewise"
) -> Page:
    """What ``show`` tells, the figures, and where it was."""
    result = found.result
    shown = view(result, rates, program)
    charts, unread = charts_or_why(lambda: _charts(found))
    members = [member.result for member in found.members]
    is_group = "runs" in result.details
    sections = (
        Section(
            "Energy",
            tuple(map(capitalised, shown.notes)),
            (total_table(result, shown), devices_table(result, shown)),
        ),
        Section("Figures", charts=charts),
        Section("Spans", tables=(spans_table(result, shown),)),
        Section("Sensors", tables=_sensor_tables(found), folded=True, written=False),
        Section("Runs", tables=(members_table(members),) if is_group else ()),
    )
    again = run_again(found.members[0].manifest)
    return Page(
        title=shown.title,
        verdict=shown.finding,
        facts=shown.facts,
        notices=(
            *unread,
            *cut_off(found),
            *(Notice(f"{name} is left out: {plain(why)}") for name, why in found.left_out),
            *(Notice(warned(each), plain(each.hint)) for each in shown.warnings),
        ),
        sections=tuple(filter(_has_something, sections)),
        environment=surroundings([member.manifest for member in found.members], store),
        commands=(*(((again, "the same again"),) if again else ()), *shown.commands),
        data=as_json(result),
    )


def _sensor_tables(found: MeantRuns) -> tuple[Table, ...]:
    """Of a group, each device under the name of its node, and of its run where it has several."""
    if "runs" not in found.result.details:
        runs = {"": found.result}
    else:
        nodes = [member.node for member in found.members]
        runs = {
            f"{each.node}/" if nodes.count(each.node) == 1 else f"{each.result.id}/": each.result
            for each in found.members
        }
    return tuple(table for table in sensor_tables(runs) if table.rows)


def _charts(found: MeantRuns) -> tuple[Sequence[Chart], Sequence[Skipped]]:
    from joulewise.report.charts.run_charts import charted

    told = charted(found.runs, [member.result for member in found.members])
    return told.charts, told.skipped


def _has_something(section: Section) -> bool:
    tables = any(table.rows for table in section.tables)
    return bool(section.sentences or section.charts or tables)
