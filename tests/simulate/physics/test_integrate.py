"""The board in time: its governor, its idles, its heat, and that nothing depends on the cuts."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import mean, stdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.simulate.boards import load_board, make_unit
from joulewise.simulate.model import ControlSettings, Load, Phase
from joulewise.simulate.physics import governor, steady_state
from joulewise.simulate.physics.board_state import rest
from joulewise.simulate.physics.governor import (
    CLOCK_SETTING,
    IDLE,
    POWER_CAP,
    SW_THERMAL,
    OperatingPoint,
)
from joulewise.simulate.physics.integrate import equilibrium_c, play, run_factors
from joulewise.simulate.timeline import concat
from joulewise.units import NS_PER_S

BOARD = load_board("v100")
UNIT = make_unit(BOARD, 7)
LOAD = Load(
    (
        Phase("input", 0.04, 0.0, 10.0, 5.0, busy=False),
        Phase("forward", 0.12, 0.8, 170.0, 40.0, memory=0.4),
        Phase("backward", 0.22, 0.85, 240.0, 45.0, memory=0.5),
    )
)
SHORT = Load((Phase("a", 0.006, 0.5, 60.0, 10.0), Phase("b", 0.008, 0.9, 200.0, 20.0)))
TINY = Load((Phase("a", 0.0007, 0.0, 0.0, 0.0, busy=False), Phase("b", 0.006, 0.9, 200.0, 20.0)))
FREE, CAPPED, TIGHT = ControlSettings(300.0), ControlSettings(200.0), ControlSettings(150.0)


def warm(load, controls):
    return rest(UNIT, 0, temperature_c=equilibrium_c(UNIT, load, controls))


def clocks_after(timeline, t_ns):
    return np.unique(timeline.between(t_ns, timeline.end_ns).pieces["sm_mhz"]).tolist()


# The same physics twice: for arrays and for one value at a time.


@given(st.floats(135, 1530))
def test_one_clock_at_a_time_agrees_with_arrays(clock_mhz):
    share = governor.core_share(BOARD.clocks, clock_mhz)
    assert share == pytest.approx(
        float(steady_state.core_share(BOARD.clocks, clock_mhz)), rel=1e-12
    )
    assert governor.clock_for(BOARD.clocks, share) == pytest.approx(clock_mhz, rel=1e-7)


@given(st.floats(135, 1530), st.floats(20, 90))
def test_phases_agree_with_arrays(clock_mhz, temperature_c):
    rates = OperatingPoint(BOARD, LOAD, FREE, 1.0, 1.0, temperature_c).rates_at(clock_mhz)
    for phase, time_ns, power_w in zip(LOAD.phases, rates.time_ns, rates.power_w, strict=True):
        expected_w = float(steady_state.phase_power(BOARD, phase, clock_mhz, temperature_c))
        assert time_ns / NS_PER_S == pytest.approx(
            float(steady_state.phase_time(BOARD, phase, clock_mhz)), rel=1e-12
        )
        assert power_w == pytest.approx(expected_w, rel=1e-6)


clock_steps = st.integers(0, 186).map(lambda step: 135.0 + 7.5 * step)
locks = st.none() | st.lists(clock_steps, min_size=2, max_size=2).map(sorted).map(tuple)


@given(st.floats(40, 320), locks, st.floats(20, 86), st.sampled_from([LOAD, SHORT, TINY]))
def test_the_governor_settles_at_the_equilibrium(limit_w, lock, temperature_c, load):
    controls = ControlSettings(limit_w, lock)
    point = OperatingPoint(BOARD, load, controls, 1.0, 1.0, temperature_c)
    expected = float(steady_state.equilibrium_clock(BOARD, load, controls, temperature_c))
    assert point.target_mhz == pytest.approx(expected, rel=1e-7)


# The governor.


@pytest.mark.parametrize("limit_w", [300.0, 260.0, 200.0, 150.0])
@pytest.mark.parametrize("load", [LOAD, SHORT, TINY])
def test_dither_has_the_mean_of_the_equilibrium(limit_w, load):
    controls = ControlSettings(limit_w)
    timeline, _ = play(UNIT, warm(load, controls), load, controls, steps=1000)
    ends = timeline.step_ends_ns[300:]
    energy_j = float(timeline.energy_at(ends[-1]) - timeline.energy_at(ends[0]))
    expected_s, expected_j, _ = steady_state.steady(BOARD, load, limit_w)
    steps = len(ends) - 1
    assert (ends[-1] - ends[0]) / NS_PER_S / steps == pytest.approx(float(expected_s), rel=1e-3)
    assert energy_j / steps == pytest.approx(float(expected_j), rel=1e-3)


def test_a_settled_governor_dithers_between_the_steps_around_its_target():
    timeline, state = play(UNIT, warm(LOAD, CAPPED), LOAD, CAPPED, steps=300)
    low, high = clocks_after(timeline, 20 * NS_PER_S)
    assert high - low == BOARD.clocks.sm_step_mhz
    assert low < state.governor_mhz < high


def settling_s(distance_mhz, share):
    """What the governor's docstring states, and a step of the load to meet every phase."""
    periods = math.log(2 * distance_mhz / BOARD.clocks.sm_step_mhz) / -math.log(1 - share)
    return (math.ceil(periods) + 1) * BOARD.governor.period_s


def test_a_load_starts_high_overshoots_the_cap_and_settles_in_the_stated_time():
    always_hungry = Load(LOAD.phases[2:])
    timeline, state = play(UNIT, warm(always_hungry, CAPPED), always_hungry, CAPPED, steps=20)
    pieces = timeline.pieces
    assert pieces["sm_mhz"][0] == BOARD.clocks.sm_max_mhz
    assert pieces["power_w"][0] > 1.3 * CAPPED.limit_w
    time_s = settling_s(BOARD.clocks.sm_max_mhz - state.governor_mhz, BOARD.governor.attack)
    assert max(timeline.between(round(time_s * NS_PER_S), timeline.end_ns).pieces["power_w"]) < 202
    over = timeline.between(0, round(time_s * NS_PER_S / 4)).pieces["power_w"]
    assert min(over) > CAPPED.limit_w


def test_the_clock_rises_more_slowly_than_it_falls():
    _, low = play(UNIT, warm(LOAD, TIGHT), LOAD, TIGHT, steps=30)
    up, high = play(UNIT, low, LOAD, FREE, steps=60)
    down, _ = play(UNIT, high, LOAD, TIGHT, steps=60)

    def until_settled_ns(timeline):
        final = timeline.pieces["sm_mhz"][-1]
        off = np.abs(timeline.pieces["sm_mhz"] - final) > 2 * BOARD.clocks.sm_step_mhz
        return timeline.pieces["t_ns"][off][-1] - timeline.start_ns

    assert until_settled_ns(up) > 2 * until_settled_ns(down) > 0
    assert abs(up.pieces["sm_mhz"][0] - low.clock_mhz) <= BOARD.clocks.sm_step_mhz


def test_a_stall_between_bursts_does_not_lift_the_clock():
    timeline, _ = play(UNIT, warm(LOAD, CAPPED), LOAD, CAPPED, steps=100)
    settled = timeline.between(20 * NS_PER_S, timeline.end_ns).pieces
    stalled = settled[settled["busy"] == 0.0]
    assert stalled["power_w"].max() < 100
    assert stalled["sm_mhz"].max() <= settled["sm_mhz"][settled["busy"] == 1.0].max()


def test_a_cap_below_the_floor_is_not_reached():
    controls = ControlSettings(100.0)
    hungry = Load((Phase("all", 0.1, 0.5, 150.0, 80.0),))
    timeline, _ = play(UNIT, warm(hungry, controls), hungry, controls, steps=200)
    last = timeline.pieces[-1]
    assert last["sm_mhz"] == BOARD.clocks.sm_min_mhz
    assert last["power_w"] > controls.limit_w + 30
    assert last["throttle"] & POWER_CAP


def test_reasons_for_a_low_clock():
    def last(controls):
        return play(UNIT, warm(LOAD, controls), LOAD, controls, steps=40)[0].pieces[-1]

    assert last(ControlSettings(400.0))["throttle"] == 0
    assert last(CAPPED)["throttle"] == POWER_CAP
    locked = last(ControlSettings(400.0, sm_lock_mhz=(135, 1005)))
    assert (locked["throttle"], locked["sm_mhz"]) == (CLOCK_SETTING, 1005)
    assert last(ControlSettings(150.0, sm_lock_mhz=(1005, 1005)))["throttle"] == POWER_CAP


def test_a_lock_takes_clocks_as_nvml_names_them():
    controls = ControlSettings(400.0, sm_lock_mhz=(1522, 1522))
    timeline, _ = play(UNIT, warm(SHORT, controls), SHORT, controls, steps=100)
    assert clocks_after(timeline, NS_PER_S // 2) == [1522.5]


def test_factors_stretch_time_and_power():
    plain = play(UNIT, warm(SHORT, FREE), SHORT, FREE, steps=10)[0]
    slow = play(UNIT, warm(SHORT, FREE), SHORT, FREE, steps=10, time_factor=1.5)[0]
    assert slow.end_ns / plain.end_ns == pytest.approx(1.5, rel=1e-6)
    hot = play(UNIT, warm(SHORT, FREE), SHORT, FREE, steps=10, power_factor=1.1)[0]
    standing_w = governor.standing_w(BOARD, float(plain.pieces["temperature_c"][0]))
    assert hot.pieces["power_w"][0] - standing_w == pytest.approx(
        1.1 * (plain.pieces["power_w"][0] - standing_w), rel=1e-6
    )


def test_a_phase_without_time_leaves_no_piece():
    hollow = Load((Phase("nothing", 0.0, 0.0, 900.0, 0.0), *SHORT.phases))
    timeline, _ = play(UNIT, rest(UNIT, 0), hollow, CAPPED, steps=50)
    same, _ = play(UNIT, rest(UNIT, 0), SHORT, CAPPED, steps=50)
    assert timeline.pieces.tolist() == same.pieces.tolist()


def test_few_pieces_a_second():
    timeline, _ = play(UNIT, warm(LOAD, CAPPED), LOAD, CAPPED, until_ns=60 * NS_PER_S)
    assert len(timeline.pieces) < 60 * 20


def test_steps_too_short_for_any_sensor_are_one_piece_each():
    timeline, _ = play(UNIT, rest(UNIT, 0), TINY, ControlSettings(400.0), until_ns=NS_PER_S)
    assert len(timeline.pieces) == len(timeline.step_ends_ns) + 1
    assert timeline.pieces["busy"][-1] == pytest.approx(0.0060 / 0.0067, abs=1e-6)


# Idle.


def test_clocks_stay_up_for_a_while_then_come_down():
    worked, state = play(UNIT, rest(UNIT, 0), SHORT, FREE, steps=100)
    hold_ns = round(BOARD.idle.hold_s * NS_PER_S)
    idle, state = play(UNIT, state, None, FREE, until_ns=worked.end_ns + 2 * hold_ns)
    up, down = idle.pieces[0], idle.pieces[-1]
    assert up["power_w"] == pytest.approx(BOARD.idle.clocks_up_w, abs=5)
    assert (up["pstate"], up["throttle"], up["sm_mhz"]) == (0, 0, worked.pieces[-1]["sm_mhz"])
    assert down["power_w"] == BOARD.idle.context_w
    assert (down["pstate"], down["throttle"]) == (8, IDLE)
    assert down["sm_mhz"] == BOARD.clocks.sm_min_mhz
    assert worked.end_ns + hold_ns in idle.pieces["t_ns"]
    alone, _ = play(UNIT, state, None, FREE, until_ns=state.t_ns + NS_PER_S, contexts=0)
    assert alone.pieces[-1]["power_w"] == BOARD.idle.asleep_w


def test_a_short_gap_keeps_the_governor_where_it_is():
    _, state = play(UNIT, warm(LOAD, CAPPED), LOAD, CAPPED, steps=50)
    _, waited = play(UNIT, state, None, CAPPED, until_ns=state.t_ns + 5_000_000)
    again, _ = play(UNIT, waited, LOAD, CAPPED, steps=1)
    assert abs(again.pieces["sm_mhz"][0] - state.governor_mhz) < BOARD.clocks.sm_step_mhz
    _, slept = play(UNIT, state, None, CAPPED, until_ns=state.t_ns + 5 * NS_PER_S)
    fresh, _ = play(UNIT, slept, LOAD, CAPPED, steps=1)
    assert fresh.pieces["sm_mhz"][0] == BOARD.clocks.sm_max_mhz


def test_an_idle_of_no_length_gives_up_the_step_in_hand():
    _, state = play(UNIT, rest(UNIT, 0), LOAD, FREE, until_ns=100_000_000)
    whole, _ = play(UNIT, rest(UNIT, 0), LOAD, FREE, steps=1)
    rest_of_it, _ = play(UNIT, state, LOAD, FREE, steps=1)
    assert rest_of_it.end_ns == whole.end_ns
    _, given_up = play(UNIT, state, None, FREE, until_ns=state.t_ns)
    anew, _ = play(UNIT, given_up, LOAD, FREE, steps=1)
    assert anew.end_ns - anew.start_ns == pytest.approx(whole.end_ns, rel=1e-3)


# Heat.


def test_temperature_comes_to_its_equilibrium_and_back():
    start = rest(UNIT, 0)
    timeline, state = play(UNIT, start, LOAD, CAPPED, until_ns=400 * NS_PER_S)
    end_c = equilibrium_c(UNIT, LOAD, CAPPED)
    assert state.temperature_c == pytest.approx(end_c, abs=0.3)
    tau_ns = round(BOARD.thermal.time_constant_s * NS_PER_S)
    after_tau_c = float(timeline.pieces["temperature_c"][timeline.index_at(tau_ns)])
    share = (after_tau_c - start.temperature_c) / (end_c - start.temperature_c)
    assert share == pytest.approx(1 - math.exp(-1), abs=0.02)
    assert (np.diff(timeline.pieces["temperature_c"]) >= 0).all()
    _, cold = play(UNIT, state, None, CAPPED, until_ns=900 * NS_PER_S, contexts=0)
    assert cold.temperature_c == pytest.approx(start.temperature_c, abs=0.3)


def test_a_warm_start_stays_as_warm():
    timeline, _ = play(UNIT, warm(LOAD, CAPPED), LOAD, CAPPED, steps=500)
    assert np.ptp(timeline.pieces["temperature_c"]) < 0.3


def test_a_hot_board_slows_down_and_says_so():
    hot = replace(UNIT, board=replace(BOARD, thermal=replace(BOARD.thermal, ambient_c=60.0)))
    controls = ControlSettings(300.0)
    timeline, state = play(hot, rest(hot, 0), LOAD, controls, until_ns=600 * NS_PER_S)
    slow = timeline.pieces[-1]
    assert slow["throttle"] & SW_THERMAL
    assert not timeline.pieces[0]["throttle"] & SW_THERMAL
    assert slow["sm_mhz"] < 0.95 * timeline.pieces["sm_mhz"].max()
    assert BOARD.thermal.slowdown_c < state.temperature_c < BOARD.thermal.shutdown_c
    assert state.temperature_c == pytest.approx(equilibrium_c(hot, LOAD, controls), abs=0.3)


# Cuts change nothing.


acts = st.lists(
    st.tuples(
        st.sampled_from([LOAD, SHORT, TINY, None]),
        st.sampled_from([FREE, CAPPED, TIGHT, ControlSettings(300.0, sm_lock_mhz=(900, 1200))]),
        st.integers(1, 3_000_000_000),
        st.lists(st.floats(0, 1), max_size=4),
    ),
    min_size=1,
    max_size=4,
)


@settings(deadline=None, max_examples=60)
@given(acts)
def test_cutting_anywhere_changes_nothing(script):
    whole_state = cut_state = rest(UNIT, 5)
    whole_parts, cut_parts = [], []
    for load, controls, duration_ns, cuts in script:
        start_ns = whole_state.t_ns
        end_ns = start_ns + duration_ns
        part, whole_state = play(UNIT, whole_state, load, controls, until_ns=end_ns)
        whole_parts.append(part)
        for until_ns in [*sorted(start_ns + round(cut * duration_ns) for cut in cuts), end_ns]:
            part, cut_state = play(UNIT, cut_state, load, controls, until_ns=until_ns)
            cut_parts.append(part)
    assert cut_state == whole_state
    whole, cut = concat(whole_parts), concat(cut_parts)
    assert set(whole.pieces["t_ns"]) <= set(cut.pieces["t_ns"])
    assert cut.step_ends_ns.tolist() == whole.step_ends_ns.tolist()
    np.testing.assert_allclose(
        cut.pieces["energy_j"], whole.energy_at(cut.pieces["t_ns"]), rtol=0, atol=1e-9
    )
    at = whole.index_at(cut.pieces["t_ns"])
    for column in ("power_w", "sm_mhz", "busy", "temperature_c", "throttle", "pstate"):
        assert cut.pieces[column].tolist() == whole.pieces[column][at].tolist()


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from([LOAD, SHORT, TINY, None]),
    st.integers(1, 6 * NS_PER_S),
    st.integers(0, NS_PER_S),
)
def test_an_interruption_leaves_what_came_before_as_it_was(load, until_ns, more_ns):
    start = warm(LOAD, TIGHT)
    foretold, _ = play(UNIT, start, load, TIGHT, until_ns=until_ns + more_ns)
    done, _ = play(UNIT, start, load, TIGHT, until_ns=until_ns)
    assert done.pieces.tolist() == foretold.between(0, until_ns).pieces.tolist()


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 60), st.integers(1, 60), st.sampled_from([LOAD, SHORT, TINY]))
def test_steps_one_by_one_are_the_same_bits_as_many_at_once(few, more, load):
    start = warm(load, CAPPED)
    at_once, state = play(UNIT, start, load, CAPPED, steps=few + more)
    one, parts = start, []
    for _ in range(few):
        part, one = play(UNIT, one, load, CAPPED, steps=1)
        parts.append(part)
    part, one = play(UNIT, one, load, CAPPED, steps=more)
    joined = concat([*parts, part])
    assert one == state
    assert joined.step_ends_ns.tolist() == at_once.step_ends_ns.tolist()
    assert joined.pieces.tolist() == at_once.pieces.tolist()


def test_controls_set_within_a_step_change_only_the_rest_of_it():
    _, state = play(UNIT, warm(LOAD, FREE), LOAD, FREE, steps=30)
    _, middle = play(UNIT, state, LOAD, FREE, until_ns=state.t_ns + 100_000_000)
    rest_of_it, after = play(UNIT, middle, LOAD, TIGHT, steps=1)
    free, _ = play(UNIT, middle, LOAD, FREE, steps=1)
    assert rest_of_it.end_ns > free.end_ns
    assert after.phase == state.phase
    assert rest_of_it.end_ns - state.t_ns < 2 * (free.end_ns - state.t_ns)


# Run-to-run noise.


def test_runs_differ_by_their_noise_and_only_by_their_seed():
    factors = [run_factors(seed, 0.003) for seed in range(2000)]
    for column in zip(*factors, strict=True):
        assert mean(column) == pytest.approx(1.0, abs=3e-4)
        assert stdev(column) == pytest.approx(0.003, rel=0.1)
    assert run_factors(3, 0.003) == factors[3]
    assert run_factors(3, 0.0) == (1.0, 1.0)
