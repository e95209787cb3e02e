"""Loads shorter than the time between two readings, with marks around them."""

import numpy as np
import pytest

from joulewise.analyse.energy.windows import window_energy
from tests.helpers.ideal_sensors import Sensor, device, lane, lanes, windows

IDLE_W, LOAD_W = 20.0, 200.0
# A load each second, at other moments of the sensor's period each time.
STARTS_S = 1.0 + np.arange(10) * 1.013


def bursts(length_s):
    """Energy up to a time, of loads of this length."""

    def energy_at(t_s):
        t_s = np.asarray(t_s, float)
        on_s = np.clip(t_s[..., None] - STARTS_S, 0.0, length_s).sum(axis=-1)
        return IDLE_W * t_s + (LOAD_W - IDLE_W) * on_s

    return energy_at


def spans_of(length_s):
    """The loads, and the pauses between them."""
    loads = np.column_stack([STARTS_S, STARTS_S + length_s])
    return windows(*loads), windows(*np.column_stack([loads[:-1, 1], loads[1:, 0]]))


def measured(sensor, length_s, **card):
    fast, buffer = lanes(bursts(length_s), sensor=sensor, time_s=13.0)
    loads, pauses = spans_of(length_s)
    found = window_energy(
        device(sensor, **card), lane(fast), lane(buffer), np.concatenate([loads, pauses])
    )
    return found.energy_j[: len(loads)], found.energy_j[len(loads) :]


@pytest.mark.parametrize("length_s", [0.02, 0.04, 0.08])
def test_a_load_within_one_reading_has_what_was_drawn_between_its_marks(length_s):
    all_time = Sensor(period_s=0.1, window_s=0.1, lag_s=0.02)
    loads_j, pauses_j = measured(all_time, length_s)
    assert loads_j == pytest.approx(LOAD_W * length_s, rel=0.15)
    assert pauses_j == pytest.approx(IDLE_W * (1.013 - length_s), rel=0.05)


def test_a_load_that_no_reading_saw_has_what_the_counter_has_more_than_the_curve():
    quarter = Sensor(period_s=0.1, window_s=0.025, lag_s=0.02)
    loads_j, pauses_j = measured(quarter, 0.02)
    drawn_j = LOAD_W * 0.02
    assert np.mean(loads_j) == pytest.approx(drawn_j, rel=0.2)
    assert np.mean(pauses_j) == pytest.approx(IDLE_W * (1.013 - 0.02), rel=0.03)


@pytest.mark.parametrize("window_s", [0.1, 0.025])
def test_where_the_counter_ends_the_readings_go_on(window_s):
    sensor = Sensor(period_s=0.1, window_s=window_s, lag_s=0.02)
    energy_at = bursts(0.5)
    fast, buffer = lanes(energy_at, sensor=sensor, time_s=13.0)
    fast["energy_j"] = np.where(np.arange(len(fast["t_ns"])) < 60, fast["energy_j"], np.nan)
    found = window_energy(device(sensor), lane(fast), lane(buffer), windows((0.5, 12.0)))
    drawn_j = energy_at(12.0) - energy_at(0.5)
    assert abs(found.energy_j[0] - drawn_j) <= found.error_sampling_j[0]
    assert found.error_sampling_j[0] < 0.1 * drawn_j


@pytest.mark.parametrize("period_s", [0.02, 0.1])
@pytest.mark.parametrize("length_s", [0.07, 0.3])
@pytest.mark.parametrize("has_samples", [True, False])
def test_no_window_has_less_than_the_device_draws_at_least(period_s, length_s, has_samples):
    sensor = Sensor(period_s=period_s, window_s=period_s / 2, lag_s=0.2 * period_s)
    fast, buffer = lanes(bursts(length_s), sensor=sensor, time_s=13.0)
    starts_s = np.arange(0.5, 12.0, 0.013)
    short = windows(*np.column_stack([starts_s, starts_s + 0.01]))
    found = window_energy(device(sensor), lane(fast), lane(buffer) if has_samples else None, short)
    assert found.energy_j.min() > 0


def test_spans_with_pauses_too_short_for_the_sensor_between_them_are_inside_their_errors():
    """A part of such a pause lies in readings of the spans, and the other way round."""
    quarter, pause_s, errors = Sensor(period_s=0.1, window_s=0.025, lag_s=0.02), 0.03, []
    for seed in range(12):
        draw = np.random.default_rng(seed)
        length_s, load_w = np.exp(draw.uniform(*np.log((0.1, 0.5)), 40)), draw.uniform(80, 300, 40)
        start_s = 1.0 + np.cumsum(np.append(0.0, length_s[:-1] + pause_s))

        def energy_at(t_s, start_s=start_s, length_s=length_s, load_w=load_w):
            t_s = np.asarray(t_s, float)
            on_s = np.clip(t_s[..., None] - start_s, 0.0, length_s)
            return 2 * IDLE_W * t_s + ((load_w - 2 * IDLE_W) * on_s).sum(axis=-1)

        fast, buffer = lanes(energy_at, sensor=quarter, time_s=start_s[-1] + 2.0)
        spans = windows(*np.column_stack([start_s, start_s + length_s]))
        found = window_energy(device(quarter), lane(fast), lane(buffer), spans)
        drawn_j = load_w * length_s
        errors.append(np.stack([found.energy_j - drawn_j, found.error_sampling_j]) / drawn_j)
    off, stated = np.abs(np.concatenate(errors, axis=1))
    assert np.mean(off <= stated) > 0.95
    assert np.median(stated) < 0.1
