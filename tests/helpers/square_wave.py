"""A sensor made of nothing but its definition, under a load that goes on and off."""

from dataclasses import dataclass

import numpy as np

from joulewise.calibrate.response import SensorPolls
from joulewise.data import Quantity

LOW_W, SWING_W = 50.0, 120.0


@dataclass(frozen=True)
class Sensor:
    period_s: float = 0.1
    window_s: float = 0.025
    lag_s: float = 0.02
    noise_w: float = 0.3
    quantum_w: float = 0.1


def waves(seconds, shortest_s, longest_s, seed=1, lead_s=1.0):
    draw = np.random.default_rng(seed)
    count = int(2 * seconds / shortest_s)
    lengths = np.exp(draw.uniform(np.log(shortest_s), np.log(longest_s), count))
    edges = lead_s + np.cumsum(lengths)
    edges = edges[: 2 * (np.searchsorted(edges, seconds) // 2)]
    return edges[::2], edges[1::2]


def recorded(
    sensor,
    on_s,
    off_s,
    *,
    polls_s=None,
    rise_s=0.0,
    warming_w=0.0,
    blip_w=0.0,
    seed=1,
    swing_w=SWING_W,
):
    """What polls show; ``rise_s`` is by how much power comes later than the load."""
    draw = np.random.default_rng(seed)
    end_s = off_s[-1] + 0.5
    t_s = np.arange(0, end_s, 0.001) + draw.uniform(0, 0.001) if polls_s is None else polls_s
    edges = np.column_stack([np.minimum(on_s + rise_s, off_s), off_s]).ravel()
    on_so_far = np.concatenate(
        [[0.0], np.cumsum(np.diff(edges) * (np.arange(edges.size - 1) % 2 == 0))]
    )
    first_s = draw.uniform(0, sensor.period_s)
    tick = np.arange(-1, int(end_s / sensor.period_s) + 2)
    tick_s = first_s + tick * sensor.period_s
    to_s = tick_s - sensor.lag_s
    share = np.interp(to_s, edges, on_so_far) - np.interp(to_s - sensor.window_s, edges, on_so_far)
    reading = LOW_W + swing_w * share / sensor.window_s + warming_w * tick_s / end_s
    reading = reading + blip_w * (tick % 37 == 20)
    reading = reading + sensor.noise_w * draw.standard_normal(tick.size)
    if sensor.quantum_w:
        reading = np.rint(reading / sensor.quantum_w) * sensor.quantum_w
    seen = np.floor((t_s - first_s) / sensor.period_s).astype(int) + 1
    return SensorPolls(t_s, {Quantity.POWER: reading[np.maximum(seen, 0)]}, on_s, off_s)
