"""Provenance of charts and of their tables."""

from joulewise.report.charts.chart import Chart, with_provenance
from joulewise.report.tables import Table


def chart(number, *tables):
    named = {table.title: table for table in tables}
    return Chart(f"chart-{number}", "title", "description", named, drawing=dict)


def test_charts_from_a_generator_keep_their_own_tables():
    # Each is freed before the next is made, which may then have its place in memory.
    charts = (chart(number, Table(f"of {number}", (), ())) for number in range(50))
    qualified = with_provenance(charts, "GPU simulated")
    assert [each.table.title for each in qualified] == [f"of {number}" for number in range(50)]
    assert {each.table.provenance for each in qualified} == {"GPU simulated"}


def test_charts_still_share_a_table_with_provenance():
    shared = Table("shared", (), ())
    first, second = with_provenance([chart(1, shared), chart(2, shared)], "GPU simulated")
    assert first.table is second.table
