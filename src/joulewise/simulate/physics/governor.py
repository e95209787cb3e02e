"""The control loop that holds a cap by moving the clock.

It decides once a period, at multiples of it. It looks at the hungriest phase since it last
decided: where that drew more than the cap, it takes back the share ``attack`` of the clock that
is too much; where nothing did, it goes up by the share ``release`` of what is missing to the
clock at which the hungriest phase of the whole step would draw the cap. It remembers that phase,
so it does not rise in a stall between two bursts. Less than half a clock step away it is there:
a change of ``d`` MHz takes ``log(2 d / step) / -log(1 - attack)`` periods (with ``release``
upwards). Then it dithers: some steps of the load at the clock below its aim, some at the one
above, so that their mean time is that at the aim.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from functools import cached_property

from joulewise.simulate.model import Board, Knobs, Load
from joulewise.simulate.physics.scalar import clock_for, core_share, standing_w, stretch
from joulewise.units import NS_PER_S

IDLE, CLOCK_SETTING, POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL = 1, 2, 4, 8, 0x20, 0x40
"""NVML's reasons for a clock below the highest."""

DITHER_ONE = 1 << 32
_SHORTEST_STEP_S = 0.01
_REMEMBERED = 8
_Column = tuple[float, ...]
_Columns = tuple[_Column, _Column, _Column, _Column]


@dataclass(frozen=True)
class StepRates:
    """A step at one clock: of each piece its time, its power (as a float32 holds it), its shares.

    ``throttle`` is why the clock is not the highest, in NVML's bits.
    """

    time_ns: tuple[float, ...]
    power_w: tuple[float, ...]
    busy: tuple[float, ...]
    memory_busy: tuple[float, ...]
    throttle: int

    @cached_property
    def pieces(self) -> tuple[tuple[int, float, float, float], ...]:
        """Of each its time in whole ns, its power, and its shares."""
        columns = (map(round, self.time_ns), self.power_w, self.busy, self.memory_busy)
        return tuple(zip(*columns, strict=True))

    @cached_property
    def step_ns(self) -> int:
        return sum(map(round, self.time_ns))

    @property
    def step_j(self) -> float:
        return sum(t * p for t, p in zip(self.time_ns, self.power_w, strict=True)) / NS_PER_S


@dataclass(frozen=True)
class Aim:
    """What the governor aims at while it holds a load, knobs and a temperature."""

    board: Board
    load: Load
    knobs: Knobs
    time_factor: float
    power_factor: float
    temperature_c: float
    recent: list[Aim] = field(default_factory=list, repr=False, compare=False)
    _rates: dict[float, StepRates] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def other(
        self,
        load: Load,
        knobs: Knobs,
        time_factor: float,
        power_factor: float,
        temperature_c: float,
    ) -> Aim:
        """For another load or other knobs; a few are remembered, since loads take turns."""
        for aim in self.recent:
            same = aim.holds(load, knobs, time_factor, power_factor)
            if same and aim.temperature_c == temperature_c:
                return aim
        aim = Aim(self.board, load, knobs, time_factor, power_factor, temperature_c, self.recent)
        self.recent[:] = [aim, *self.recent[: _REMEMBERED - 1]]
        return aim

    def holds(self, load: Load, knobs: Knobs, time_factor: float, power_factor: float) -> bool:
        return (
            (self.load is load or self.load == load)
            and (self.knobs is knobs or self.knobs == knobs)
            and self.time_factor == time_factor
            and self.power_factor == power_factor
        )

    def at_temperature(self, temperature_c: float) -> Aim:
        """The same on a board that is warmer, or cooler."""
        wanted = (self.board, self.load, self.knobs, self.time_factor, self.power_factor)
        return Aim(*wanted, temperature_c, self.recent)

    @property
    def blurred(self) -> bool:
        """Whether a step is one piece at its mean power, since no sensor could tell its phases."""
        return self.load.time_s < _SHORTEST_STEP_S

    @cached_property
    def top_mhz(self) -> float:
        """The highest clock that lock and heat allow, whatever the power."""
        return min(self._lock_mhz, self._cool_mhz)

    @cached_property
    def caps_mhz(self) -> tuple[float, ...]:
        """For each piece of a step the highest clock at which its phases keep to the cap."""
        headroom_w = self.knobs.limit_w - standing_w(self.board, self.temperature_c)
        clocks, top_mhz = self.board.clocks, self.top_mhz
        caps = []
        for phase in self.load.lasting:
            spare_w = headroom_w - phase.fixed_w * self.power_factor
            core_w = phase.core_w * self.power_factor
            share = spare_w / core_w if core_w > 0.0 else 1.0
            caps.append(min(max(clock_for(clocks, share), clocks.sm_min_mhz), top_mhz))
        return (min(caps),) if self.blurred else tuple(caps)

    @cached_property
    def target_mhz(self) -> float:
        """The equilibrium: the hungriest phase draws the cap."""
        return min(self.caps_mhz)

    @cached_property
    def low_mhz(self) -> float:
        return self.whole_step(self.target_mhz)

    @cached_property
    def high_mhz(self) -> float:
        """The clock step above the target; the target itself where that is a step."""
        if self.low_mhz >= self.target_mhz:
            return self.low_mhz
        return self.whole_step(self.low_mhz + self.board.clocks.sm_step_mhz)

    @cached_property
    def dither(self) -> int:
        """The share of steps at the higher clock, of ``DITHER_ONE``; whole, so that it adds up."""
        low, high = self.low_mhz, self.high_mhz
        if high <= low:
            return 0
        return round(DITHER_ONE * (1 - low / self.target_mhz) / (1 - low / high))

    @property
    def low(self) -> StepRates:
        return self.at(self.low_mhz)

    @property
    def high(self) -> StepRates:
        return self.at(self.high_mhz)

    @cached_property
    def mean_power_w(self) -> float:
        share = self.dither / DITHER_ONE
        energy_j = share * self.high.step_j + (1 - share) * self.low.step_j
        return energy_j * NS_PER_S / (share * self.high.step_ns + (1 - share) * self.low.step_ns)

    @cached_property
    def memory_mhz(self) -> float:
        return memory_clock(self.board, self.knobs, up=True)

    def at(self, clock_mhz: float) -> StepRates:
        rates = self._rates.get(clock_mhz)
        if rates is None:
            rates = self._rates[clock_mhz] = self._work_out(clock_mhz)
        return rates

    def decide(self, aim_mhz: float, seen_mhz: float) -> float:
        """The aim after a decision; ``seen_mhz``: the lowest of ``caps_mhz`` since the last."""
        governor = self.board.governor
        if seen_mhz < aim_mhz:
            goal, share = seen_mhz, governor.attack
        elif self.target_mhz > aim_mhz:
            goal, share = self.target_mhz, governor.release
        else:
            return aim_mhz
        aim_mhz += share * (goal - aim_mhz)
        return goal if abs(goal - aim_mhz) < self.board.clocks.sm_step_mhz / 2 else aim_mhz

    def whole_step(self, clock_mhz: float) -> float:
        """The clock step at or below."""
        clocks = self.board.clocks
        steps = math.ceil((clocks.sm_max_mhz - clock_mhz) / clocks.sm_step_mhz - 1e-9)
        return max(clocks.sm_max_mhz - steps * clocks.sm_step_mhz, clocks.sm_min_mhz)

    def _work_out(self, clock_mhz: float) -> StepRates:
        board, phases = self.board, self.load.lasting
        core = core_share(board.clocks, clock_mhz)
        standing = standing_w(board, self.temperature_c)
        scale_ns = self.time_factor * NS_PER_S
        columns = (
            tuple([scale_ns * p.time_s * stretch(board, p, clock_mhz) for p in phases]),
            tuple([standing + self.power_factor * (p.fixed_w + p.core_w * core) for p in phases]),
            *self.load.busy,
        )
        if self.blurred:
            columns = _mean(columns)
        time_ns, power_w, busy, memory_busy = columns
        stored_w = tuple(array("f", power_w))
        return StepRates(time_ns, stored_w, busy, memory_busy, self._throttle(clock_mhz))

    def _throttle(self, clock_mhz: float) -> int:
        clocks, thermal = self.board.clocks, self.board.thermal
        bits = 0
        if clock_mhz < self.whole_step(self.top_mhz):
            bits |= POWER_CAP
        elif clock_mhz < clocks.sm_max_mhz and self._lock_mhz <= self._cool_mhz:
            bits |= CLOCK_SETTING
        if self.temperature_c > thermal.slowdown_c:
            bits |= SW_THERMAL
        if self.temperature_c >= thermal.shutdown_c:
            bits |= HW_SLOWDOWN | HW_THERMAL
        return bits

    @cached_property
    def _lock_mhz(self) -> float:
        """The highest clock of the lock; its lowest gives way to a cap, as on a real board.

        NVML names clocks in whole MHz, rounded down: 1522 is the step at 1522.5.
        """
        clocks = self.board.clocks
        if self.knobs.sm_lock_mhz is None:
            return clocks.sm_max_mhz
        named_mhz = math.floor(self.knobs.sm_lock_mhz[1]) + 0.999
        return self.whole_step(min(max(named_mhz, clocks.sm_min_mhz), clocks.sm_max_mhz))

    @cached_property
    def _cool_mhz(self) -> float:
        """From the slowdown temperature to that of shutdown the clock falls to the lowest."""
        clocks, thermal = self.board.clocks, self.board.thermal
        hot = (self.temperature_c - thermal.slowdown_c) / (thermal.shutdown_c - thermal.slowdown_c)
        return clocks.sm_max_mhz - min(1.0, max(0.0, hot)) * (clocks.sm_max_mhz - clocks.sm_min_mhz)


def _mean(columns: _Columns) -> _Columns:
    """Times added up, the rest averaged over time."""
    times, *others = columns
    whole = sum(times)
    power_w, busy, memory_busy = (
        (sum(t * v for t, v in zip(times, values, strict=True)) / whole,) for values in others
    )
    return (whole,), power_w, busy, memory_busy


def memory_clock(board: Board, knobs: Knobs, *, up: bool) -> float:
    """The memory's clock: the highest that its lock allows, or the lowest at rest."""
    low, high = knobs.memory_lock_mhz or (0.0, math.inf)
    allowed = [mhz for mhz in board.clocks.memory_mhz if low <= mhz <= high]
    allowed = allowed or list(board.clocks.memory_mhz)
    return max(allowed) if up else min(allowed)
