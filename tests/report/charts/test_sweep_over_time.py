"""Energy so far and epochs at each limit, from the recorded runs of a sweep."""

import json
import re
import shutil
from dataclasses import replace
from statistics import mean, quantiles, stdev

import numpy as np
import pytest

from joulewise.analyse.curves.series import cumulative_gpu_energy, gpu_stages
from joulewise.analyse.stored_result import load_or_compute_result
from joulewise.data.sweeps import POWER_LIMIT
from joulewise.metrics.evaluate import evaluate
from joulewise.metrics.trial_table import completed_trials
from joulewise.report.charts.files import write_chart
from joulewise.report.charts.sweep import chart_sweep
from joulewise.report.charts.theme import apply_theme, theme_config
from joulewise.sweep.lifecycle import prepare, run_sweep
from joulewise.sweep.spec import SimulationSpec, SweepSpec
from tests.helpers.table_sweeps import chart

LIMITS = [150.0, 300.0]
REPEAT = 4


class Silent:
    def __getattr__(self, _name):
        return lambda *_: None


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Ten epochs of 0.8 s each; runs of one limit differ by some percent."""
    store = tmp_path_factory.mktemp("store")
    spec = SweepSpec(
        axes={POWER_LIMIT: "150,300"},
        repeat=REPEAT,
        seed=5,
        simulated=SimulationSpec("v100", "mnist-small"),
    )
    return run_sweep(prepare(spec), store, Silent()), store


def charts(swept):
    sweep, store = swept
    return chart_sweep(sweep, evaluate(sweep), store)


def results(swept, limit_w):
    sweep, store = swept
    trials = [it for it in completed_trials(sweep) if it.setting[POWER_LIMIT] == limit_w]
    return [load_or_compute_result(store / trial.run) for trial in trials]


def at_limit(records, limit_w):
    return [it for it in records if it[POWER_LIMIT] == limit_w]


def test_energy_so_far_ends_at_the_energy_of_the_results(swept):
    limits = chart(charts(swept), "energy-over-time").table.records
    assert [it[POWER_LIMIT] for it in limits] == LIMITS
    for it in limits:
        ends_j = [one.run.devices["gpu0"].energy.value for one in results(swept, it[POWER_LIMIT])]
        assert it["energy_j"] == pytest.approx(mean(ends_j), rel=1e-9)
        assert it["sigma_j"] == pytest.approx(stdev(ends_j), rel=1e-6)
        assert it["runs"] == REPEAT


def test_energy_so_far_is_averaged_at_4_hz_over_unfinished_runs(swept):
    cumulative = chart(charts(swept), "energy-over-time").tables["growth"].records
    for limit_w in LIMITS:
        mine, runs = at_limit(cumulative, limit_w), results(swept, limit_w)
        t_s = np.array([it["t_s"] for it in mine])
        assert np.diff(t_s) == pytest.approx(np.full(len(t_s) - 1, 0.25), rel=1e-4)
        assert [it["runs"] for it in mine] == [sum(run.time_s >= t for run in runs) for t in t_s]
        energy_j = [it["energy_j"] for it in mine]
        assert (energy_j[0], mine[0]["sigma_j"]) == (0, 0)
        assert (np.diff([it["energy_j"] for it in mine if it["runs"] == REPEAT]) > 0).all()
        mean_w = mean(run.run.devices["gpu0"].mean_w for run in runs)
        assert energy_j[8] == pytest.approx(2 * mean_w, rel=0.15)  # after 2 s
        for it in mine:
            apart_j = it["sigma_j"] or 0.0
            assert it["high_j"] - it["energy_j"] == pytest.approx(apart_j, abs=0.01)
            assert (it["sigma_j"] is None) == (it["runs"] == 1)


def test_boxes_are_the_quartiles_of_all_epochs_at_a_limit(swept):
    records = chart(charts(swept), "epochs-by-limit").table.records
    assert len(records) == 2 * len(LIMITS)
    for limit_w in LIMITS:
        spans = [
            one
            for result in results(swept, limit_w)
            for one in result.spans
            if one.span.name == "epoch"
        ]
        values = {
            "energy_j": [one.devices["gpu0"].energy.value for one in spans],
            "time_s": [(one.span.end_ns - one.span.start_ns) / 1e9 for one in spans],
        }
        for it in at_limit(records, limit_w):
            mine = values[it["quantity"]]
            q1, median, q3 = quantiles(mine, n=4, method="inclusive")
            drawn = (it["least"], it["q1"], it["median"], it["q3"], it["most"])
            assert drawn == pytest.approx((min(mine), q1, median, q3, max(mine)))
            assert (it["epochs"], it["runs"]) == (len(mine), REPEAT)


def test_deleted_runs_are_left_out_of_boxes_and_means(swept, tmp_path):
    sweep, store = swept
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    gone = [it for it in completed_trials(sweep) if it.setting[POWER_LIMIT] == 150]
    shutil.rmtree(copy / gone[0].run)
    found = charts((sweep, copy))
    low = at_limit(chart(found, "epochs-by-limit").table.records, 150)
    assert {it["runs"] for it in low} == {REPEAT - 1}
    assert at_limit(chart(found, "energy-over-time").table.records, 150)[0]["runs"] == REPEAT - 1
    for trial in gone[1:]:
        shutil.rmtree(copy / trial.run)
    found = charts((sweep, copy))
    assert [it[POWER_LIMIT] for it in chart(found, "energy-over-time").table.records] == [300]
    assert "epochs-by-limit" not in {each.key for each in found}  # nothing to compare


@pytest.mark.parametrize("key", ["energy-over-time", "epochs-by-limit"])
def test_specs_are_valid_and_draw_only_data_of_their_tables(swept, key, tmp_path, capfd):
    import vl_convert

    each = chart(charts(swept), key)
    text = json.dumps(each.drawing().to_dict(validate=True))
    assert set(re.findall(r'"data": {"name": "(\w+)"}', text)) == set(each.tables)
    assert set(re.findall(r'"style": "(\w+)"', text)) <= set(theme_config("light")["style"])
    assert not re.search(r"#[0-9a-fA-F]{6}", text)  # colours are the look's
    for theme in ("light", "dark", "print"):
        vl_convert.vegalite_to_svg(apply_theme(each.spec(), theme, 240.0), show_warnings=True)
    printed = capfd.readouterr()
    assert printed.out + printed.err == ""
    for form in ("pdf", "csv", "svg"):
        write_chart(each, tmp_path / f"figure.{form}", "print")
        assert (tmp_path / f"figure.{form}").stat().st_size > 100


def test_the_legend_shows_a_stroke_for_each_limit(swept):
    """Bands and end points in the same colours must not take its place."""
    import vl_convert

    drawn = vl_convert.vegalite_to_svg(
        apply_theme(chart(charts(swept), "energy-over-time").spec(), "light", 400.0)
    )
    symbols = re.findall(r'legend-symbol"[^>]*><path [^>]*stroke-width="([\d.]+)"', drawn)
    assert symbols == ["2"] * len(LIMITS)


@pytest.mark.parametrize("bound", [None, "at_least"])
def test_partly_read_gpus_are_left_out_of_boxes_and_means(swept, bound):
    sweep, store = swept
    run = store / completed_trials(sweep)[0].run
    result = load_or_compute_result(run)

    def unread(span):
        use = span.devices["gpu0"]
        energy = bound and replace(use.energy, at_least=True)
        return replace(span, devices={**span.devices, "gpu0": replace(use, energy=energy)})

    assert len(gpu_stages(result)) == 10
    assert cumulative_gpu_energy(run, result) is not None
    lost = replace(result, run=unread(result.run), spans=tuple(map(unread, result.spans)))
    assert gpu_stages(lost) == []
    assert cumulative_gpu_energy(run, lost) is None
