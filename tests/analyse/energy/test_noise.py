"""How far noise of the readings puts joules off, where no counter knows better."""

import numpy as np
import pytest

from joulewise.analyse.energy.windows import window_energy
from tests.helpers.ideal_sensors import Sensor, constant, device, lane, lanes, ns, windows

PASCAL = Sensor(noise_w=0.3)
TURING = Sensor(0.1, 0.1, 0.02, noise_w=0.3)
AMPERE = Sensor(0.1, 0.025, 0.02, noise_w=0.3)
LENGTHS_S = np.array([0.3, 0.5, 1.0, 2.0, 5.0])
POWER_W = 100.0
SEEDS = 400
EACH = 2


def measure(power_w, sensor, *pairs_s):
    columns = {"t_ns": ns(np.arange(len(power_w)) * sensor.period_s), "power_w": power_w}
    return window_energy(device(sensor, counter=False), lane(columns), None, windows(*pairs_s))


def measure_many(sensor, rate_hz, *, buffer, time_s=12.0, lengths_s=LENGTHS_S):
    """How far windows of each length are off over many draws of noise, and what is stated."""
    off_j, stated_j = [], []
    for seed in range(SEEDS):
        fast, samples = lanes(constant(POWER_W), time_s, sensor, rate_hz=rate_hz, seed=seed)
        del fast["energy_j"]
        duration_s = np.tile(lengths_s, EACH)
        start_s = np.random.default_rng(seed + SEEDS).uniform(0.2, time_s - 0.2 - duration_s)
        energy = window_energy(
            device(sensor, counter=False),
            lane(fast),
            lane(samples) if buffer else None,
            windows(np.stack([start_s, start_s + duration_s], axis=1)),
        )
        off_j.append(np.abs(energy.energy_j - POWER_W * duration_s))
        stated_j.append(energy.error_sampling_j)
    return np.reshape(off_j, (-1, len(lengths_s))), np.reshape(stated_j, (-1, len(lengths_s)))


@pytest.mark.parametrize("sensor", [PASCAL, TURING, AMPERE])
@pytest.mark.parametrize(
    ("rate_hz", "buffer"), [(10.0, True), (10.0, False), (37.0, False), (100.0, False)]
)
def test_the_error_holds_however_few_readings_a_window_has(sensor, rate_hz, buffer):
    off_j, stated_j = measure_many(sensor, rate_hz, buffer=buffer)
    inside = np.mean(off_j <= stated_j, axis=0)
    assert inside.mean() > 0.93
    # Three standard deviations below 95 % of so many windows.
    assert inside.min() > 0.927
    assert np.all(np.median(stated_j, axis=0) < 1.3 * np.quantile(off_j, 0.95, axis=0))


def test_the_error_holds_though_there_are_few_readings_in_all():
    lengths_s = np.array([0.5, 0.8, 1.1])
    off_j, stated_j = measure_many(TURING, 10.0, buffer=True, time_s=1.6, lengths_s=lengths_s)
    assert np.mean(off_j <= stated_j) > 0.93


@pytest.mark.parametrize("sensor", [PASCAL, TURING])
def test_a_pause_is_as_quiet_beside_a_noisy_load(sensor):
    noise = np.random.default_rng(1).normal(0.0, 1.0, 1_000)
    busy = (np.arange(1_000) // 50) % 3 > 0
    pauses_s = np.array([(155, 165), (305, 320), (455, 495)]) * sensor.period_s
    alone = measure(50.0 + 0.3 * noise, sensor, *pauses_s)
    beside = measure(np.where(busy, 200.0 + 15.0 * noise, 50.0 + 0.3 * noise), sensor, *pauses_s)
    assert np.all(beside.error_sampling_j < 1.3 * alone.error_sampling_j)


def test_a_jump_beside_a_window_does_not_widen_its_error():
    power_w = POWER_W + np.random.default_rng(2).normal(0.0, 0.3, 200)
    jumps_w = 40.0 * (np.arange(200) // 16 % 2)
    pairs_s = [(first / 10, (first + 5) / 10) for first in range(53, 160, 16)]
    steady, jumping = (
        measure(readings_w, TURING, *pairs_s).error_sampling_j
        for readings_w in (power_w, power_w + jumps_w)
    )
    assert np.median(jumping / steady) < 1.3


def test_steps_that_are_all_alike_are_no_larger_than_they_are():
    """Of a sensor that rounds, and goes to and fro between two values."""
    power_w = POWER_W + (np.arange(200) // 2 % 2)
    energy = measure(power_w, TURING, (5.02, 15.02))
    readings = 100 / 2
    assert energy.error_sampling_j[0] == pytest.approx(1.96 * 0.1 * np.sqrt(readings / 2), rel=0.1)


def test_what_is_usual_around_a_window_is_so_across_chunks():
    fast, _ = lanes(constant(POWER_W), sensor=TURING, rate_hz=100.0)
    del fast["energy_j"]
    pairs_s = windows(*((start_s, start_s + 0.3) for start_s in np.arange(0.5, 11.0, 0.1)))
    whole, torn = (
        window_energy(device(TURING, counter=False), lane(fast, chunk_rows=rows), None, pairs_s)
        for rows in (1 << 18, 100)
    )
    assert torn.error_sampling_j == pytest.approx(whole.error_sampling_j, rel=1e-9)
