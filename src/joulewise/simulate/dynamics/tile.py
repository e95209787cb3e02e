"""Many steps of a settled load at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from joulewise.simulate.dynamics.governor import DITHER_ONE, Aim
from joulewise.simulate.timeline import PIECE

if TYPE_CHECKING:
    from numpy.typing import NDArray


def tile(
    aim: Aim, t_ns: int, energy_j: float, dither: int, steps: int
) -> tuple[NDArray[np.void], NDArray[np.int64], float]:
    """The pieces of ``steps`` steps, the end of each step, and the energy after the last.

    The sums run in the order in which one step after the other would be played, so that the
    result is the same to the last bit.
    """
    carry = (dither + aim.dither * np.arange(steps + 1, dtype=np.int64)) // DITHER_ONE
    fast = np.diff(carry)
    time_ns = np.rint([aim.low.time_ns, aim.high.time_ns]).astype(np.int64)
    power_w = np.array([aim.low.power_w, aim.high.power_w])
    length = time_ns.shape[1]
    sums_ns = np.cumsum(time_ns[fast])
    sums_j = np.cumsum(np.append(energy_j, (power_w * (time_ns * 1e-9))[fast]))

    pieces = np.empty((steps, length), PIECE)
    flat = pieces.reshape(-1)
    flat["t_ns"][0] = t_ns
    flat["t_ns"][1:] = sums_ns[:-1] + t_ns
    flat["energy_j"] = sums_j[:-1]
    pieces["power_w"] = power_w[fast]
    pieces["sm_mhz"] = np.array([aim.low_mhz, aim.high_mhz])[fast, None]
    pieces["throttle"] = np.array([aim.low.throttle, aim.high.throttle])[fast, None]
    pieces["memory_mhz"] = aim.memory_mhz
    pieces["busy"] = np.array([aim.low.busy, aim.high.busy])[fast]
    pieces["memory_busy"] = np.array([aim.low.memory_busy, aim.high.memory_busy])[fast]
    pieces["temperature_c"] = aim.temperature_c
    pieces["pstate"] = 0
    return flat, sums_ns[length - 1 :: length] + t_ns, float(sums_j[-1])
