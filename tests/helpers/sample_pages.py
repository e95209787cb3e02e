"""A small page to try things on."""

import json
import re
from dataclasses import replace

from joulewise.report.charts.chart import Chart
from joulewise.report.html.render import HtmlPage, Notice, Section
from joulewise.report.tables import Column, Table

TABLE = Table(
    "Energy by limit",
    (Column("limit", "W"), Column("energy", "J"), Column("note", right=False)),
    (("150", "1500", "low"), ("200", None, "=cmd()")),
    (
        {"power_limit_w": 150, "energy_j": 1500.5, "note": "low"},
        {"power_limit_w": 200, "energy_j": None, "note": "=cmd()"},
    ),
)


def line():
    import altair as alt

    return alt.Chart(alt.NamedData("runs")).mark_line().encode(x="power_limit_w:Q", y="energy_j:Q")


CHART = Chart("energy", "Energy against the limit", "It rises.", {"runs": TABLE}, line)
PAGE = HtmlPage(
    title="sweep one",
    verdict="150 W takes 20 % less energy than 200 W.",
    facts=("2 settings",),
    notices=(Notice("few runs", "make more"),),
    sections=(
        Section("Choices", ("A sentence.",), (TABLE,), (CHART,)),
        Section("All", tables=(replace(TABLE, title="All settings"),), folded=True),
    ),
    environment={"Host": "node1"},
    commands=(("joulewise sweep --sim v100", "the same again"),),
    data={"id": "one", "best": {"energy": 150}},
)


def with_charts(*charts):
    return replace(PAGE, sections=(Section("Figures", charts=charts),))


def embedded_data(html):
    found = re.search(r'<script type="application/json" id="joulewise-data">(.*?)</script>', html)
    return json.loads(found[1])
