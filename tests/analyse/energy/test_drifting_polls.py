"""A counter that nobody samples, polled at nearly its own period: the age of its values drifts."""

import numpy as np
import pytest

from joulewise.analyse.energy.windows import window_energy
from tests.helpers.ideal_sensors import Sensor, device, lane, lanes, windows

# As on a superchip: the module draws hundreds of watts when its GPU is idle, a reading averages a
# quarter of the time, and the driver keeps no samples of it.
IDLE_W, LOAD_W = 340.0, 800.0
SENSOR = Sensor(period_s=0.1, window_s=0.025, lag_s=0.02, noise_w=0.3)
TIME_S = 40.0


def epochs(seed):
    """Start and end of loads and of the epochs around them, in seconds."""
    draw = np.random.default_rng(seed)
    t_s, loads, spans = 1.0, [], []
    while t_s < TIME_S - 3:
        start_s = t_s
        for _ in range(draw.integers(1, 6)):
            loads.append((t_s, t_s + draw.uniform(0.03, 0.25)))
            t_s = loads[-1][1] + draw.choice([0.005, 0.03, 0.1])
        spans.append((start_s, t_s))
        t_s += draw.uniform(0.2, 0.8)
    return np.array(loads), np.array(spans)


def measure(seed, rate_hz):
    """Of each epoch: joules, their stated error, and the truth."""
    loads, spans = epochs(seed)

    def energy_at(t_s):
        t_s = np.asarray(t_s, float)
        on_s = np.clip(t_s[..., None] - loads[:, 0], 0.0, loads[:, 1] - loads[:, 0])
        return IDLE_W * (t_s + 1) + (LOAD_W - IDLE_W) * on_s.sum(axis=-1)

    fast, _ = lanes(energy_at, TIME_S + 0.05, SENSOR, rate_hz=rate_hz, seed=seed)
    board = device(SENSOR, maximum_w=1000.0, lag_s=None, counter_period_s=None)
    found = window_energy(board, lane(fast), None, windows(*spans))
    return found.energy_j, found.error_sampling_j, np.diff(energy_at(spans), axis=1)[:, 0]


@pytest.mark.parametrize("rate_hz", [9.8, 10.2])
def test_errors_hold_though_the_age_of_values_drifts(rate_hz):
    found = [np.array(measure(seed, rate_hz)) for seed in range(12)]
    energy_j, error_j, truth_j = np.concatenate(found, axis=1)
    inside = np.mean(np.abs(energy_j - truth_j) <= error_j)
    assert len(energy_j) >= 200
    assert inside >= 0.93
    assert np.median(np.abs(energy_j - truth_j) / error_j) > 0.1, "errors are too wide"


def run_in_step(seed, rate_hz=10.0):
    """Of a run of 2.6 s whose steps take as long as the sensor's period: joules, error, truth."""
    draw = np.random.default_rng(seed)
    period_s = SENSOR.period_s * draw.uniform(0.985, 1.015)
    busy_s, start_s = draw.uniform(0.4, 0.8) * period_s, 0.15 + draw.uniform(0, 0.1)

    def energy_at(t_s):
        t_s = np.asarray(t_s, float)
        periods, rest_s = np.divmod(np.clip(t_s - start_s, 0.0, 26 * period_s), period_s)
        on_s = periods * busy_s + np.minimum(rest_s, busy_s)
        return IDLE_W * (t_s + 1) + (LOAD_W - IDLE_W) * on_s

    end_s = start_s + 26 * period_s
    fast, _ = lanes(energy_at, end_s + 0.1, SENSOR, rate_hz=rate_hz, seed=seed)
    board = device(SENSOR, maximum_w=1000.0, lag_s=None, counter_period_s=None)
    found = window_energy(board, lane(fast), None, windows((start_s, end_s)))
    truth_j = float(energy_at(end_s) - energy_at(start_s))
    return found.energy_j[0], found.error_sampling_j[0], truth_j


def test_a_load_in_step_with_the_sensor_does_not_blur_what_the_counter_rose_by():
    """Readings then stray from the counter by hundreds of joules; it has the joules all the same.

    What a device draws in a period, half of it at either end, is about 4 % of such a run.
    """
    energy_j, error_j, truth_j = np.array([run_in_step(seed) for seed in range(60)]).T
    assert np.mean(np.abs(energy_j - truth_j) <= error_j) >= 0.93
    assert np.max(error_j / truth_j) < 0.08
