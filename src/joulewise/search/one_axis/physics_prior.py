"""How time and power go with a power limit or a clock, for any board and load there might be.

The shape is that of physics and knows no board: power that does not go with the clock, cores whose
power rises with the clock (steeply while voltage rises with it, in proportion below), work whose
time goes with the clock and work whose time does not, and a part of the run that draws less. What
boards and loads do besides is left to the belief that builds on these curves.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

from joulewise.data.sweeps import CPU_LIMIT, MEM_CLOCK, POWER_LIMIT, SM_CLOCK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

CAPS: Final = (POWER_LIMIT, CPU_LIMIT)
CLOCKS: Final = (SM_CLOCK, MEM_CLOCK)

_RANGES: Final = (
    (np.log(0.4), np.log(2.0)),  # of the need: the hungriest part, uncapped, over the reference
    (0.05, 0.6),  # of the need's share that does not go with the clock
    (0.25, 0.95),  # of the power of core power that the clock goes with, while voltage rises
    (0.0, 0.7),  # of the share of core power below which voltage rests, and the clock goes with it
    (0.05, 1.0),  # of the share of the hungry part's time that goes with the clock
    (0.0, 0.7),  # of the share of the run's time in which it draws less
    (0.1, 1.0),  # of the power then, over that of the hungry part
    (0.0, 1.0),  # of how far time and power of that part go with the clock, too
)
DIMENSIONS: Final = len(_RANGES)
_LOW: Final = np.array([low for low, _ in _RANGES])
_WIDTH: Final = np.array([high - low for low, high in _RANGES])
_LEAST_CORE: Final = 0.02


def curves(axis: str, where: Array, points: Array) -> tuple[Array, Array]:
    """Logarithms of time and power over those of an uncapped run, a row a point.

    A point is one world that may be: a standard normal number for each of its traits. ``where`` are
    limits over the reference's, or clocks over the highest that is asked about (infinite: free).
    """
    traits = _LOW + _WIDTH * ndtr(points)
    need, fixed, power, rest, bound, idle, low, along = (column[:, None] for column in traits.T)
    need = np.exp(need)
    if axis in CAPS:
        core = np.clip((where / need - fixed) / (1 - fixed), _LEAST_CORE, 1.0)
        clock = _bent(core, power, rest)
    else:
        clock = np.minimum(where, need)
        core = _bent(clock, 1 / power, rest)
    slower = 1 / clock - 1
    hungry = fixed + (1 - fixed) * core
    hungry_s = (1 - idle) * (1 + bound * slower)
    other_s = idle * (1 + bound * along * slower)
    time = hungry_s + other_s
    drawn = hungry_s * hungry + other_s * low * (1 - along + along * hungry)
    return np.log(time), np.log(drawn / time)


@lru_cache(maxsize=8)
def spread(count: int) -> Array:
    """Points that fill the space of worlds evenly, the same ones each time."""
    even = qmc.Sobol(DIMENSIONS, seed=0).random(count)
    return np.asarray(ndtri(np.clip(even, 1e-6, 1 - 1e-6)))


def _bent(x: Array, power: Array, rest: Array) -> Array:
    """As ``x ** power`` above ``rest``, in proportion to ``x`` below, and 1 at 1."""
    bend = (1 + rest**4) / (1 + np.square(np.square(rest / x)))
    return np.asarray(np.exp(power * np.log(x) + (1 - power) / 4 * np.log(bend)))
