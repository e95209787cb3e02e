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
    fast = carry[1:] - carry[:-1]
    step = np.array([_step(aim, aim.low_mhz), _step(aim, aim.high_mhz)], PIECE)
    lasting_ns, drawn_j = step["t_ns"], step["energy_j"]
    length = step.shape[1]
    ends_ns = lasting_ns.take(fast, axis=0).cumsum() + t_ns
    sums_j = np.concatenate([[energy_j], drawn_j.take(fast, axis=0).reshape(-1)]).cumsum()

    pieces = step.take(fast, axis=0).reshape(-1)
    pieces["t_ns"][0], pieces["t_ns"][1:] = t_ns, ends_ns[:-1]
    pieces["energy_j"] = sums_j[:-1]
    return pieces, ends_ns[length - 1 :: length], float(sums_j[-1])


def _step(aim: Aim, clock_mhz: float) -> list[tuple[float, ...]]:
    """The pieces of one step at a clock, each with its own time and energy."""
    rates = aim.at(clock_mhz)
    return [
        (
            *(lasting_ns, power_w * (lasting_ns * 1e-9), power_w, clock_mhz, aim.memory_mhz),
            *(busy, memory_busy, aim.temperature_c, rates.throttle, 0),
        )
        for lasting_ns, power_w, busy, memory_busy in rates.pieces
    ]
