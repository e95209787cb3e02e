"""What is said of a comparison: the sentence, the tables, the page and its figures agree."""

import json
import re
from dataclasses import replace

import pytest

from joulewise.compare.runs import compare_runs
from joulewise.compare.sweeps import compare_sweeps
from joulewise.data import Energy, Source
from joulewise.report.charts.compare import (
    _draw_power,
    _ratio_ticks,
    chart_comparison,
    chart_sweep_comparison,
)
from joulewise.report.charts.encoding import time_unit
from joulewise.report.html.pages import compare_page
from joulewise.report.views.compare import (
    compared_runs,
    compared_sweeps,
    view_of_runs,
    view_of_sweeps,
)
from tests.helpers.comparison_runs import joules, made, side
from tests.helpers.sweeps import grid, limit, sweep, trial

SCRIPT = "</script><script>alert(1)</script>"


def runs(prefix, watts, *, n=3, **changed):
    return [
        made(f"{prefix}{at}", energies={"gpu0": joules(100 * watts * (1 + at / 1000))}, **changed)
        for at in range(n)
    ]


def both(a=None, b=None):
    a = runs("a", 200.0) if a is None else a
    b = runs("b", 150.0, time_s=110.0) if b is None else b
    return side("before", *a), side("after", *b)


def finding(a=None, b=None):
    return view_of_runs(compare_runs(*both(a, b))).finding


def curve(w):
    return 100 + (300 - w) / 3, w * 90.0


def dearer(w):
    time_s, energy_j = curve(w)
    return time_s, 1.1 * energy_j


def test_the_finding_is_a_sentence():
    assert finding() == "B takes 25.0 ± 0.2 % less energy and 10.0 ± 0.0 % more time than A"


def test_noise_and_too_few_runs_are_said():
    alike = finding(b=runs("b", 200.0))
    assert alike.startswith("no difference beyond noise: B takes 0.0 ± 0.2 % ")
    assert "within noise" not in alike
    single = finding(runs("a", 200.0, n=1), runs("b", 150.0, n=1, time_s=110.0))
    assert single.endswith("10.0 % more time (too few runs to be sure) than A")


def test_other_work_is_compared_by_the_epoch():
    said = finding(b=runs("b", 300.0, epochs=4, time_s=200.0))
    assert said.startswith("per epoch B takes 25.0 ± 0.2 % less energy and 0.0 ± 0.0 % ")


def test_totals_that_cannot_be_compared_leave_the_time():
    other = [made("b", energies={"cpu0": joules(9.0, Source.MODELLED)}, time_s=110.0)]
    assert finding(b=other).startswith("B takes 10.0 ")
    assert "energy" not in finding(b=other)


def test_a_device_that_is_all_of_the_total_is_not_told_twice():
    shown = view_of_runs(compare_runs(*both()))
    names = [row[0] for row in shown.tables[0].rows]
    assert names == ["energy", "time", "power", "edp", "energy/epoch", "time/epoch"]
    assert [record["quantity"] for record in shown.tables[0].records] == names


def test_a_device_that_does_not_count_says_so():
    energies = {"gpu0": joules(100.0), "gpu1": joules(50.0)}
    pair = [[made(it, energies=energies, counted=("gpu0",))] for it in "ab"]
    shown = view_of_runs(compare_runs(*both(*pair)))
    assert "gpu1, not in the total" in [row[0] for row in shown.tables[0].rows]


def test_tables_figures_and_json_have_the_same_numbers():
    made_of = compared_runs(*both())
    table = made_of.view.tables[0]
    quantities = {payload["quantity"]: payload for payload in made_of.payload["quantities"]}
    assert "gpu0" in quantities
    for record in table.records:
        payload = quantities[record["quantity"]]
        for name in ("a", "b", "ratio"):
            assert record[name] == payload[name]["mean"]
            assert record[f"{name}_low"] == payload[name]["low"]
    ratios = chart_comparison(made_of.found)[0]
    assert ratios.table.records == table.records
    assert made_of.payload["finding"] == made_of.view.finding


def test_epochs_are_drawn_side_by_side():
    chart = next(
        it for it in chart_comparison(compare_runs(*both())) if it.key == "epochs-compared"
    )
    records = chart.table.records
    assert len(records) == 12
    assert {it["side"] for it in records} == {"A", "B"}
    assert sum(it["energy_j"] for it in records if it["run"] == "a0") == pytest.approx(20_000)


def test_sweeps_say_where_b_lies_and_what_is_chosen():
    found = compare_sweeps(grid(curve, (150, 300), 300), grid(dearer, (150, 300), 300))
    shown = view_of_sweeps(found)
    assert shown.finding.startswith("at the 2 settings that both have, B takes 10.0 % more energy")
    assert "; the best setting is the same in both for every objective" in shown.finding
    assert [table.title for table in shown.tables] == [
        "Setting by setting, B against A",
        "Best setting per objective, and B's choice against A's",
    ]


def test_epochs_are_numbered_as_in_the_report_of_a_run():
    found = compare_runs(*both(runs("a", 200.0, epochs=2), runs("b", 150.0, epochs=2)))
    (chart,) = (it for it in chart_comparison(found) if it.key == "epochs-compared")
    assert [it["epoch"] for it in chart.table.records] == [1, 2] * 6


def test_curves_of_sweeps_have_the_figures_of_the_table():
    found = compare_sweeps(grid(curve, (150, 300), 300), grid(dearer, (150, 300), 300))
    (chart,) = chart_sweep_comparison(found)
    settings = view_of_sweeps(found).tables[0].records
    of_b = [it for it in chart.table.records if it["series"] == "B"]
    assert [it["energy_j"] for it in of_b] == [it["energy_j_b"] for it in settings]
    assert [it["power_limit_w"] for it in of_b] == [150, 300]


@pytest.mark.parametrize(
    "made_of",
    [
        compared_runs(*both()),
        compared_sweeps(grid(curve, (150, 300), 300), grid(dearer, (150, 300), 300)),
    ],
    ids=["runs", "sweeps"],
)
def test_every_figure_is_drawn_from_its_tables(made_of):
    pytest.importorskip("altair")
    page = compare_page(made_of)
    charts = [chart for section in page.sections for chart in section.charts]
    assert charts
    for chart in charts:
        spec = chart.spec()
        assert set(spec["datasets"]) == set(chart.tables)
        named = json.dumps({name: it for name, it in spec.items() if name != "datasets"})
        assert all(f'"name": "{name}"' in named for name in chart.tables)
        known = {name for table in chart.tables.values() for it in table.records for name in it}
        made = set(re.findall(r'"as": "(\w+)"', named))
        used = set(re.findall(r'"field": "(\w+)"', named))
        assert used
        assert used <= known | made


def test_a_page_is_worth_more_than_its_figures(monkeypatch):
    def damaged(_found):
        raise ValueError("of a trace")

    monkeypatch.setattr("joulewise.report.charts.compare.chart_comparison", damaged)
    page = compare_page(compared_runs(*both()))
    assert "of a trace" in page.notices[0].message
    assert page.sections[0].tables[0].rows


@pytest.mark.parametrize("asked", ["gpu", "node", "wall"])
def test_without_a_gpu_sweeps_are_compared_at_the_boundary_asked_for(asked):
    rest = {"rest": Energy(5000.0, 0.0, 0.0, Source.MODELLED)}
    runs = [trial(limit(300), block, 100.0, None, gpu="", energy=rest) for block in range(2)]
    of_each = replace(sweep(runs, limit(300)), asked={"boundary": asked})
    found = compared_sweeps(of_each, of_each).found
    assert found.a.boundary == {"gpu": "node"}.get(asked, asked)
    assert found.settings[0].get("energy").ratio.mean == pytest.approx(1)


def test_a_hostile_name_stays_text_in_the_page():
    pytest.importorskip("jinja2")
    from joulewise.report.html.render import render

    a, b = both()
    page = compare_page(compared_runs(replace(a, name=SCRIPT), b), again=f"compare '{SCRIPT}' b")
    html = render(page)
    assert "<script>alert" not in html
    assert "alert(1)" in html


def marks_of(spec, kind):
    """Every layer of a drawing that is marked so."""
    layers = [layer for part in spec.get("hconcat", [spec]) for layer in part.get("layer", [part])]
    return [it for it in layers if it["mark"]["type"] == kind]


def test_ratios_lie_on_a_logarithmic_axis_with_room_for_all_intervals():
    pytest.importorskip("altair")
    wide = [made(f"b{at}", energies={"gpu0": joules(8e4 * f)}) for at, f in enumerate((1, 9, 0.3))]
    chart = chart_comparison(compare_runs(*both(b=wide)))[0]
    (points,) = marks_of(chart.spec(), "point")
    x = points["encoding"]["x"]
    highs = [it["ratio_high"] for it in chart.table.records if it["ratio_high"]]
    assert x["scale"]["type"] == "log"
    assert x["scale"]["domain"][1] > max(highs) > 50
    assert 1 in x["axis"]["values"]
    assert len(x["axis"]["values"]) < 12


@pytest.mark.parametrize(
    ("low", "high"), [(1.0, 1.0), (0.61, 1.3), (0.95, 1.02), (0.2, 40), (1e-3, 1e5)]
)
def test_ticks_of_ratios_are_some_and_not_too_many(low, high):
    ticks = _ratio_ticks(low, high)
    assert 1 <= len(ticks) <= 12
    assert any(tick == pytest.approx(1) for tick in ticks)
    assert ticks == sorted(ticks)


def test_the_band_of_each_side_has_the_colour_of_its_line():
    pytest.importorskip("altair")
    spec = _draw_power(time_unit(10.0)).to_dict(validate=False)
    (band,) = marks_of(spec, "area")
    (line,) = marks_of(spec, "line")
    fill, color = band["encoding"]["fill"], line["encoding"]["color"]
    assert (fill["field"], fill["scale"]) == (color["field"], color["scale"])
