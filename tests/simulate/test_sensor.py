"""What the sensor shows, against the same computed the slow way."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.data import Quantity
from joulewise.simulate import sensor
from joulewise.simulate.boards import load_board, make_unit
from joulewise.simulate.model import BoardUnit, ControlSettings, Load, Phase
from joulewise.simulate.physics.board_state import rest
from joulewise.simulate.physics.integrate import play
from joulewise.simulate.sensor import poll
from joulewise.units import NS_PER_MS, NS_PER_S

BOARD = load_board("v100")
LOAD = Load(
    (
        Phase("wait", 0.013, 0.0, 0.0, 0.0, busy=False),
        Phase("work", 0.031, 0.8, 200.0, 40.0, memory=0.5),
    )
)
SPEC = replace(
    BOARD.sensor,
    period_s=0.02,
    tick_jitter=0.05,
    window_s=0.01,
    lag_s=0.005,
    noise_w=0.0,
    quantum_w=0.0,
    average_window_s=1.0,
    plain_is_average=False,
    counter_period_s=0.05,
    counter_step_j=0.5,
    utilisation_period_s=0.17,
    buffer_samples=30,
)
PHASE_NS = 3_456_789
COUNTER_PHASE_NS = 44_444_444
COUNTER_LAG_NS = 7_654_321
SEED = 11


def unit_with(**changes):
    return BoardUnit(
        replace(BOARD, sensor=replace(SPEC, **changes)),
        seed=SEED,
        gain=1.03,
        sensor_phase_ns=PHASE_NS,
        counter_phase_ns=COUNTER_PHASE_NS,
        counter_lag_ns=COUNTER_LAG_NS,
    )


UNIT = unit_with()
TIMELINE, _ = play(UNIT, rest(UNIT, 0), LOAD, ControlSettings(180.0), until_ns=20 * NS_PER_S)
POLLS_NS = np.arange(2 * NS_PER_S, 20 * NS_PER_S, 7 * NS_PER_MS)
moments = st.integers(2 * NS_PER_S, 19 * NS_PER_S)


def on_a_grid(column, start_ns, end_ns, points=20_000):
    """The mean from many single looks, which know nothing of integrals."""
    t_ns = start_ns + (np.arange(points) + 0.5) * (end_ns - start_ns) / points
    return TIMELINE.pieces[column][TIMELINE.index_at(t_ns.astype(np.int64))].mean(dtype=np.float64)


def by_hand(seed, tick, channel):
    mask = (1 << 64) - 1
    x = seed * 0x9E3779B97F4A7C15 + tick * 0xBF58476D1CE4E5B9 + channel * 0x94D049BB133111EB & mask
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & mask
    x ^= x >> 31
    words = sum(x >> shift & 0xFFFF for shift in (0, 16, 32, 48))
    return (words / 65536 - 2 + 2 / 65536) * math.sqrt(3)


def last_tick_ns(t_ns, phase_ns, period_ms, channel=None, jitter=0.05):
    """The last of all ticks up to some time after the moment that is not after it."""
    period_ns = period_ms * NS_PER_MS
    ticks_ns = []
    for tick in range((t_ns - phase_ns) // period_ns + 4):
        late = 0 if channel is None else by_hand(SEED, tick, channel) * jitter * period_ns / 2**0.5
        ticks_ns.append(phase_ns + tick * period_ns + round(late))
    return max(tick_ns for tick_ns in ticks_ns if tick_ns <= t_ns)


@given(moments, st.sampled_from([(sensor.INSTANT, 0.01), (sensor.AVERAGE, 1.0)]))
def test_a_reading_is_the_mean_over_its_window(t_ns, channel_window):
    channel, window_s = channel_window
    end_ns = last_tick_ns(t_ns, PHASE_NS, 20, channel=2) - 5 * NS_PER_MS
    expected = 1.03 * on_a_grid("power_w", end_ns - round(window_s * NS_PER_S), end_ns)
    assert sensor.power_w(UNIT, TIMELINE, t_ns, channel) == pytest.approx(expected, abs=0.05)


@given(moments, st.sampled_from(["busy", "memory_busy"]))
def test_utilisation_is_the_mean_over_its_period(t_ns, column):
    end_ns = last_tick_ns(t_ns, PHASE_NS, 170)
    expected = 100 * on_a_grid(column, end_ns - 170 * NS_PER_MS, end_ns)
    assert sensor.utilisation_pct(UNIT, TIMELINE, t_ns, column) == pytest.approx(expected, abs=0.52)


@given(moments)
def test_the_counter_counts_whole_steps_of_what_was_drawn(t_ns):
    tick_ns = last_tick_ns(t_ns, COUNTER_PHASE_NS, 50, channel=3)
    drawn_j = 1.03 * (float(TIMELINE.energy_at(tick_ns - COUNTER_LAG_NS)) - 2.0)
    shown_j = float(sensor.counter_j(UNIT, TIMELINE, t_ns, base_j=2.0))
    assert shown_j % 0.5 == pytest.approx(0.0, abs=1e-6)
    assert shown_j <= drawn_j < shown_j + 0.5


def test_the_counter_never_goes_back():
    wild = unit_with(tick_jitter=3.0)
    for unit in (UNIT, wild):
        counted_j = sensor.counter_j(unit, TIMELINE, POLLS_NS)
        assert (np.diff(counted_j) >= 0).all()
        assert counted_j[-1] > counted_j[0]


def test_a_reading_stays_until_the_next_tick():
    this_ns, next_ns = sensor.power_tick_ns(UNIT, [100, 101]).tolist()
    period = np.array([this_ns - 1, this_ns, this_ns + 1, next_ns - 1, next_ns])
    noisy = unit_with(noise_w=1.0)
    before, first, second, last, after = sensor.power_w(noisy, TIMELINE, period, sensor.INSTANT)
    assert first == second == last
    assert before != first != after


def test_polls_that_outnumber_ticks_see_the_same_readings():
    dense = np.arange(3 * NS_PER_S, 6 * NS_PER_S, NS_PER_MS)
    for read in (
        lambda t_ns: sensor.power_w(UNIT, TIMELINE, t_ns, sensor.INSTANT),
        lambda t_ns: sensor.counter_j(UNIT, TIMELINE, t_ns),
        lambda t_ns: sensor.utilisation_pct(UNIT, TIMELINE, t_ns),
    ):
        sparse = [float(read(t_ns)) for t_ns in dense[::97]]
        assert read(dense)[::97].tolist() == sparse


@pytest.mark.parametrize(
    ("tick_ns", "period_s"), [(sensor.power_tick_ns, 0.02), (sensor.counter_tick_ns, 0.05)]
)
def test_intervals_between_ticks_vary_as_stated(tick_ns, period_s):
    intervals_s = np.diff(tick_ns(UNIT, np.arange(50_000))) / NS_PER_S
    assert intervals_s.mean() == pytest.approx(period_s, rel=1e-4)
    assert intervals_s.std() / intervals_s.mean() == pytest.approx(0.05, rel=0.02)
    steady = unit_with(tick_jitter=0.0)
    assert set(np.diff(tick_ns(steady, np.arange(1_000)))) == {round(period_s * NS_PER_S)}


@given(st.floats(0.0, 10.0), st.integers(0, 10**9), st.integers(0, 2**31))
def test_ticks_stay_in_order_and_the_last_one_is_seen(jitter, first, seed):
    unit = replace(unit_with(tick_jitter=jitter), seed=seed)
    for tick_ns, last_tick in (
        (sensor.power_tick_ns, sensor.last_power_tick),
        (sensor.counter_tick_ns, sensor.last_counter_tick),
    ):
        ticks = np.arange(first, first + 50)
        at_ns = tick_ns(unit, ticks)
        assert (np.diff(at_ns) > 0).all()
        assert last_tick(unit, at_ns).tolist() == ticks.tolist()
        assert last_tick(unit, at_ns - 1).tolist() == (ticks - 1).tolist()
        dense_ns = np.arange(at_ns[0], at_ns[-1], (at_ns[-1] - at_ns[0]) // 1_000)
        expected = np.searchsorted(at_ns, dense_ns, side="right") - 1 + first
        assert last_tick(unit, dense_ns).tolist() == expected.tolist()


def test_ticks_of_sensor_and_counter_are_late_independently():
    unit = replace(unit_with(counter_period_s=0.02), counter_phase_ns=PHASE_NS, counter_lag_ns=0)
    ticks = np.arange(50_000)
    late = [
        at_ns(unit, ticks) - ticks * 20 * NS_PER_MS
        for at_ns in (sensor.power_tick_ns, sensor.counter_tick_ns)
    ]
    assert np.corrcoef(*late)[0, 1] == pytest.approx(0.0, abs=0.02)


def test_the_v100s_samples_come_as_published():
    """49.93 Hz with a coefficient of variation of 1.141 % (Grzelka)."""
    unit = make_unit(BOARD, 0)
    rate_hz = NS_PER_S / np.diff(sensor.power_tick_ns(unit, np.arange(20_000)))
    assert rate_hz.mean() == pytest.approx(49.93, abs=0.02)
    assert rate_hz.std() / rate_hz.mean() == pytest.approx(0.01141, rel=0.02)


def test_readings_come_in_quanta_and_never_below_zero():
    coarse = unit_with(quantum_w=2.0, noise_w=5.0)
    quanta = sensor.power_w(coarse, TIMELINE, POLLS_NS, sensor.INSTANT) / 2.0
    assert (quanta == np.rint(quanta)).all()
    wild = unit_with(noise_w=500.0)
    assert sensor.power_w(wild, TIMELINE, POLLS_NS, sensor.INSTANT).min() == 0.0


def test_the_plain_call_is_the_average_where_the_board_says_so():
    assert sensor.plain_channel(UNIT) == sensor.INSTANT
    assert sensor.plain_channel(unit_with(plain_is_average=True)) == sensor.AVERAGE


def test_before_the_beginning_the_first_power_counts():
    first_w = float(TIMELINE.pieces["power_w"][0])
    reading = sensor.power_w(UNIT, TIMELINE, -5 * NS_PER_S, sensor.AVERAGE)
    assert reading == pytest.approx(1.03 * first_w, abs=1e-3)


def test_the_buffer_holds_the_last_ticks():
    now_ns = 10 * NS_PER_S
    t_ns, power_w = sensor.samples(UNIT, TIMELINE, now_ns)
    assert len(t_ns) == 30
    assert t_ns[-1] == last_tick_ns(now_ns, PHASE_NS, 20, channel=2)
    assert len(set(np.diff(t_ns))) > 25
    assert power_w.tolist() == sensor.power_w(UNIT, TIMELINE, t_ns, sensor.INSTANT).tolist()


@pytest.mark.parametrize("kind", list(sensor.SampleKind))
def test_every_type_of_sample_is_what_a_poll_at_its_time_shows(kind):
    t_ns, values = sensor.samples(UNIT, TIMELINE, 15 * NS_PER_S, kind)
    quantity = {
        sensor.SampleKind.POWER: Quantity.POWER,
        sensor.SampleKind.GPU_UTILISATION: Quantity.GPU_UTILISATION,
        sensor.SampleKind.MEMORY_UTILISATION: Quantity.MEMORY_UTILISATION,
        sensor.SampleKind.SM_CLOCK: Quantity.SM_CLOCK,
        sensor.SampleKind.MEMORY_CLOCK: Quantity.MEMORY_CLOCK,
    }.get(kind)
    assert len(t_ns) == 30
    if quantity is None:
        assert not values.any()
    else:
        assert values.tolist() == poll(UNIT, TIMELINE, t_ns, [quantity])[quantity.value].tolist()


@given(st.integers(0, 2**63), st.integers(-(2**40), 2**40), st.integers(0, 1))
def test_noise_is_the_stated_function(seed, tick, channel):
    assert sensor.noise(seed, tick, channel).item() == by_hand(seed, tick, channel)


def test_noise_has_mean_zero_variance_one_and_no_memory():
    ticks = np.arange(200_000)
    plain, average = (sensor.noise(5, ticks, channel) for channel in (0, 1))
    assert plain.mean() == pytest.approx(0.0, abs=0.01)
    assert plain.var() == pytest.approx(1.0, abs=0.01)
    for other in (np.roll(plain, 1), average, sensor.noise(6, ticks, 0)):
        assert np.corrcoef(plain, other)[0, 1] == pytest.approx(0.0, abs=0.01)
