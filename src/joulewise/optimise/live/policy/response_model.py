"""Time and energy of a training step over power limits and clocks, for any board and load.

A family of physical curves; its parameters have wide priors that are fitted to no board:

- Power of the busy part at a clock f (a share of the highest): ``D (s + (1 - s) f v(f)²/v(1)²)``,
  the CMOS law with the voltage ``v = 1 + a x + b x²``, where x is how far f is above a clock r: it
  is constant below (Mei, Wang and Chu, "A survey and measurement study of GPU DVFS on energy
  conservation", 2017), and rises the steeper the nearer the cores are to their limit.
- A power limit L holds the highest clock whose power is at most L, but none below a floor.
- Time of the busy part: ``((1 - c)^p + (c/f)^p)^(1/p)``, with c the share of the work that depends
  on the clock. At p = 1 that and the rest follow each other; the larger p, the more they overlap,
  up to the slower of the two (Williams, Waterman and Patterson, "Roofline", 2009).
- Beside it, a time h that no setting changes, at a power of its own (the host, memory-bound work).
- A lower memory clock stretches a part of ``1 - c`` and lowers a part of the static power.

What boards do besides is left to the discrepancy of ``posterior``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# The prior of each parameter is uniform in its range. Chosen from what the physics allows, so wide
# that no board or load is ruled out; twice as wide leaves fewer particles where boards are.
_LOG_DEMAND: Final = (np.log(0.35), np.log(2.0))  # power at the top clock over the highest limit
_STATIC_SHARE: Final = (0.05, 0.6)  # of that power, what does not depend on the clock
_VOLTAGE_KNEE: Final = (0.2, 1.0)  # the clock r from which the voltage rises
_VOLTAGE_SLOPE: Final = (0.0, 2.0)  # a, in shares of the least voltage per share of the clock
_VOLTAGE_BEND: Final = (0.0, 2.0)  # b, likewise; without it, power is off by 1 to 2 %
_CLOCK_SHARE: Final = (0.03, 1.0)  # c, of the busy time at the top clock
_CLOCK_FLOOR: Final = (0.05, 0.45)  # the lowest clock to which a limit lowers it
# h, over the busy time at the top clock; below 0, as of two loads in five, it is 0: chosen, since
# a well-fed GPU waits for nothing
_UNTOUCHED_TIME: Final = (-2 / 3, 1.0)
_UNTOUCHED_POWER: Final = (0.1, 0.8)  # its power over D
_MEMORY_TIME: Final = (0.0, 1.0)  # of 1 - c, what depends on the memory clock
_MEMORY_POWER: Final = (0.0, 0.6)  # of the static power, what depends on the memory clock
# 1/p: from one after the other to a time that is within a fifth of the slower of the two. Chosen:
# from 0.5 on, a tuning of both axes takes as many steps.
_OVERLAP: Final = (0.3, 1.0)
PARAMETERS: Final = 12  # of a load
# Newton's method from above on a convex function: seven leave an error below 1e-8 (computed).
_NEWTON_ITERATIONS: Final = 7


@dataclass(frozen=True, order=True)
class TuningCandidate:
    """A setting that may be tried; None leaves a control as it is without the tuner."""

    power_limit_w: float | None = None
    sm_clock_mhz: float | None = None
    mem_clock_mhz: float | None = None


@dataclass(frozen=True)
class Positions:
    """Candidates as shares of the highest limit and clocks, an array each; not set is 1."""

    limit: Array
    clock: Array
    memory: Array

    @classmethod
    def of(cls, candidates: Sequence[TuningCandidate]) -> Positions:
        return cls(
            _shares([candidate.power_limit_w for candidate in candidates]),
            _shares([candidate.sm_clock_mhz for candidate in candidates]),
            _shares([candidate.mem_clock_mhz for candidate in candidates]),
        )

    @property
    def axes(self) -> int:
        """On how many of them the candidates differ."""
        return sum(int(np.ptp(axis) > 0) for axis in (self.limit, self.clock, self.memory))

    def select(self, at: NDArray[np.int64]) -> Positions:
        return Positions(self.limit[at], self.clock[at], self.memory[at])


@dataclass(frozen=True)
class LoadCurves:
    """Logarithms of time and power of loads (rows) at every candidate (columns).

    ``clock`` is at which the board runs, as a share of the highest, by the lock or the limit.
    """

    log_time: Array
    log_power: Array
    clock: Array


def curves_of(loads: Array, positions: Positions) -> LoadCurves:
    """The curves of loads, a row each: a point of the unit cube, in which the prior is uniform."""
    columns = iter(loads.T[:, :, None])

    def scaled(limits: tuple[float, float]) -> Array:
        return np.asarray(limits[0] + (limits[1] - limits[0]) * next(columns))

    demand, static = np.exp(scaled(_LOG_DEMAND)), scaled(_STATIC_SHARE)
    voltage = VoltageCurves(scaled(_VOLTAGE_KNEE), scaled(_VOLTAGE_SLOPE), scaled(_VOLTAGE_BEND))
    share, floor = scaled(_CLOCK_SHARE), scaled(_CLOCK_FLOOR)
    untouched_time = np.maximum(scaled(_UNTOUCHED_TIME), 0.0)
    untouched_power = scaled(_UNTOUCHED_POWER)
    memory_time, memory_power = scaled(_MEMORY_TIME), scaled(_MEMORY_POWER)
    overlap = 1 / scaled(_OVERLAP)

    static_now = static * (1 - memory_power * (1 - positions.memory))
    dynamic_limit = (positions.limit / demand - static_now) / (1 - static)
    held = np.maximum(_clock_at(dynamic_limit, voltage), floor)
    clock = np.minimum(positions.clock, held)
    busy_power = static_now + (1 - static) * _dynamic_power(clock, voltage)
    memory_bound = (1 - share) * (1 + memory_time * (1 / positions.memory - 1))
    busy_time = (memory_bound**overlap + (share / clock) ** overlap) ** (1 / overlap)
    time = busy_time + untouched_time
    power = (busy_power * busy_time + untouched_power * untouched_time) / time
    return LoadCurves(np.log(time), np.log(power), clock)


def _shares(values: Sequence[float | None]) -> Array:
    highest = max((value for value in values if value is not None), default=1.0)
    return np.array([1.0 if value is None else value / highest for value in values])


@dataclass(frozen=True)
class VoltageCurves:
    """The voltages of loads (rows) over the clock: 1 up to the knee, and rising from there."""

    knee: Array
    slope: Array
    bend: Array

    def at(self, clock: Array) -> tuple[Array, Array]:
        """The voltage at a clock, and how steep it is there."""
        above = np.maximum(clock - self.knee, 0.0)
        voltage = 1.0 + above * (self.slope + self.bend * above)
        return voltage, self.slope + 2 * self.bend * above


def _dynamic_power(clock: Array, curves: VoltageCurves) -> Array:
    """Power of the cores at a clock, over that at the highest: f v(f)²/v(1)²."""
    voltage, _ = curves.at(clock)
    highest, _ = curves.at(np.ones(1))
    return np.asarray(clock * (voltage / highest) ** 2)


def _clock_at(power: Array, curves: VoltageCurves) -> Array:
    """The clock at which the cores draw ``power``: the inverse of :func:`_dynamic_power`."""
    highest, _ = curves.at(np.ones(1))
    wanted = np.clip(power, 0.0, 1.0) * highest**2
    clock = np.ones_like(curves.knee)
    for _ in range(_NEWTON_ITERATIONS):
        voltage, slope = curves.at(clock)
        excess = clock * voltage**2 - wanted
        clock = np.maximum(clock - excess / (voltage * (voltage + 2 * slope * clock)), curves.knee)
    return np.where(wanted <= curves.knee, wanted, clock)
