"""Lanes of a device whose energy is a known function of time, as an ideal sensor would show it."""

from dataclasses import dataclass

import numpy as np

from joulewise.analyse.chunks import ArrayStream
from joulewise.data import DeviceInfo, Kind, SensorProfile, Source
from joulewise.store.manifest import RecordedDevice

S = 10**9
START = 500 * S


@dataclass(frozen=True)
class Sensor:
    period_s: float = 0.02
    window_s: float = 0.01
    lag_s: float = 0.005
    noise_w: float = 0.0

    @property
    def card(self):
        return SensorProfile(self.period_s, self.window_s, self.lag_s, self.period_s)


def device(sensor=None, *, counter=True, maximum_w=300.0, **card):
    names = ("power_w", "energy_j") if counter else ("power_w",)
    return RecordedDevice(
        DeviceInfo("gpu0", Kind.GPU, "a board", "GPU-0", "NVIDIA"),
        dict.fromkeys(names, Source.MEASURED),
        SensorProfile(**{**vars((sensor or Sensor()).card), **card}),
        maximum_w=maximum_w,
    )


def lanes(energy_at, time_s=12.0, sensor=None, *, rate_hz=10.0, seed=0):
    """What polls and the driver's samples are of ``energy_at``, joules up to seconds, as dicts."""
    sensor = sensor or Sensor()
    draw = np.random.default_rng(seed)
    poll_s = np.arange(0.0, time_s, 1 / rate_hz) + draw.uniform(0.001, 0.004)
    tick_s = np.arange(0.0, time_s, sensor.period_s)
    end_s = tick_s - sensor.lag_s
    power_w = (energy_at(end_s) - energy_at(end_s - sensor.window_s)) / sensor.window_s
    power_w = power_w + draw.normal(0.0, sensor.noise_w, len(tick_s))
    shown = np.floor((poll_s + 1e-9) / sensor.period_s).astype(int)
    count_j = np.floor(energy_at(end_s) * 1_000) / 1_000  # as late as the readings
    fast = {"t_ns": ns(poll_s), "power_w": power_w[shown], "energy_j": count_j[shown]}
    return fast, {"t_ns": ns(tick_s), "power_w": power_w}


def ns(time_s):
    return START + np.rint(np.asarray(time_s) * S).astype(np.int64)


def windows(*pairs_s):
    return ns(np.array(pairs_s, float).reshape(-1, 2))


def lane(columns, **options):
    return ArrayStream(columns, **options)


def constant(power_w):
    return lambda t: power_w * (np.asarray(t) + 1.0)


def ramp(first_w, slope_w_per_s):
    return lambda t: (first_w + 0.5 * slope_w_per_s * np.asarray(t)) * np.asarray(t)


def square(low_w, high_w, period_s, duty=0.5):
    def energy_at(t):
        turns, part = np.divmod(np.asarray(t, float) + 10 * period_s, period_s)
        on_s = np.minimum(part, duty * period_s)
        whole = turns * period_s * (duty * high_w + (1 - duty) * low_w)
        return whole + on_s * high_w + (part - on_s) * low_w

    return energy_at
