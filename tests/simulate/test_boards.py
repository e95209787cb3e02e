import subprocess
import sys

import pytest

from joulewise.errors import UsageError
from joulewise.simulate.boards import BOARDS, load_board, make_unit


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
        ("v100", 0.02, 0.01, False),
        ("v100-pcie", 0.02, 0.01, False),
        ("rtx6000", 0.1, 0.1, False),
        ("a100", 0.1, 0.025, False),
        ("laptop", 0.1, 0.025, True),
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


def test_boards_and_workloads_load_without_numpy():
    code = (
        "import sys; from joulewise.simulate import boards, workloads;"
        "workloads.load_workload('resnet50', boards.load_board('a100'));"
        "sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
