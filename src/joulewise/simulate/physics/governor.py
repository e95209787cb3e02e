"""The control loop that holds a power cap by moving the clock.

A proportional controller, fast downwards and slow upwards. It decides once a period, at multiples
of it, from the phase that drew most since its last decision. Where that phase exceeded the cap, the
clock falls by the share ``attack`` of what it is too high. Otherwise it rises by the share
``release`` of the distance to the clock at which the most power-hungry phase of the whole step
draws the cap; it remembers that phase, and so does not rise in a stall between two bursts. Less
than half a clock step from its goal it has settled: a change of ``d`` MHz takes
``log(2 d / step) / -log(1 - attack)`` periods (with ``release`` upwards).

Once settled it dithers: some steps of the load run at the clock step below the target, some at the
one above, so that their mean time is that at the target.

Also the formulas of :mod:`joulewise.simulate.physics.steady_state` for one value at a time.

In plain floats they are ten times faster than numpy is on single values.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field, replace
from functools import cached_property

from joulewise.simulate.model import Board, ClockRange, ControlSettings, Load, Phase
from joulewise.units import NS_PER_S


def core_share(clocks: ClockRange, clock_mhz: float) -> float:
    """Core power relative to that at the highest clock: clock times voltage squared."""
    rise = max(0.0, clock_mhz - clocks.ridge_mhz) / (clocks.sm_max_mhz - clocks.ridge_mhz)
    volt = clocks.floor_v + (1.0 - clocks.floor_v) * rise * rise
    return clock_mhz / clocks.sm_max_mhz * volt * volt


def clock_for(clocks: ClockRange, share: float) -> float:
    """The clock (MHz) at which core power is ``share`` of that at the highest clock.

    Below the ridge the relation is linear; above it Newton's method is used, from the highest clock
    down. Core power is convex in the clock there, so that no iterate passes the root.
    """
    if share >= 1.0:
        return clocks.sm_max_mhz
    clock = max(0.0, share) * clocks.sm_max_mhz / clocks.floor_v**2
    if clock <= clocks.ridge_mhz:
        return clock
    span = clocks.sm_max_mhz - clocks.ridge_mhz
    clock = clocks.sm_max_mhz
    while True:
        rise = (clock - clocks.ridge_mhz) / span
        volt = clocks.floor_v + (1.0 - clocks.floor_v) * rise * rise
        slope = volt * (volt + 4.0 * clock * (1.0 - clocks.floor_v) * rise / span)
        step = (clock * volt * volt - share * clocks.sm_max_mhz) / slope
        clock -= step
        if step < 1e-9 * clock:
            return clock


def stretch(board: Board, phase: Phase, clock_mhz: float) -> float:
    """How much longer a phase takes than at the highest clock."""
    return 1.0 - phase.compute + phase.compute * board.clocks.sm_max_mhz / clock_mhz


def standing_w(board: Board, temperature_c: float) -> float:
    """What is drawn with clocks up whatever runs: idle power with clocks up, and leakage."""
    thermal = board.thermal
    return board.idle.clocks_up_w + thermal.leak_w_per_c * (temperature_c - thermal.reference_c)


IDLE, CLOCK_SETTING, POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL = 1, 2, 4, 8, 0x20, 0x40
"""NVML's reasons for a clock below the highest."""

# One, as a fixed-point number: whole numbers add up exactly, however a run is cut. Chosen; with
# twice as much, shares are finer than any time in whole nanoseconds shows.
DITHER_ONE = 1 << 32
# A step shorter than this is one piece at its mean power. Chosen: the shortest averaging window of
# a simulated sensor (V100), which cannot show its phases. With twice as much, sensors of other
# boards still see the same, and a V100's would see less than a real one.
_SHORTEST_STEP_S = 0.01
# Chosen: how many operating points are cached, since loads that share a GPU take turns. It decides
# about speed alone.
_CACHED_POINTS = 8
_Column = tuple[float, ...]
_Columns = tuple[_Column, _Column, _Column, _Column]


@dataclass(frozen=True)
class StepRates:
    """One step at one clock: time, power (rounded to float32) and utilisation of each piece.

    ``throttle`` is why the clock is not the highest, in NVML's bits.
    """

    time_ns: tuple[float, ...]
    power_w: tuple[float, ...]
    busy: tuple[float, ...]
    memory_busy: tuple[float, ...]
    throttle: int

    @cached_property
    def pieces(self) -> tuple[tuple[int, float, float, float], ...]:
        """(time in whole ns, power, GPU busy share, memory busy share) of each piece."""
        columns = (map(round, self.time_ns), self.power_w, self.busy, self.memory_busy)
        return tuple(zip(*columns, strict=True))

    @cached_property
    def step_ns(self) -> int:
        return sum(map(round, self.time_ns))

    @property
    def step_j(self) -> float:
        return sum(t * p for t, p in zip(self.time_ns, self.power_w, strict=True)) / NS_PER_S


@dataclass(frozen=True)
class OperatingPoint:
    """Where the governor holds a board under a load, control settings and a temperature.

    The factors scale the load's time and power (the noise of a run). ``recent`` is shared by all
    points of a board, as a cache.
    """

    board: Board
    load: Load
    controls: ControlSettings
    time_factor: float
    power_factor: float
    temperature_c: float
    recent: list[OperatingPoint] = field(default_factory=list, repr=False, compare=False)
    _rates: dict[float, StepRates] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def for_load(
        self,
        load: Load,
        controls: ControlSettings,
        time_factor: float,
        power_factor: float,
        temperature_c: float,
    ) -> OperatingPoint:
        """The operating point of another load or other controls, cached."""
        for point in self.recent:
            same = point.matches(load, controls, time_factor, power_factor)
            if same and point.temperature_c == temperature_c:
                return point
        wanted = (load, controls, time_factor, power_factor, temperature_c)
        point = OperatingPoint(self.board, *wanted, self.recent)
        self.recent[:] = [point, *self.recent[: _CACHED_POINTS - 1]]
        return point

    def matches(
        self, load: Load, controls: ControlSettings, time_factor: float, power_factor: float
    ) -> bool:
        return (
            (self.load is load or self.load == load)
            and (self.controls is controls or self.controls == controls)
            and self.time_factor == time_factor
            and self.power_factor == power_factor
        )

    def at_temperature(self, temperature_c: float) -> OperatingPoint:
        """The same on a warmer or cooler board."""
        return replace(self, temperature_c=temperature_c)

    @property
    def is_merged(self) -> bool:
        """Whether a step is one piece at its mean power, since no sensor shows its phases."""
        return self.load.time_s < _SHORTEST_STEP_S

    @cached_property
    def top_mhz(self) -> float:
        """The highest clock that lock and temperature allow, whatever the power."""
        return min(self._lock_mhz, self._thermal_mhz)

    @cached_property
    def caps_mhz(self) -> tuple[float, ...]:
        """For each piece of a step the highest clock at which its phases keep to the cap."""
        headroom_w = self.controls.limit_w - standing_w(self.board, self.temperature_c)
        clocks, top_mhz = self.board.clocks, self.top_mhz
        caps = []
        for phase in self.load.lasting:
            spare_w = headroom_w - phase.fixed_w * self.power_factor
            core_w = phase.core_w * self.power_factor
            share = spare_w / core_w if core_w > 0.0 else 1.0
            caps.append(min(max(clock_for(clocks, share), clocks.sm_min_mhz), top_mhz))
        return (min(caps),) if self.is_merged else tuple(caps)

    @cached_property
    def target_mhz(self) -> float:
        """The equilibrium clock: the most power-hungry phase draws the cap."""
        return min(self.caps_mhz)

    @cached_property
    def low_mhz(self) -> float:
        return self.floor_to_step(self.target_mhz)

    @cached_property
    def high_mhz(self) -> float:
        """The clock step above the target; the target itself where that is a step."""
        if self.low_mhz >= self.target_mhz:
            return self.low_mhz
        return self.floor_to_step(self.low_mhz + self.board.clocks.sm_step_mhz)

    @cached_property
    def dither(self) -> int:
        """The share of steps at the higher clock, of ``DITHER_ONE``; whole, so that it adds up."""
        low, high = self.low_mhz, self.high_mhz
        if high <= low:
            return 0
        return round(DITHER_ONE * (1 - low / self.target_mhz) / (1 - low / high))

    @property
    def low_rates(self) -> StepRates:
        return self.rates_at(self.low_mhz)

    @property
    def high_rates(self) -> StepRates:
        return self.rates_at(self.high_mhz)

    @cached_property
    def mean_power_w(self) -> float:
        share, low, high = self.dither / DITHER_ONE, self.low_rates, self.high_rates
        energy_j = share * high.step_j + (1 - share) * low.step_j
        return energy_j * NS_PER_S / (share * high.step_ns + (1 - share) * low.step_ns)

    @cached_property
    def memory_mhz(self) -> float:
        return memory_clock(self.board, self.controls, up=True)

    def rates_at(self, clock_mhz: float) -> StepRates:
        """One step at a clock (MHz), computed once."""
        rates = self._rates.get(clock_mhz)
        if rates is None:
            rates = self._rates[clock_mhz] = self._compute_rates(clock_mhz)
        return rates

    def decide(self, clock_mhz: float, lowest_cap_mhz: float) -> float:
        """The clock that the governor asks for after a decision, from the one before it.

        ``lowest_cap_mhz`` is the lowest of ``caps_mhz`` among the phases since its last decision.
        """
        governor = self.board.governor
        if lowest_cap_mhz < clock_mhz:
            goal, share = lowest_cap_mhz, governor.attack
        elif self.target_mhz > clock_mhz:
            goal, share = self.target_mhz, governor.release
        else:
            return clock_mhz
        clock_mhz += share * (goal - clock_mhz)
        return goal if abs(goal - clock_mhz) < self.board.clocks.sm_step_mhz / 2 else clock_mhz

    def floor_to_step(self, clock_mhz: float) -> float:
        """The highest clock step that is not above ``clock_mhz``."""
        clocks = self.board.clocks
        steps = math.ceil((clocks.sm_max_mhz - clock_mhz) / clocks.sm_step_mhz - 1e-9)
        return max(clocks.sm_max_mhz - steps * clocks.sm_step_mhz, clocks.sm_min_mhz)

    def _compute_rates(self, clock_mhz: float) -> StepRates:
        board, phases = self.board, self.load.lasting
        core = core_share(board.clocks, clock_mhz)
        standing = standing_w(board, self.temperature_c)
        scale_ns = self.time_factor * NS_PER_S
        columns = (
            tuple([scale_ns * p.time_s * stretch(board, p, clock_mhz) for p in phases]),
            tuple([standing + self.power_factor * (p.fixed_w + p.core_w * core) for p in phases]),
            *self.load.busy,
        )
        if self.is_merged:
            columns = _average_over_time(columns)
        time_ns, power_w, busy, memory_busy = columns
        stored_w = tuple(array("f", power_w))
        return StepRates(time_ns, stored_w, busy, memory_busy, self._throttle(clock_mhz))

    def _throttle(self, clock_mhz: float) -> int:
        clocks, thermal = self.board.clocks, self.board.thermal
        bits = 0
        if clock_mhz < self.floor_to_step(self.top_mhz):
            bits |= POWER_CAP
        elif clock_mhz < clocks.sm_max_mhz and self._lock_mhz <= self._thermal_mhz:
            bits |= CLOCK_SETTING
        if self.temperature_c > thermal.slowdown_c:
            bits |= SW_THERMAL
        if self.temperature_c >= thermal.shutdown_c:
            bits |= HW_SLOWDOWN | HW_THERMAL
        return bits

    @cached_property
    def _lock_mhz(self) -> float:
        """The highest clock of the lock; a power cap goes below its lowest, as on a real board.

        NVML names clocks in whole MHz, rounded down: 1522 is the step at 1522.5 MHz.
        """
        clocks = self.board.clocks
        if self.controls.sm_lock_mhz is None:
            return clocks.sm_max_mhz
        named_mhz = math.floor(self.controls.sm_lock_mhz[1]) + 0.999
        return self.floor_to_step(min(max(named_mhz, clocks.sm_min_mhz), clocks.sm_max_mhz))

    @cached_property
    def _thermal_mhz(self) -> float:
        """The highest clock by temperature.

        From the slowdown temperature to that of shutdown it falls linearly to the lowest.
        """
        clocks, thermal = self.board.clocks, self.board.thermal
        hot = (self.temperature_c - thermal.slowdown_c) / (thermal.shutdown_c - thermal.slowdown_c)
        return clocks.sm_max_mhz - min(1.0, max(0.0, hot)) * (clocks.sm_max_mhz - clocks.sm_min_mhz)


def _average_over_time(columns: _Columns) -> _Columns:
    """One piece for several: the sum of their times, and the means over time of the rest."""
    times, *others = columns
    total = sum(times)
    power_w, busy, memory_busy = (
        (sum(t * v for t, v in zip(times, values, strict=True)) / total,) for values in others
    )
    return (total,), power_w, busy, memory_busy


def memory_clock(board: Board, controls: ControlSettings, *, up: bool) -> float:
    """The memory's clock (MHz): the highest that its lock allows, or the lowest at rest."""
    low, high = controls.memory_lock_mhz or (0.0, math.inf)
    allowed = [mhz for mhz in board.clocks.memory_mhz if low <= mhz <= high]
    allowed = allowed or list(board.clocks.memory_mhz)
    return max(allowed) if up else min(allowed)
