"""What a published study reports is what the figures of its simulated repetition show."""

import shutil
from dataclasses import replace
from statistics import mean

import pytest

from joulewise.analyse.stored_result import load_or_compute_result
from joulewise.data.sweeps import POWER_LIMIT
from joulewise.metrics.evaluate import evaluate
from joulewise.metrics.trial_table import completed_trials
from joulewise.report.charts.sweep import chart_sweep
from joulewise.report.settings_text import fit_quality
from joulewise.sweep.lifecycle import prepare, run_sweep
from joulewise.sweep.spec import SimulationSpec, SweepSpec
from tests.helpers.table_sweeps import chart

LIMITS = [150, 200, 250, 300]


class Silent:
    def began(self, sweep, left):
        pass

    def started(self, planned):
        pass

    def ended(self, trial, sweep, left):
        pass

    def said(self, line):
        pass


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    """By network; each is studied when it is first asked for."""
    store, found = tmp_path_factory.mktemp("store"), {}

    def study(network):
        if network not in found:
            spec = SweepSpec(
                axes={POWER_LIMIT: "150:300:50"},
                repeat=10,
                seed=3,
                simulated=SimulationSpec("v100", network),
            )
            sweep = run_sweep(prepare(spec), store, Silent())
            found[network] = sweep, evaluate(sweep), store
        return found[network]

    return study


@pytest.mark.parametrize("network", ["ecg", "mnist-big"])
def test_the_lowest_limit_takes_the_least_energy_and_edp(studied, network):
    records = chart(chart_sweep(*studied(network)), "limits").table.records
    for quantity in ("energy", "EDP"):
        mine = [it for it in records if it["quantity"] == quantity]
        assert [it["power_limit_w"] for it in mine] == LIMITS
        assert min(mine, key=lambda it: it["ratio"])["power_limit_w"] == 150
        assert [it["power_limit_w"] for it in mine if it["chosen"]] == [150]
        assert mine[0]["ratio_high"] < 1


@pytest.mark.parametrize("quantity", ["energy", "time", "edp"])
def test_a_quadratic_fit_suits_ecg_better_than_mnist_big(studied, quantity):
    ecg, big = (
        next(fit for fit in studied(network)[1].fits if fit.quantity == quantity)
        for network in ("ecg", "mnist-big")
    )
    assert ecg.adjusted_r2 > 0.99
    assert big.adjusted_r2 < ecg.adjusted_r2
    figure = chart(chart_sweep(*studied("ecg")), f"{quantity}-by-limit")
    assert fit_quality(ecg) in figure.description
    assert len(figure.tables["runs"].records) == 40
    assert figure.tables["parabola"].records


def test_mnist_small_never_reaches_its_limit(studied):
    charts = chart_sweep(*studied("mnist-small"))
    for quantity, label in (("energy", "energy"), ("time", "time"), ("edp", "EDP")):
        figure = chart(charts, f"{quantity}-by-limit")
        assert figure.title == f"No power limit is reached: differences in {label} are noise"
        assert "parabola" not in figure.tables
    courses = chart(charts, "power-over-time")
    assert all(it["mean_w"] < 100 for it in courses.table.records)
    assert "noise" in chart(charts, "limits").title


def test_power_over_time_is_shown_at_every_limit_with_its_epochs(studied):
    sweep, result, store = studied("mnist-big")
    courses = chart(chart_sweep(sweep, result, store), "power-over-time")
    limits = {it["power_limit_w"]: it for it in courses.table.records}
    assert list(limits) == LIMITS
    assert all(it["runs"] == 5 for it in limits.values())
    for point in result.points:
        mean_w = point.energy_j.mean / point.time_s.mean
        found = limits[point.setting[POWER_LIMIT]]
        runs = [it.run for it in completed_trials(sweep) if it.setting == point.setting][:5]
        means_w = [load_or_compute_result(store / run).run.devices["gpu0"].mean_w for run in runs]
        assert found["mean_w"] == pytest.approx(mean(means_w), rel=1e-9)
        assert found["mean_w"] == pytest.approx(mean_w, rel=0.03)
        assert found["time_s"] == pytest.approx(point.time_s.mean, rel=0.03)
    epochs = courses.tables["epochs"].records
    assert [it["epoch"] for it in epochs] == [*range(1, 11)] * 4
    highest = [it["high_w"] for it in courses.tables["courses"].records]
    assert max(highest) == pytest.approx(max(it["highest_w"] for it in limits.values()), rel=1e-5)


def test_deleted_runs_are_mentioned_and_the_rest_is_drawn(studied, tmp_path):
    sweep, result, store = studied("mnist-big")
    first = next(it for it in sweep.trials if it.setting[POWER_LIMIT] == 150)
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    shutil.rmtree(copy / first.run)
    other = next(it for it in sweep.trials if it.setting[POWER_LIMIT] == 200)
    for trace in (copy / other.run / "trace").iterdir():
        trace.write_bytes(b"not a trace")
    courses = chart(chart_sweep(sweep, result, copy), "power-over-time")
    runs = {it["power_limit_w"]: it["runs"] for it in courses.table.records}
    assert runs == {150: 4, 200: 4, 250: 5, 300: 5}
    assert "2 runs of these can no longer be read." in courses.description


OF_RUNS = {"power-over-time", "energy-over-time", "epochs-by-limit"}


def test_energy_so_far_and_epochs_match_the_study(studied):
    """At 150 W energy grows slowest, takes longest and ends lowest, in each epoch as in all."""
    charts = chart_sweep(*studied("ecg"))
    cumulative = chart(charts, "energy-over-time").table.records
    assert [it["power_limit_w"] for it in cumulative] == LIMITS
    energies, times = ([it[name] for it in cumulative] for name in ("energy_j", "time_s"))
    assert energies == sorted(energies)
    assert times == sorted(times, reverse=True)
    epochs = chart(charts, "epochs-by-limit").table.records
    for quantity, order in (("energy_j", 1), ("time_s", -1)):
        medians = [it["median"] for it in epochs if it["quantity"] == quantity]
        assert medians[::order] == sorted(medians)


def test_a_sweep_without_recorded_runs_has_all_other_figures(studied, tmp_path):
    sweep, result, store = studied("mnist-big")
    every = {each.key for each in chart_sweep(sweep, result, store)}
    for elsewhere in (None, tmp_path):
        assert {each.key for each in chart_sweep(sweep, result, elsewhere)} == every - OF_RUNS
    nameless = replace(sweep, trials=tuple(replace(it, run=None) for it in sweep.trials))
    assert {each.key for each in chart_sweep(nameless, result, store)} == every - OF_RUNS
