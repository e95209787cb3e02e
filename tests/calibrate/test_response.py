"""What a sensor does, found from readings that are made by its definition alone."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.calibrate.response import SensorPolls, counter_period, fit_sensor, is_long_average
from joulewise.calibrate.update_period import find_ticks
from joulewise.data import Quantity, Unavailable
from tests.helpers.square_wave import SWING_W, Sensor, recorded, waves

VOLTA = Sensor(0.02, 0.01, 0.005)
TURING = Sensor(0.1, 0.1, 0.02)
AMPERE = Sensor(0.1, 0.025, 0.02)
SECOND = Sensor(0.1, 1.0, 0.02)


def fit(sensor, seconds=12.0, **how):
    on_s, off_s = waves(seconds, sensor.period_s / 4, sensor.period_s * 4)
    return fit_sensor(recorded(sensor, on_s, off_s, **how), Quantity.POWER)


def off_by(figure, truth):
    return abs(figure.value / truth - 1)


@pytest.mark.parametrize("sensor", [VOLTA, TURING, AMPERE, SECOND])
def test_period_window_and_lag_are_found_with_their_errors(sensor):
    found = fit(sensor)
    assert off_by(found.update_period_s, sensor.period_s) < 0.001
    assert off_by(found.window_s, sensor.window_s) < 0.03
    assert abs(found.lag_s.value - sensor.lag_s) <= found.lag_s.error
    assert 0 < found.window_s.error < 0.1 * sensor.window_s
    unseen = max(0.0, 1 - sensor.window_s / sensor.period_s)
    assert found.unseen_share.value == pytest.approx(unseen, abs=0.02)
    assert found.rate_busy_hz.value == pytest.approx(1 / sensor.period_s, rel=0.12)  # some repeat


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from([VOLTA, TURING, AMPERE]),
    st.tuples(*[st.floats(0.8, 1.2)] * 3),
    st.integers(0, 1000),
)
def test_boards_that_differ_from_the_tables(sensor, factors, seed):
    period, window, lag = factors
    drawn = replace(
        sensor,
        period_s=sensor.period_s * period,
        window_s=sensor.window_s * window,
        lag_s=sensor.lag_s * lag,
    )
    on_s, off_s = waves(15.0, sensor.period_s / 4, sensor.period_s * 4, seed=seed)
    found = fit_sensor(recorded(drawn, on_s, off_s, seed=seed), Quantity.POWER)
    assert off_by(found.update_period_s, drawn.period_s) < 0.01
    assert off_by(found.window_s, drawn.window_s) < 0.1


def test_power_that_comes_later_than_the_load_is_no_longer_window():
    found = fit(VOLTA, rise_s=0.004)
    assert off_by(found.window_s, VOLTA.window_s) < 0.03
    assert found.lag_s.value == pytest.approx(VOLTA.lag_s, abs=0.001)


def test_a_board_that_warms_up():
    found = fit(SECOND, warming_w=40.0)
    assert off_by(found.window_s, SECOND.window_s) < 0.01
    assert found.lag_s.error < 0.02


def test_the_idle_may_have_a_pace_of_its_own():
    on_s, off_s = waves(20.0, 0.025, 0.4, lead_s=10.0)
    recording = recorded(AMPERE, on_s, off_s)
    idle = recording.t_s < on_s[0] - 0.2
    recording.columns[Quantity.POWER][idle] = 50.0 + np.floor(recording.t_s[idle] / 0.033) % 2
    found = fit_sensor(recording, Quantity.POWER)
    assert off_by(found.update_period_s, AMPERE.period_s) < 0.001
    assert found.rate_idle_hz.value > 25
    assert found.rate_busy_hz.value < 11


def test_gaps_in_the_answers_do_no_harm():
    on_s, off_s = waves(12.0, 0.005, 0.08)
    recording = recorded(VOLTA, on_s, off_s)
    power_w = recording.columns[Quantity.POWER]
    power_w[(recording.t_s % 1.0) < 0.1] = np.nan
    found = fit_sensor(recording, Quantity.POWER)
    assert off_by(found.update_period_s, VOLTA.period_s) < 0.001
    assert off_by(found.window_s, VOLTA.window_s) < 0.03


@pytest.mark.parametrize("polls_per_period", [20, 7.003, 3.9])
def test_polls_that_beat_with_the_period(polls_per_period):
    on_s, off_s = waves(12.0, 0.005, 0.08)
    polls_s = np.arange(0, off_s[-1] + 0.5, VOLTA.period_s / polls_per_period)
    found = fit_sensor(recorded(VOLTA, on_s, off_s, polls_s=polls_s), Quantity.POWER)
    assert off_by(found.update_period_s, VOLTA.period_s) < 0.001
    assert off_by(found.window_s, VOLTA.window_s) < 0.1


def test_polls_on_a_busy_machine():
    on_s, off_s = waves(20.0, 0.005, 0.08)
    draw = np.random.default_rng(3)
    polls_s = np.arange(0, off_s[-1] + 0.5, 0.001)
    turn = (polls_s / 0.05).astype(int)
    asleep = (polls_s % 0.05) < 0.045 * draw.random(turn[-1] + 1)[turn]
    recording = recorded(VOLTA, on_s, off_s, polls_s=polls_s[~asleep])
    found = fit_sensor(recording, Quantity.POWER)
    assert off_by(found.update_period_s, VOLTA.period_s) < 0.001
    assert off_by(found.window_s, VOLTA.window_s) < 0.02


def test_coarse_steps_repeat_values_and_hide_no_period():
    on_s, off_s = waves(20.0, 0.025, 0.4)
    recording = recorded(replace(AMPERE, quantum_w=20.0, noise_w=0.0), on_s, off_s)
    ticks = find_ticks(recording.t_s, recording.columns[Quantity.POWER])
    assert off_by(ticks.period_s, AMPERE.period_s) < 0.001


def test_a_blip_of_somebody_elses_does_little_harm():
    found = fit(AMPERE, seconds=20.0, blip_w=100.0)
    assert off_by(found.window_s, AMPERE.window_s) < 0.03
    assert found.window_s.error < 0.05 * AMPERE.window_s


def test_a_one_second_average_is_distinguished_from_an_instant_reading():
    assert is_long_average(fit(SECOND))
    assert not is_long_average(fit(AMPERE))


def test_the_counters_period():
    t_s = np.arange(0, 5, 0.001)
    count = np.floor(t_s / 0.1 + 0.3) * 12.5
    recording = SensorPolls(t_s, {Quantity.ENERGY: count}, np.array([1.0]), np.array([2.0]))
    assert off_by(counter_period(recording), 0.1) < 0.001
    assert isinstance(counter_period(replace(recording, columns={})), Unavailable)


class TestItRefuses:
    def test_a_load_that_hardly_moves_the_readings(self):
        why = fit(AMPERE, swing_w=1.0)
        assert "too little" in why.reason

    def test_what_the_rig_found_wrong(self):
        on_s, off_s = waves(12.0, 0.025, 0.4)
        recording = replace(recorded(AMPERE, on_s, off_s), faults=("it was held back (heat)",))
        assert fit_sensor(recording, Quantity.POWER).reason == "it was held back (heat)"

    def test_readings_that_do_not_follow_the_load(self):
        on_s, off_s = waves(12.0, 0.025, 0.4)
        others_on_s, others_off_s = waves(12.0, 0.025, 0.4, seed=9)
        other = recorded(AMPERE, others_on_s, others_off_s)
        why = fit_sensor(replace(other, on_s=on_s, off_s=off_s), Quantity.POWER)
        assert "the load explains only" in why.reason

    def test_values_that_change_at_every_poll(self):
        draw = np.random.default_rng(0)
        t_s = np.arange(0, 5, 0.001)
        why = find_ticks(t_s, SWING_W * draw.random(t_s.size))
        assert "faster than" in why.reason

    def test_values_without_a_rhythm(self):
        draw = np.random.default_rng(0)
        t_s = np.arange(0, 20, 0.001)
        changes = np.searchsorted(np.cumsum(draw.exponential(0.1, 1000)), t_s)
        assert "not periodic" in find_ticks(t_s, changes.astype(float)).reason

    def test_a_reading_that_never_changes(self):
        t_s = np.arange(0, 5, 0.001)
        assert "too few" in find_ticks(t_s, np.full(t_s.size, 60.0)).reason

    def test_a_recording_that_is_too_short(self):
        assert "too few" in fit(AMPERE, seconds=3.0).reason

    @pytest.mark.parametrize("column", [{}, {Quantity.POWER: np.full(5000, np.nan)}])
    def test_a_board_without_readings_is_not_fitted(self, column):
        recording = SensorPolls(np.arange(5000) / 1e3, column, np.array([1.0]), np.array([2.0]))
        assert "reports no power_w" in fit_sensor(recording, Quantity.POWER).reason
