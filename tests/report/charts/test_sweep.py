import json
import math
import re
from dataclasses import replace

import pytest

from joulewise.metrics.evaluate import evaluate
from joulewise.metrics.metric import Reference, parse
from joulewise.report.charts.sweep import chart_sweep
from joulewise.report.charts.theme import apply_theme, theme_config
from joulewise.report.settings_text import fit_quality
from joulewise.simulate.boards import load_board
from tests.helpers.table_sweeps import by_batch, by_limit, chart, swept

REFERENCE = {"batch_size": "32"}


@pytest.fixture
def limits(tmp_path):
    return swept(tmp_path, by_limit(), start_wall_ns=1)


@pytest.fixture
def batches(tmp_path):
    return swept(tmp_path, by_batch(), REFERENCE)


def charts_of(pair):
    return chart_sweep(*pair, None)


def records(charts, key, table):
    return chart(charts, key).tables[table].records


def styles(spec):
    return set(re.findall(r'"style": "(\w+)"', json.dumps(spec)))


def test_a_sweep_has_only_figures_that_it_has_data_for(limits, batches):
    of_limits = {each.key for each in charts_of(limits)}
    of_batches = {each.key for each in charts_of(batches)}
    fits = {"energy-by-limit", "time-by-limit", "edp-by-limit"}
    assert of_limits == {"limits", "plane", "boundaries", "drift", *fits}
    assert {"plane", "heat-energy", "time-energy"} <= of_batches
    assert "drift" not in of_batches


@pytest.mark.parametrize("which", ["limits", "batches"])
def test_specs_are_valid_and_take_all_data_from_their_tables(which, request, capfd):
    import vl_convert

    for each in charts_of(request.getfixturevalue(which)):
        spec = each.drawing().to_dict(validate=True)
        named = set(re.findall(r'"data": {"name": "(\w+)"}', json.dumps(spec)))
        assert named <= set(each.tables)
        assert not re.search(r'"(values|url)": ', json.dumps(spec.get("data", {})))
        assert styles(spec) <= set(theme_config("light")["style"])
        vl_convert.vegalite_to_svg(apply_theme(each.spec(), "print", 240.0), show_warnings=True)
    printed = capfd.readouterr()
    assert printed.out + printed.err == ""


def test_no_interval_layer_without_intervals(limits, batches):
    keys = {"plane", "boundaries", "limits"}
    of_repeats = {it.key: styles(it.spec()) for it in charts_of(limits) if it.key in keys}
    assert all("interval" in drawn for drawn in of_repeats.values())
    assert set(of_repeats) == keys
    of_single = [it for it in charts_of(batches) if it.key.split("-")[0] in keys]
    assert of_single
    assert all("interval" not in styles(it.spec()) for it in of_single)


def test_every_figure_has_a_text_description(limits, batches):
    for each in (*charts_of(limits), *charts_of(batches)):
        assert each.title[0].isupper() or each.title[0].isdigit() or "batch" in each.title
        assert each.description[0].isupper()
        assert each.description.endswith(".")
        assert each.spec()["description"] == each.description
        assert all(table.rows and table.records for table in each.tables.values())


def test_curves_by_limit_equal_the_ratios_of_the_result(limits):
    _, result = limits
    points = records(charts_of(limits), "limits", "caps")
    by = {(it["quantity"], it["power_limit_w"]): it for it in points}
    for point in result.points:
        watts = point.setting["power_limit_w"]
        for label, ratio in (
            ("energy", point.energy_ratio),
            ("time", point.time_ratio),
            ("EDP", point.ratios["edp"]),
            ("EDS(2)", point.ratios["eds:2.0"]),
        ):
            found = by[label, watts]
            assert (found["ratio"], found["ratio_low"]) == (ratio.mean, ratio.low)
        power = by["power", watts]["ratio"]
        assert power == pytest.approx(point.energy_ratio.mean / point.time_ratio.mean)
    chosen = {it["quantity"]: it["power_limit_w"] for it in points if it["chosen"]}
    assert chosen["energy"] == result.best["energy"].setting["power_limit_w"] == 200
    assert chosen["EDP"] == result.best["edp"].setting["power_limit_w"]


def metric_lines(charts, metric, through):
    lines = records(charts, "plane", "lines")
    wanted = (f"equal {metric.label}", through)
    return [it for it in lines if (it["metric"], it["through"]) == wanted]


@pytest.mark.parametrize("name", ["energy", "edp", "eds:1.5", "eds:2.0"])
def test_a_metric_is_constant_along_its_line(limits, name):
    _, result = limits
    metric, reference = parse(name), Reference(1.0, 1.0)
    point = result.point(result.best[name].setting)
    level = metric.rule(point.time_ratio.mean, point.energy_ratio.mean, reference)
    mine = metric_lines(charts_of(limits), metric, "choice")
    assert len(mine) > 10
    for it in mine:
        assert metric.rule(it["time_ratio"], it["energy_ratio"], reference) == pytest.approx(level)


@pytest.mark.parametrize("name", ["energy", "edp", "eds:1.5", "eds:2.0"])
def test_a_line_of_every_metric_passes_through_the_reference(limits, name):
    """As in the figure of the source, where what lies below the line beats the reference."""
    mine = metric_lines(charts_of(limits), parse(name), "reference")
    at_one = [it["energy_ratio"] for it in mine if it["time_ratio"] == 1.0]
    assert at_one == [pytest.approx(1.0)]
    level = parse(name).rule(1.0, 1.0, Reference(1.0, 1.0))
    assert len(mine) > 10
    for it in mine:
        there = parse(name).rule(it["time_ratio"], it["energy_ratio"], Reference(1.0, 1.0))
        assert there == pytest.approx(level)


def test_a_metric_whose_best_is_the_reference_has_a_line(tmp_path):
    pair = swept(tmp_path, by_limit(), {"power_limit_w": "200"})
    charts = charts_of(pair)
    assert pair[1].best["energy"].setting == pair[1].reference.setting
    assert metric_lines(charts, parse("energy"), "reference")
    assert not metric_lines(charts, parse("energy"), "choice")


def share_of_frame(chart, fields, axes=("x", "y")):
    """How much of each axis the points of a figure take up."""
    spec = json.loads(json.dumps(chart.spec()))
    layers = [it for it in spec["layer"] if it.get("data", {}).get("name") == "points"]
    encoding = next(it["encoding"] for it in layers if it.get("mark", {}).get("style") == "mean")
    units = {"time_s": 60, "energy_j": 1e6}
    shares = []
    for axis, field in zip(axes, fields, strict=True):
        low, high = encoding[axis]["scale"]["domain"]
        values = [it[field] for it in chart.table.records]
        if encoding[axis]["scale"]["type"] == "log":
            low, high = math.log(low), math.log(high)
            values = [math.log(value) for value in values]
        else:
            of = units.get(field, 1)
            of = of if max(values) / of >= 3 else {60: 1, 1e6: 1e3}.get(of, 1)
            values = [value / of for value in values]
        shares.append((max(values) - min(values)) / (high - low))
    return shares


def test_points_are_not_squeezed_into_a_corner_of_the_rays(batches):
    """The origin, from which the rays come, is far away from points that differ little."""
    rays = chart(charts_of(batches), "time-energy")
    assert min(share_of_frame(rays, ("time_s", "energy_j"))) > 0.5


def test_intervals_of_two_runs_do_not_squeeze_the_points_in_the_plane(tmp_path):
    wide = [
        {**it, "energy_j": it["energy_j"] * (1 + 0.2 * (it["block"] * at % 2))}
        for at, it in enumerate(by_limit(blocks=2))
    ]
    pair = swept(tmp_path, wide)
    ratios = [it.energy_ratio for it in pair[1].points]
    span = max(it.mean for it in ratios) - min(it.mean for it in ratios)
    assert max(it.high - it.low for it in ratios) > 3 * span
    plane = chart(charts_of(pair), "plane")
    assert min(share_of_frame(plane, ("time_ratio", "energy_ratio"))) >= 0.44


def test_a_reference_far_from_all_others_makes_the_axes_of_the_plane_logarithmic(tmp_path):
    plane = chart(charts_of(swept(tmp_path, by_batch())), "plane")  # of batch size 8, five times
    domain = json.dumps(plane.spec())
    assert '"type": "log"' in domain
    assert "Both axes are logarithmic." in plane.description


def test_the_drawn_pareto_front_is_that_of_the_result(batches):
    _, result = batches
    points = records(charts_of(batches), "plane", "points")
    front = {str(point.setting) for point in result.points if point.pareto}
    assert {it["setting"] for it in points if it["pareto"]} == front


def test_settings_far_beyond_the_front_are_omitted_and_mentioned(batches):
    plane = chart(charts_of(batches), "plane")
    assert not any(it["setting"].startswith("batch_size 8,") for it in plane.table.records)
    assert "4 settings are far outside the figure and not drawn." in plane.description


def test_a_quadratic_fit_ends_where_the_runs_do(limits):
    sweep, _ = limits
    tried = [it for it in sweep.trials if it.setting["power_limit_w"] > 150]
    unfinished = replace(sweep, trials=tuple(tried))
    charts = charts_of((unfinished, evaluate(unfinished)))
    drawn = [it["power_limit_w"] for it in records(charts, "energy-by-limit", "parabola")]
    assert (min(drawn), max(drawn)) == (175, 300)


@pytest.mark.parametrize(
    ("apart", "phrase"), [(0.2, "is within noise"), (0.0005, "less energy and")]
)
def test_the_heat_map_title_reports_noise(tmp_path, apart, phrase):
    rows = [
        {**row, "block": block, "power_w": row["power_w"] * (1 + apart * (block * at % 3 - 1))}
        for block in range(3)
        for at, row in enumerate(by_batch())
    ]
    pair = swept(tmp_path, rows, {"batch_size": "32", "power_limit_w": "150"})
    assert phrase in chart(charts_of(pair), "heat-energy").title


def test_the_heat_map_marks_the_best_setting(batches):
    _, result = batches
    cells = records(charts_of(batches), "heat-energy", "cells")
    assert len(cells) == 12
    best = [(it["down"], it["across"]) for it in cells if it["best"]]
    chosen = result.best["energy"].setting
    assert best == [(chosen["batch_size"], f"{chosen['power_limit_w']:g}")]
    assert min(cells, key=lambda it: it["ratio"])["best"]
    spec = chart(charts_of(batches), "heat-energy").spec()
    assert '["8", "32", "128"]' in json.dumps(spec)  # as numbers, not as words


def test_mean_power_is_constant_along_a_ray(batches):
    for it in records(charts_of(batches), "time-energy", "rays"):
        assert it["energy_j"] == pytest.approx(it["power_w"] * it["time_s"])


def test_the_label_of_a_ray_stays_below_the_legend(batches):
    """The ray of most power leaves the figure at the top, and the legend is just above."""
    charts = charts_of(batches)
    rays = [it for it in records(charts, "time-energy", "rays") if it["ray"] == "highest"]
    (labelled,) = [it for it in rays if it["label"]]
    end = max(rays, key=lambda it: it["time_s"])
    points = [it["energy_j"] for it in records(charts, "time-energy", "points")]
    assert labelled["energy_j"] < end["energy_j"] - 0.05 * (max(points) - min(points))


def test_two_rays_bound_the_points(batches):
    charts = charts_of(batches)
    powers = [it["power_w"] for it in records(charts, "time-energy", "points")]
    rays = {it["ray"]: it["power_w"] for it in records(charts, "time-energy", "rays")}
    assert rays == {"lowest": min(powers), "highest": max(powers)}


def test_the_idle_ray_is_drawn_where_idle_power_is_known(batches):
    sweep, result = batches
    sweep = replace(sweep, asked={"simulated": {"gpu": "v100"}})
    rays = records(charts_of((sweep, result)), "time-energy", "rays")
    idle = [it for it in rays if it["ray"] == "idle"]
    assert {it["power_w"] for it in idle} == {load_board("v100").idle.context_w}
    assert (
        "W is the idle power of the GPU"
        in chart(charts_of((sweep, result)), "time-energy").description
    )


def test_points_of_the_front_are_labelled_with_batch_size_and_limit(batches):
    _, result = batches
    labels = {
        it["label"].partition(":")[0] for it in records(charts_of(batches), "time-energy", "labels")
    }
    front = {
        f"{it.setting['batch_size']}, {it.setting['power_limit_w']:g} W"
        for it in result.points
        if it.pareto
    }
    assert labels == front


def test_a_choice_is_shown_at_each_boundary_with_its_interval(limits):
    _, result = limits
    boundaries = chart(charts_of(limits), "boundaries")
    for it in boundaries.table.records:
        label = it["choice"].split(":")[0]
        choice = next(each for each in result.best.values() if parse(each.metric).label == label)
        ratio = choice.at["gpu" if it["boundary"] == "GPU" else "node"]
        assert (it["energy_ratio"], it["energy_ratio_high"]) == (ratio.mean, ratio.high)
    assert {it["boundary"] for it in boundaries.table.records} == {"GPU", "node and wall"}
    assert "assumed" in boundaries.description


def test_a_quadratic_fit_is_drawn_with_its_r2(limits):
    _, result = limits
    energy = chart(charts_of(limits), "energy-by-limit")
    fit = next(it for it in result.fits if it.quantity == "energy")
    adjusted = f"adjusted R² {fit.adjusted_r2:.4f}, {fit.dof} degrees of freedom"
    assert f"{fit_quality(fit)}, {adjusted}" in energy.description
    assert energy.title.startswith(
        f"Quadratic fit of energy: minimum at {fit.minimum_w:.0f} W (R² "
    )
    assert "fit" in styles(energy.spec())
    a, b, c = fit.coefficients
    for it in energy.tables["parabola"].records:
        watts = it["power_limit_w"]
        assert it["energy_j"] == pytest.approx(a * watts**2 + b * watts + c)
    assert len(energy.tables["runs"].records) == 28


def test_the_title_says_why_there_is_no_quadratic_fit(tmp_path):
    pair = swept(tmp_path, by_limit(), capped=0.0)
    energy = chart(charts_of(pair), "energy-by-limit")
    assert energy.title == "No power limit is reached: differences in energy are noise"
    assert "parabola" not in energy.tables
    assert "fit" not in styles(energy.spec())
    three = swept(tmp_path, by_limit((150, 200, 300)))
    assert "No quadratic fit" in chart(charts_of(three), "energy-by-limit").title


def test_a_drift_of_the_reference_is_shown_and_named(tmp_path):
    rows = [{**row, "energy_j": row["energy_j"] * (1 + 0.02 * row["block"])} for row in by_limit()]
    sweep, _ = swept(tmp_path, rows)
    trials = [replace(it, start_wall_ns=10**9 * (60 * it.block + 1)) for it in sweep.trials]
    sweep = replace(sweep, trials=tuple(trials))
    drift = chart(chart_sweep(sweep, evaluate(sweep), None), "drift")
    assert drift.title.startswith("The energy of the reference rose by")
    energies = [it["ratio"] for it in drift.table.records if it["quantity"] == "energy"]
    assert energies == sorted(energies)
    assert [it["start_s"] for it in drift.table.records][:4] == [0, 60, 120, 180]


def test_a_sweep_in_virtual_time_has_no_drift(tmp_path):
    """When its runs were made is a time of the simulating program."""
    rows = by_limit()
    for row in rows:
        row["time_s"] *= 1 + 0.02 * row["block"]
    sweep, _ = swept(tmp_path, rows)
    trials = [replace(it, start_wall_ns=1 + 10**9 * it.block) for it in sweep.trials]
    sweep = replace(sweep, trials=tuple(trials))
    virtual = replace(sweep, asked={"simulated": {"gpu": "v100", "workload": "resnet50"}})
    for one, has_drift in ((sweep, True), (virtual, False)):
        result = evaluate(one)
        assert any(it.code.value == "drift" for it in result.warnings) is has_drift
        assert any(it.key == "drift" for it in charts_of((one, result))) is has_drift


def test_captions_name_dashed_lines_correctly(limits, batches):
    for each in (*charts_of(limits), *charts_of(batches)):
        if "dashed" in each.description:
            assert not {"line", "thin"} & styles(each.spec())
            assert "level" in styles(each.spec())
            assert "strokeDash" in theme_config("light")["style"]["level"]


def test_a_full_training_has_no_single_runs_and_still_its_figures(limits):
    sweep, result = limits
    keys = {each.key for each in chart_sweep(sweep, replace(result, per="training"), None)}
    assert keys == {"limits", "plane", "boundaries"}


def test_a_sweep_without_runs_has_no_figures(limits):
    sweep = replace(limits[0], trials=())
    assert chart_sweep(sweep, evaluate(sweep), None) == []
