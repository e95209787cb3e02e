from dataclasses import replace

import numpy as np
import pytest

from joulewise.errors import UsageError
from joulewise.simulate.boards import BOARDS, load_board, make_unit
from joulewise.simulate.model import ControlSettings
from joulewise.simulate.physics import steady_state
from joulewise.simulate.published_caps import read_table
from joulewise.simulate.virtual import simulate
from joulewise.simulate.workloads import WORKLOADS, load_workload

V100 = load_board("v100")
LIMITS_W = np.array([150.0, 200.0, 250.0, 300.0])


def at_limits(name):
    time_s, energy_j = steady_state.steady_run(V100, load_workload(name, V100), LIMITS_W)
    return time_s, energy_j, energy_j / time_s


def unexplained(values):
    """1 - R2 of a parabola over the limits."""
    rest = values - np.polyval(np.polyfit(LIMITS_W, values, 2), LIMITS_W)
    return (rest @ rest) / np.sum((values - values.mean()) ** 2)


def test_the_table_is_met():
    errors = []
    for row in read_table():
        board = load_board(row.board)
        time_s, energy_j = steady_state.steady_run(
            board, load_workload(row.network, board), row.cap_w
        )
        errors += [abs(time_s / row.time_s - 1), abs(energy_j / row.energy_j - 1)]
    assert np.median(errors) <= 0.005
    assert max(errors) <= 0.02


def test_alexnet_averages_little_and_yet_a_cap_saves_much():
    board = load_board("rtx6000")
    time_s, energy_j = steady_state.steady_run(
        board, load_workload("alexnet", board), np.array([260.0, 140.0])
    )
    assert energy_j[0] / time_s[0] == pytest.approx(116.5, rel=0.01)
    assert 1 - energy_j[1] / energy_j[0] == pytest.approx(0.26, abs=0.01)


def test_mnist_small_never_reaches_the_lowest_cap():
    time_s, energy_j, power_w = at_limits("mnist-small")
    assert np.ptp(time_s) == np.ptp(energy_j) == 0
    assert power_w.max() < 100
    load = load_workload("mnist-small", V100).step
    clock = steady_state.steady(V100, load, 150.0)[2]
    assert max(steady_state.phase_power(V100, p, clock, 60.0) for p in load.phases) < 100
    assert load_workload("mnist-small", V100).run_noise > load_workload("ecg", V100).run_noise


def test_mnist_big_has_the_mean_powers_that_were_seen():
    time_s, energy_j, power_w = at_limits("mnist-big")
    assert 200 < power_w[3] < 210
    assert 185 < power_w[1] < 200
    assert power_w[0] == pytest.approx(150, abs=5)
    assert energy_j.argmin() == (energy_j * time_s).argmin() == 0


def test_ecg_spikes_are_cut_and_its_energy_is_a_parabola():
    time_s, energy_j, _ = at_limits("ecg")
    load = load_workload("ecg", V100).step
    clocks = steady_state.steady(V100, load, LIMITS_W)[2]
    spikes_w = np.max(
        [steady_state.phase_power(V100, p, clocks, 60.0) for p in load.phases], axis=0
    )
    assert spikes_w[3] == pytest.approx(300, abs=3)
    assert spikes_w[1] == pytest.approx(200, abs=3)
    assert spikes_w[0] < 200
    assert energy_j.argmin() == (energy_j * time_s).argmin() == 0
    assert unexplained(energy_j) < 5e-4
    assert unexplained(at_limits("mnist-big")[1]) > 5 * unexplained(energy_j)


def highest_reading_w(workload, unit, limit_w):
    run = simulate(workload, unit, ControlSettings(limit_w), run_noise=0.0)
    return run.trace(100.0)["power_w"].max() / unit.gain


def test_readings_of_ecg_show_spikes_of_300_w_that_200_w_cuts_and_none_of_200_w_at_150_w():
    ecg = replace(load_workload("ecg", V100), samples=320, validation_steps=1)
    units = [make_unit(V100, seed) for seed in range(8)]  # their sensors look at other moments
    at_150, at_200, at_300 = (
        max(highest_reading_w(ecg, unit, limit_w) for unit in units) for limit_w in (150, 200, 300)
    )
    assert at_150 < 0.9 * 200
    assert at_200 == pytest.approx(200, rel=0.06)
    assert at_300 == pytest.approx(300, rel=0.02)


@pytest.mark.parametrize("key", BOARDS)
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_runs_on_every_board_and_says_what_it_rests_on(key, name):
    board = load_board(key)
    workload = load_workload(name, board)
    time_s, energy_j = steady_state.steady_run(board, workload, board.limits.default_w)
    assert board.idle.clocks_up_w * 0.9 < energy_j / time_s < board.limits.default_w
    assert workload.step.memory_b < board.memory_b
    measured = key == "v100" or (key == "rtx6000" and "mnist" not in name and name != "ecg")
    assert workload.source.startswith("transferred") != measured


def test_a_bigger_batch_works_longer_and_waits_as_long():
    usual, double = (load_workload("resnet50", V100, batch) for batch in (128, 256))
    assert load_workload("resnet50", V100) == usual
    for one, two in zip(usual.step.phases, double.step.phases, strict=True):
        assert two.time_s == pytest.approx(one.time_s * (2 if one.busy else 1))
    assert double.batch_size == 256
    assert double.step.memory_b > usual.step.memory_b


def test_the_a100_is_faster_than_the_v100():
    a100 = load_board("a100")
    faster = steady_state.steady_run(a100, load_workload("resnet50", a100), 400.0)[0]
    assert faster < steady_state.steady_run(V100, load_workload("resnet50", V100), 300.0)[0]


def test_validation_follows_the_epochs_where_it_was_measured_so():
    assert load_workload("resnet50", V100).validation_steps == 0
    ecg = load_workload("ecg", V100)
    assert (ecg.epochs, ecg.validation_steps) == (10, 27)
    assert [phase.name for phase in ecg.validation.phases] == ["input", "forward"]


def test_unknown_names_are_answered_with_the_list():
    with pytest.raises(UsageError, match="'bert'") as caught:
        load_workload("bert", V100)
    assert "resnet50" in caught.value.hint
    with pytest.raises(UsageError, match="batch"):
        load_workload("resnet50", V100, 0)
