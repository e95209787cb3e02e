from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.simulate import virtual
from joulewise.simulate.boards import BOARDS, load_board, make_unit
from joulewise.simulate.model import ControlSettings, Load, Phase
from joulewise.simulate.physics import governor, steady_state
from joulewise.simulate.workloads import Profile, load_workload, step_phases

BOARD = load_board("v100")
CLOCKS = BOARD.clocks

clocks = st.builds(
    lambda ridge, floor_v: replace(CLOCKS, ridge_mhz=ridge * CLOCKS.sm_max_mhz, floor_v=floor_v),
    st.floats(0.2, 0.9),
    st.floats(0.4, 0.98),
)
loads = st.builds(
    lambda *figures: Load(step_phases(Profile(*figures))),
    st.floats(0.001, 2),
    st.floats(0, 0.9),
    st.floats(0, 1),
    st.floats(1, 400),
    st.floats(0, 60),
)


def hungriest_w(board, load, clock_mhz, temperature_c):
    return max(
        float(steady_state.phase_power(board, p, clock_mhz, temperature_c)) for p in load.phases
    )


@given(clocks, st.floats(0, 1))
def test_clock_for_turns_core_share_round(clocks, share):
    clock = steady_state.clock_for(clocks, share)
    assert steady_state.core_share(clocks, clock) == pytest.approx(share, abs=1e-9)


def test_voltage_rests_below_the_ridge_and_is_1_at_the_highest_clock():
    below = steady_state.voltage(CLOCKS, [CLOCKS.sm_min_mhz, CLOCKS.ridge_mhz])
    assert below.tolist() == [CLOCKS.floor_v] * 2
    assert steady_state.voltage(CLOCKS, CLOCKS.sm_max_mhz) == pytest.approx(1)


@given(clocks, st.floats(150, 1530), st.floats(0, 1), st.floats(20, 90))
def test_one_value_at_a_time_gives_the_same(clocks, clock_mhz, share, temperature_c):
    board = replace(BOARD, clocks=clocks)
    core = governor.core_share(clocks, clock_mhz)
    assert core == pytest.approx(float(steady_state.core_share(clocks, clock_mhz)))
    assert governor.clock_for(clocks, share) == pytest.approx(
        float(steady_state.clock_for(clocks, share))
    )
    standing_w = governor.standing_w(board, temperature_c)
    assert standing_w == pytest.approx(float(steady_state.standing_w(board, temperature_c)))


@given(loads, st.floats(60, 300), st.floats(60, 300), st.floats(30, 85))
def test_a_higher_cap_never_lowers_the_clock(load, one_w, other_w, temperature_c):
    caps_w = sorted((one_w, other_w))
    low, high = steady_state.equilibrium_clock(BOARD, load, caps_w, temperature_c)
    assert low <= high


@given(loads, st.floats(60, 300), st.floats(30, 85))
def test_the_hungriest_phase_draws_the_cap_where_the_cap_binds(load, cap_w, temperature_c):
    clock = float(steady_state.equilibrium_clock(BOARD, load, cap_w, temperature_c))
    drawn_w = hungriest_w(BOARD, load, clock, temperature_c)
    if CLOCKS.sm_min_mhz < clock < CLOCKS.sm_max_mhz:
        assert drawn_w == pytest.approx(cap_w)
    elif clock == CLOCKS.sm_max_mhz:
        assert drawn_w <= cap_w + 1e-6
    else:
        assert drawn_w >= cap_w - 1e-6


def test_a_cap_below_the_floor_is_missed():
    board = load_board("a100")
    load = load_workload("resnet50", board).step
    clock = steady_state.equilibrium_clock(
        board, load, board.limits.minimum_w, board.thermal.reference_c
    )
    assert clock == board.clocks.sm_min_mhz
    drawn_w = hungriest_w(board, load, float(clock), board.thermal.reference_c)
    assert drawn_w > board.limits.minimum_w


@pytest.mark.parametrize(
    ("lock", "clock_mhz"),
    [((135, 900), 900), ((1530, 1530), 1530), ((1200, 1530), 1530), ((0, 10), 135)],
)
def test_a_lock_bounds_the_clock(lock, clock_mhz):
    load = Load((Phase("idle", 1.0, 0.5, 10.0, 0.0),))
    clock = steady_state.equilibrium_clock(BOARD, load, ControlSettings(300.0, lock), 60.0)
    assert clock == clock_mhz


def test_many_caps_and_temperatures_at_once_are_the_same_as_one_by_one():
    load = load_workload("vgg19", BOARD).step
    caps_w, warm_c = np.array([150.0, 200.0, 300.0]), np.array([[40.0], [70.0]])
    together = steady_state.equilibrium_clock(BOARD, load, caps_w, warm_c)
    assert together.shape == (2, 3)
    alone = steady_state.equilibrium_clock(BOARD, load, ControlSettings(200.0), 70.0)
    assert together[1, 1] == pytest.approx(float(alone))


@pytest.mark.parametrize("key", BOARDS)
def test_steady_is_where_heat_and_power_agree(key):
    board = load_board(key)
    load = load_workload("resnet50", board).step
    caps_w = np.linspace(board.limits.minimum_w, board.limits.maximum_w, 5)
    time_s, energy_j, clock = steady_state.steady(board, load, caps_w)
    thermal = board.thermal
    warm_c = thermal.ambient_c + thermal.resistance_c_per_w * energy_j / time_s
    again_s, again_j = steady_state.step_at(board, load, clock, warm_c)
    assert again_s == pytest.approx(time_s)
    assert again_j == pytest.approx(energy_j, rel=1e-5)
    assert warm_c.max() < thermal.slowdown_c


@pytest.mark.parametrize("key", ["v100", "rtx6000"])
@pytest.mark.parametrize("name", ["alexnet", "resnet152", "mnist-big"])
def test_the_whole_run_is_that_of_the_dynamic_simulation(key, name):
    """The workloads are fitted to ``run``, and users see ``virtual``: they must not drift apart."""
    board = load_board(key)
    workload = load_workload(name, board)
    for cap_w in (board.limits.minimum_w, 200.0, board.limits.maximum_w):
        time_s, energy_j = steady_state.steady_run(board, workload, cap_w)
        played = virtual.simulate(
            workload, make_unit(board, 0), ControlSettings(cap_w), run_noise=0.0
        )
        assert played.time_s == pytest.approx(float(time_s), rel=2e-3)
        assert played.energy_j == pytest.approx(float(energy_j), rel=2e-3)
