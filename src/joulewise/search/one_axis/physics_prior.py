"""Time and power of a run over a power limit or clock, for any board and load there might be.

The model knows no particular board. A part of the power does not depend on the clock; the cores'
power rises with the clock, steeply while the voltage rises with it, and in proportion below. A part
of the work takes a time that depends on the clock, and the rest does not. During a part of the run
the board draws less. What boards and loads do besides is left to the posterior that builds on this.
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

# The prior of each parameter is uniform in its range. Chosen, so wide that no board or workload is
# ruled out; wider ranges only leave fewer particles where boards are.
_RANGES: Final = (
    (np.log(0.4), np.log(2.0)),  # log of the need: uncapped power or clock over the reference's
    (0.05, 0.6),  # share of that power that does not depend on the clock
    (0.25, 0.95),  # exponent p of clock ~ core power ** p, while the voltage rises
    (0.0, 0.7),  # share of core power below which the voltage is constant, and clock ~ power
    (0.05, 1.0),  # share of the busy part's time that depends on the clock
    (0.0, 0.7),  # share of the run's time in which the board draws less
    (0.1, 1.0),  # power in that part, over that of the busy part
    (0.0, 1.0),  # how far time and power of that part depend on the clock, too
)
DIMENSIONS: Final = len(_RANGES)
_LOW: Final = np.array([low for low, _ in _RANGES])
_WIDTH: Final = np.array([high - low for low, high in _RANGES])
# The least share of core power: no board runs on less, and its logarithm stays finite.
_LEAST_CORE_SHARE: Final = 0.02
# Keeps the quantiles of the normal distribution finite, at 4.8 standard deviations.
_MARGIN: Final = 1e-6


def log_curves(axis: str, positions: Array, points: Array) -> tuple[Array, Array]:
    """Logarithms of time and power over those of an uncapped run; a row for each point.

    A point has a standard normal number for each parameter of the model. ``positions`` are limits
    over the reference's, or clocks over the highest candidate (infinite where not locked).
    """
    parameters = _LOW + _WIDTH * ndtr(points)
    need, fixed, exponent, floor, bound, idle, idle_power, coupling = (
        column[:, None] for column in parameters.T
    )
    need = np.exp(need)
    if axis in CAPS:
        core = np.clip((positions / need - fixed) / (1 - fixed), _LEAST_CORE_SHARE, 1.0)
        clock = _bent_power(core, exponent, floor)
    else:
        clock = np.minimum(positions, need)
        core = _bent_power(clock, 1 / exponent, floor)
    slowdown = 1 / clock - 1
    busy_power = fixed + (1 - fixed) * core
    busy_time = (1 - idle) * (1 + bound * slowdown)
    idle_time = idle * (1 + bound * coupling * slowdown)
    time = busy_time + idle_time
    energy = busy_time * busy_power + idle_time * idle_power * (
        1 - coupling + coupling * busy_power
    )
    return np.log(time), np.log(energy / time)


@lru_cache(maxsize=8)
def sobol_points(count: int) -> Array:
    """Points that fill the space of the prior evenly (Sobol's sequence), always the same."""
    uniform = qmc.Sobol(DIMENSIONS, seed=0).random(count)
    return np.asarray(ndtri(np.clip(uniform, _MARGIN, 1 - _MARGIN)))


def _bent_power(x: Array, exponent: Array, floor: Array) -> Array:
    """A smooth curve: ``x ** exponent`` above ``floor``, in proportion to ``x`` below, 1 at 1."""
    bend = (1 + floor**4) / (1 + np.square(np.square(floor / x)))
    return np.asarray(np.exp(exponent * np.log(x) + (1 - exponent) / 4 * np.log(bend)))
