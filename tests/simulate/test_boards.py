import statistics
import subprocess
import sys
from dataclasses import replace

import pytest

from joulewise.errors import UsageError
from joulewise.simulate.boards import BOARDS, load_board, make_unit, restart_unit

# Recorded before units had a phase and a lag of their counter.
GAINS_OF_SEED_7 = [
    0.9830479670004773,
    1.010242130421453,
    1.0238125285207789,
    1.0274535888217224,
    1.009515983707382,
    1.0224120589465204,
]


@pytest.mark.parametrize("key", BOARDS)
def test_the_figures_of_a_board_are_in_order(key):
    board = load_board(key)
    assert board.key == key
    assert board.limits.minimum_w < board.limits.default_w <= board.limits.maximum_w
    assert board.clocks.sm_min_mhz < board.clocks.ridge_mhz < board.clocks.sm_max_mhz
    assert 0 < board.clocks.floor_v < 1
    assert board.idle.asleep_w < board.idle.context_w <= board.idle.clocks_up_w
    assert board.idle.clocks_up_w < board.limits.minimum_w
    assert board.thermal.ambient_c < board.thermal.slowdown_c < board.thermal.shutdown_c
    steps = (board.clocks.sm_max_mhz - board.clocks.sm_min_mhz) / board.clocks.sm_step_mhz
    assert steps == int(steps)


@pytest.mark.parametrize(
    ("key", "limits"),
    [
        ("v100", (150, 300)),
        ("v100-pcie", (100, 250)),
        ("rtx6000", (100, 260)),
        ("a100", (100, 400)),
    ],
)
def test_caps_can_be_set_as_on_the_real_board(key, limits):
    board = load_board(key)
    assert (board.limits.minimum_w, board.limits.maximum_w) == limits


@pytest.mark.parametrize(
    ("key", "period_s", "window_s", "plain_is_average"),
    [
        ("v100", 0.020028039, 0.01, False),
        ("v100-pcie", 0.020028039, 0.01, False),
        ("rtx6000", 0.1, 0.1, False),
        ("a100", 0.1, 0.025, False),
        ("laptop", 0.1, 0.025, True),
        ("gh200", 0.1, 0.025, True),
    ],
)
def test_the_sensor_is_that_of_the_generation(key, period_s, window_s, plain_is_average):
    sensor = load_board(key).sensor
    assert (sensor.period_s, sensor.window_s) == (period_s, window_s)
    assert sensor.plain_is_average == plain_is_average
    assert sensor.average_window_s == (1.0 if load_board(key).architecture >= 7 else 0.0)


@pytest.mark.parametrize(
    ("key", "measured"), [("v100-pcie", "v100"), ("a100", "v100"), ("laptop", "rtx6000")]
)
def test_boards_that_nobody_measured_have_the_voltage_of_one_that_was(key, measured):
    clocks, source = load_board(key).clocks, load_board(measured).clocks
    assert clocks.floor_v == source.floor_v
    assert clocks.ridge_mhz / clocks.sm_max_mhz == pytest.approx(
        source.ridge_mhz / source.sm_max_mhz, rel=1e-4
    )


def test_an_unknown_board_is_answered_with_the_list():
    with pytest.raises(UsageError, match="'h100'") as caught:
        load_board("h100")
    assert all(key in caught.value.hint for key in BOARDS)


def test_units_differ_by_seed_and_only_by_seed():
    board = load_board("v100")
    units = [make_unit(board, seed) for seed in range(400)]
    assert make_unit(board, 7) == units[7]
    gains = [unit.gain for unit in units]
    mean = sum(gains) / len(gains)
    spread = (sum((gain - mean) ** 2 for gain in gains) / len(gains)) ** 0.5
    assert mean == pytest.approx(1, abs=0.005)
    assert spread == pytest.approx(board.sensor.gain_sigma, rel=0.15)
    assert len({unit.sensor_phase_ns for unit in units}) > 390
    assert all(0 <= unit.sensor_phase_ns < board.sensor.period_s * 1e9 for unit in units)


@pytest.mark.parametrize("key", BOARDS)
def test_the_counter_of_each_unit_has_a_phase_and_a_lag_of_its_own(key):
    board = load_board(key)
    units = [make_unit(board, seed) for seed in range(2_000)]
    period_ns, nominal_ns = board.sensor.counter_period_s * 1e9, board.sensor.counter_lag_s * 1e9
    phase = [unit.counter_phase_ns / period_ns for unit in units]
    lag = [unit.counter_lag_ns / nominal_ns for unit in units]
    assert 0 <= min(phase) < 0.01
    assert 0.99 < max(phase) < 1
    assert sum(phase) / 2_000 == pytest.approx(0.5, abs=0.03)
    # Clipping to 0 and 2.2 takes a little from the tails.
    assert sum(lag) / 2_000 == pytest.approx(1.0, abs=0.03)
    assert statistics.stdev(lag) == pytest.approx(0.4, abs=0.03)
    assert min(lag) == 0
    assert 1.9 < max(lag) <= 2.2
    sensor_phase = [unit.sensor_phase_ns for unit in units]
    assert statistics.correlation(phase, sensor_phase) == pytest.approx(0, abs=0.08)


def test_known_seeds_have_kept_their_gain():
    gains = [make_unit(load_board(key), 7).gain for key in BOARDS]
    assert gains == GAINS_OF_SEED_7


def test_a_unit_that_starts_again_is_the_same_board_at_other_ticks():
    units = [restart_unit(make_unit(load_board("v100"), 7), seed * 10**9) for seed in range(300)]
    assert len({(unit.gain, unit.counter_lag_ns) for unit in units}) == 1
    assert len({unit.counter_phase_ns for unit in units}) > 290
    assert len({unit.counter_phase_ns - unit.sensor_phase_ns for unit in units}) > 290


def test_a_board_without_a_counter_has_no_phase_of_it():
    board = load_board("v100")
    without = replace(board, sensor=replace(board.sensor, counter_period_s=0.0))
    assert make_unit(without, 7).counter_phase_ns == 0


def test_boards_and_workloads_load_without_numpy():
    code = (
        "import sys; from joulewise.simulate import boards, workloads;"
        "workloads.load_workload('resnet50', boards.load_board('a100'));"
        "sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
