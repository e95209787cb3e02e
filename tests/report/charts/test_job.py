"""The figures of a recurring job and its page: what each shows, by hand-made tries and beliefs."""

import json
import re
from dataclasses import replace

import pytest

from joulewise.data.jobs import JobHistory, TryStatus
from joulewise.metrics.result import Interval
from joulewise.report.charts.job import chart_job
from joulewise.report.charts.theme import apply_theme, theme_config
from joulewise.report.html.pages import job_page
from joulewise.report.html.render import render
from joulewise.report.views.job import job_view
from tests.helpers.jobs import GPU_TYPE, JOB, belief, ended_try

TRIES = (
    ended_try(1, 16, cost=120.0, energy_j=100.0, time_s=1.0),
    ended_try(2, 32, TryStatus.CRASHED, cost=0.0, energy_j=0.0, time_s=0.0),
    ended_try(2, 8, TryStatus.STOPPED_EARLY, number=2, cost=50.0, energy_j=45.0, time_s=0.5),
    ended_try(2, 8, number=3, cost=30.0, energy_j=27.0, time_s=0.3),
    ended_try(3, 8, cost=40.0, energy_j=35.0, time_s=0.35),
    ended_try(4, 8, cost=35.0, energy_j=31.0, time_s=0.33),
)
BELIEFS = (
    belief(8, Interval(40.0, 30.0, 50.0), probability_best=0.996),
    belief(16, Interval(110.0, 60.0, 300.0), probability_best=0.004),
    belief(32, Interval(200.0, 60.0, 300.0), probability_best=0.0, is_usable=False),
)


def view_of(tries=TRIES, beliefs=BELIEFS):
    return job_view(JobHistory(JOB, tuple(tries)), {GPU_TYPE: tuple(beliefs)})


def charts(*given):
    return {chart.key: chart for chart in chart_job(view_of(*given))}


@pytest.mark.parametrize("beliefs", [BELIEFS, ()], ids=["believed", "no policy"])
def test_specs_are_valid_and_draw_only_data_of_their_tables(beliefs, capfd):
    import vl_convert

    for chart in charts(TRIES, beliefs).values():
        text = json.dumps(chart.drawing().to_dict(validate=True))
        assert set(re.findall(r'"data": {"name": "(\w+)"}', text)) <= set(chart.tables)
        assert set(re.findall(r'"style": "(\w+)"', text)) <= set(theme_config("light")["style"])
        assert not re.search(r"#[0-9a-fA-F]{6}|\"black\"", text)
        for theme in ("light", "print"):
            spec = apply_theme(chart.spec(), theme, 480.0)
            assert "NaN" not in json.dumps(spec)
            vl_convert.vegalite_to_svg(spec, show_warnings=True)
    printed = capfd.readouterr()
    assert printed.out + printed.err == ""


def test_the_tries_of_a_recurrence_stand_one_upon_the_other():
    records = charts()["job-recurrences"].tables["tries"].records
    second = [record for record in records if record["recurrence"] == 2]
    assert [record["outcome"] for record in second] == ["out of memory", "stopped early", "reached"]
    assert [(record["cost_j_from"], record["cost_j_to"]) for record in second] == [
        (0.0, 0.0),
        (0.0, 50.0),
        (50.0, 80.0),
    ]
    assert all(1.5 < record["at"] < 2.5 for record in second)
    assert len({record["at"] for record in second}) == 3


def test_the_default_stands_beside_the_recurrences():
    """Its cost is modelled, as it was tried once; its energy and time are those of that try."""
    chart = charts()["job-recurrences"]
    levels = {record["quantity"]: record for record in chart.tables["levels"].records}
    assert levels["cost"]["level"] == 110.0
    assert (levels["cost"]["level_low"], levels["cost"]["level_high"]) == (60.0, 300.0)
    assert (levels["energy"]["level"], levels["time"]["level"]) == (100.0, 1.0)
    assert chart.title.endswith("at the default it would cost 110 J (modelled)")
    assert "levels" in charts(TRIES, ())["job-recurrences"].tables
    assert "default it would" not in charts(TRIES, ())["job-recurrences"].title


def test_beliefs_have_the_tries_beside_them_and_unusable_values_are_marked():
    chart = charts()["job-beliefs"]
    best, _, unusable = chart.tables["beliefs"].records
    assert (best["cost_j"], best["cost_j_low"], best["cost_j_high"]) == (40.0, 30.0, 50.0)
    assert (best["mark"], best["usable"], unusable["usable"]) == ("best", 1, 0)
    assert unusable["cost_j"] is None
    assert "out of memory" in chart.description
    assert chart.title.startswith("batch_size 8 costs least with a probability of more than 99 %")
    tries = chart.tables["tries"].records
    assert sorted(record["cost_j"] for record in tries) == [30.0, 35.0, 40.0, 50.0, 120.0]
    assert "job-beliefs" not in charts(TRIES, ())


def test_the_plane_has_a_point_for_each_value_that_reached_the_target_and_two_rays():
    chart = charts()["job-plane"]
    small, default = chart.tables["points"].records
    assert (small["series"], small["tries"], small["pareto"]) == ("8", 3, 1)
    assert small["energy_j"] == pytest.approx(31.0)
    assert small["power_w"] == pytest.approx(31.0 / (0.98 / 3))
    assert (default["series"], default["pareto"], default["energy_j_low"]) == ("16", 0, None)
    powers = sorted({record["power_w"] for record in chart.tables["rays"].records})
    assert powers == pytest.approx([31.0 / (0.98 / 3), 100.0])
    for record in chart.tables["rays"].records:
        assert record["energy_j"] == pytest.approx(record["power_w"] * record["time_s"])
    assert "job-plane" not in charts(TRIES[:1])


def test_the_page_opens_with_the_result_and_loads_nothing(tmp_path):
    page = job_page(view_of(), tmp_path, data={"job": JOB.name}, problems=["it broke <b>"])
    assert page.verdict.startswith(
        "4 recurrences cost 38 % less than at the default, batch_size 16"
    )
    assert [section.title for section in page.sections] == [
        "Saving",
        "Recurrences",
        "Beliefs",
        "Time and energy",
        "Every recurrence",
        "Every try",
    ]
    assert page.data["report"]["expected_default_cost"]["mean"] == 110.0
    html = render(page)
    assert "it broke &lt;b&gt;" in html
    assert not re.search(r'(src|href)="https?://', html)


def test_simulated_gpus_are_said_to_be():
    simulated = [replace(one, is_simulated=True) for one in TRIES]
    assert {chart.provenance for chart in charts(simulated).values()} == {"GPU simulated"}
    assert {chart.provenance for chart in charts().values()} == {""}
