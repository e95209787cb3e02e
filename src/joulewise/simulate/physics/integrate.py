"""Advances a board through time and records what it did, as pieces of constant power.

:func:`play` is a pure function of a state, a load and control settings. Nothing is hidden: playing
up to a moment and going on from the state that it returns gives, to the nanosecond, what playing on
would have given. So whoever plays ahead and is interrupted plays again from the same state, up to
the interruption.

The method is event-driven: power is constant from one event (end of a phase, decision of the
governor, update of the temperature) to the next, so that energy is exact. Steps of a settled load
repeat, and are computed many at a time.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import numpy as np

from joulewise.simulate.model import Board, BoardUnit, ControlSettings, Load
from joulewise.simulate.physics.board_state import BETWEEN_STEPS, NEVER_NS, State, settled_c
from joulewise.simulate.physics.governor import (
    DITHER_ONE,
    IDLE,
    OperatingPoint,
    memory_clock,
    standing_w,
)
from joulewise.simulate.timeline import PIECE, Timeline, join
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

# From so many steps on, numpy computes them at once. Chosen: about where that becomes faster than a
# loop; the results are the same bits.
_STEPS_AT_ONCE = 16
_P0, _P8 = 0, 8  # NVML's performance states: highest, idle


def repeat_steps(
    point: OperatingPoint, t_ns: int, energy_j: float, dither: int, steps: int
) -> tuple[NDArray[np.void], NDArray[np.int64], float]:
    """The pieces of ``steps`` settled steps, the end of each step, and the energy after the last.

    The sums run in the order in which one step after the other would be played, so that the
    result is the same to the last bit.
    """
    carry = (dither + point.dither * np.arange(steps + 1, dtype=np.int64)) // DITHER_ONE
    fast = carry[1:] - carry[:-1]
    step = np.array([_step(point, point.low_mhz), _step(point, point.high_mhz)], PIECE)
    duration_ns, drawn_j = step["t_ns"], step["energy_j"]
    length = step.shape[1]
    ends_ns = duration_ns.take(fast, axis=0).cumsum() + t_ns
    sums_j = np.concatenate([[energy_j], drawn_j.take(fast, axis=0).reshape(-1)]).cumsum()

    pieces = step.take(fast, axis=0).reshape(-1)
    pieces["t_ns"][0], pieces["t_ns"][1:] = t_ns, ends_ns[:-1]
    pieces["energy_j"] = sums_j[:-1]
    return pieces, ends_ns[length - 1 :: length], float(sums_j[-1])


def _step(point: OperatingPoint, clock_mhz: float) -> list[tuple[float, ...]]:
    """The pieces of one step at a clock, each with its duration and its energy in place of sums."""
    rates = point.rates_at(clock_mhz)
    return [
        (
            *(duration_ns, power_w * (duration_ns * 1e-9), power_w, clock_mhz, point.memory_mhz),
            *(busy, memory_busy, point.temperature_c, rates.throttle, 0),
        )
        for duration_ns, power_w, busy, memory_busy in rates.pieces
    ]


class BoardIntegrator:
    """A :class:`State` that moves through time, and the pieces that it leaves behind.

    Start or stop a load first (``start_load``, ``stop_load``), then ``work`` or ``idle``.
    """

    def __init__(self, board: Board, state: State) -> None:
        self._board = board
        self._period_ns = round(board.governor.period_s * NS_PER_S)
        self._t_ns = state.t_ns
        self._energy_j = state.energy_j
        self._clock_mhz = state.clock_mhz
        self._piece_ns = state.piece_ns
        self._piece_j = state.piece_j
        self._phase = state.phase
        self._done = state.done
        self._governor_mhz = state.governor_mhz
        self._lowest_cap_mhz = state.lowest_cap_mhz
        self._dither = state.dither
        self._up_until_ns = state.up_until_ns
        self._contexts = state.contexts
        self._heat = state.heat
        self._heat_due_ns = state.heat_due_ns
        self._point = state.point
        self._is_piece_recorded = False
        self._rows: list[tuple[float, ...]] = []
        self._parts: list[NDArray[np.void]] = []
        self._ends: list[int] = []
        self._end_parts: list[NDArray[np.int64]] = []

    def state(self) -> State:
        return State(**{name: getattr(self, f"_{name}") for name in State._fields})

    def timeline(self) -> Timeline:
        self._flush()
        ends_ns = self._end_parts
        return Timeline(
            join(self._parts),
            self._t_ns,
            np.concatenate(ends_ns) if len(ends_ns) > 1 else ends_ns[0],
        )

    def stop_load(self, contexts: int) -> None:
        """Idle from here on, with ``contexts`` processes attached; a step in progress is lost."""
        if self._contexts is None:
            self._up_until_ns = self._t_ns + round(self._board.idle.hold_s * NS_PER_S)
        if self._contexts != contexts:
            self._end_piece()
            self._heat_due_ns = self._t_ns
        self._phase = BETWEEN_STEPS
        self._contexts = contexts

    def idle(self, controls: ControlSettings, until_ns: int) -> None:
        """Idle up to ``until_ns``: for a while with clocks up, then with the lowest."""
        thermal = self._board.thermal
        while self._t_ns < until_ns:
            up = self._t_ns < self._up_until_ns
            if not up:
                low_mhz = controls.sm_lock_mhz[0] if controls.sm_lock_mhz else 0.0
                self._clock_mhz = max(low_mhz, self._board.clocks.sm_min_mhz)
                self._governor_mhz = math.inf
            due = self._t_ns >= self._heat_due_ns
            if due:
                self._heat = self._heat.advance(thermal, self._t_ns, self._energy_j)
                self._end_piece()
            power_w = self._idle_w(up=up)
            if due:
                self._heat_due_ns = self._heat.next_update_ns(thermal, power_w)
            memory_mhz = memory_clock(self._board, controls, up=up)
            if up:
                self._record_piece(power_w, memory_mhz, 0.0, 0.0, 0, _P0)
            else:
                self._record_piece(power_w, memory_mhz, 0.0, 0.0, IDLE, _P8)
            stop_ns = min(until_ns, self._heat_due_ns, self._up_until_ns if up else NEVER_NS)
            self._advance_to(stop_ns, power_w)
            if stop_ns == self._up_until_ns:
                self._end_piece()

    def start_load(
        self, load: Load, controls: ControlSettings, time_factor: float, power_factor: float
    ) -> OperatingPoint:
        """Go on with a load, or begin it; its operating point at these controls."""
        before, was_idle = self._point, self._contexts is not None
        same = before is not None and before.matches(load, controls, time_factor, power_factor)
        if before is not None and same and not was_idle:
            return before
        if was_idle or before is None or before.load != load:
            self._phase = BETWEEN_STEPS
        elif self._phase != BETWEEN_STEPS:
            # Other controls within a step: what is done of its phase stays done.
            time_ns = before.rates_at(self._clock_mhz).time_ns[self._phase]
            self._done += (self._t_ns - self._piece_ns) / time_ns
        self._end_piece()
        if before is None or not same:
            self._lowest_cap_mhz = math.inf
            wanted = (load, controls, time_factor, power_factor, self._heat.effective_c)
            before = before.for_load(*wanted) if before else OperatingPoint(self._board, *wanted)
        point = self._update_heat(before)
        if was_idle:
            self._governor_mhz = min(self._governor_mhz, point.top_mhz)
        self._contexts = None
        return point

    def work(self, point: OperatingPoint, until_ns: int, steps: int) -> None:
        """Run the load up to ``until_ns``, or until ``steps`` steps are done."""
        while self._t_ns < until_ns and steps > 0:
            if self._phase == BETWEEN_STEPS:
                if self._t_ns >= self._heat_due_ns:
                    point = self._update_heat(point)
                whole = self._count_whole_steps(point, until_ns, steps)
                if whole >= _STEPS_AT_ONCE:
                    self._repeat_steps(point, whole)
                    steps -= whole
                    continue
                self._begin_step(point)
                if whole:
                    self._run_whole_step(point)
                    steps -= 1
                    continue
            steps -= self._advance(point, until_ns)

    def _update_heat(self, point: OperatingPoint) -> OperatingPoint:
        """Bring heat up to date; a settled governor follows its slow drift without deciding."""
        thermal = self._board.thermal
        self._heat = self._heat.advance(thermal, self._t_ns, self._energy_j)
        if point.temperature_c != self._heat.effective_c:
            before = point
            point = point.at_temperature(self._heat.effective_c)
            is_near = abs(point.target_mhz - self._governor_mhz) < self._board.clocks.sm_step_mhz
            if self._governor_mhz == before.target_mhz and is_near:
                self._governor_mhz = point.target_mhz
        self._heat_due_ns = self._heat.next_update_ns(thermal, point.mean_power_w)
        self._point = point
        return point

    def _count_whole_steps(self, point: OperatingPoint, until_ns: int, steps: int) -> int:
        """How many steps surely begin before the next update of heat and end by ``until_ns``."""
        if self._governor_mhz != point.target_mhz:
            return 0
        step_ns = max(point.low_rates.step_ns, point.high_rates.step_ns)
        fit = (until_ns - self._t_ns) // step_ns
        return min(steps, fit, -((self._t_ns - self._heat_due_ns) // step_ns))

    def _repeat_steps(self, point: OperatingPoint, steps: int) -> None:
        self._flush()
        pieces, ends, energy_j = repeat_steps(
            point, self._t_ns, self._energy_j, self._dither, steps
        )
        self._parts.append(pieces)
        self._end_parts.append(ends)
        self._t_ns, self._energy_j = int(ends[-1]), energy_j
        self._dither = (self._dither + steps * point.dither) % DITHER_ONE
        self._clock_mhz = float(pieces["sm_mhz"][-1])
        self._end_piece()

    def _begin_step(self, point: OperatingPoint) -> None:
        self._clock_mhz = point.floor_to_step(self._governor_mhz)
        if self._governor_mhz == point.target_mhz:
            fast, self._dither = divmod(self._dither + point.dither, DITHER_ONE)
            self._clock_mhz = point.high_mhz if fast else point.low_mhz
        self._phase, self._done = 0, 0.0
        self._end_piece()

    def _run_whole_step(self, point: OperatingPoint) -> None:
        """One step at once: as :meth:`_advance` phase by phase, where no event interrupts it."""
        rates, clocks_mhz = point.rates_at(self._clock_mhz), (self._clock_mhz, point.memory_mhz)
        t_ns, energy_j = self._t_ns, self._energy_j
        for duration_ns, power_w, busy, memory_busy in rates.pieces:
            now = (t_ns, energy_j, power_w, *clocks_mhz, busy, memory_busy)
            self._rows.append((*now, self._heat.effective_c, rates.throttle, _P0))
            t_ns += duration_ns
            energy_j += power_w * (duration_ns * 1e-9)
        self._t_ns, self._energy_j, self._phase = t_ns, energy_j, BETWEEN_STEPS
        self._ends.append(t_ns)
        self._end_piece()

    def _advance(self, point: OperatingPoint, until_ns: int) -> int:
        """Go to the next event: end of the phase, governor's decision or ``until_ns``.

        Returns 1 where that completes a step, else 0.
        """
        phase, rates = self._phase, point.rates_at(self._clock_mhz)
        time_ns, power_w = rates.time_ns[phase], rates.power_w[phase]
        end_ns = self._piece_ns + round((1.0 - self._done) * time_ns)
        stop_ns = min(end_ns, until_ns)
        settled = self._governor_mhz == point.target_mhz
        if not settled:
            decision_ns = (self._t_ns // self._period_ns + 1) * self._period_ns
            stop_ns = min(stop_ns, decision_ns)
            self._lowest_cap_mhz = min(self._lowest_cap_mhz, point.caps_mhz[phase])
        busy, memory_busy = rates.busy[phase], rates.memory_busy[phase]
        self._record_piece(power_w, point.memory_mhz, busy, memory_busy, rates.throttle, _P0)
        self._advance_to(stop_ns, power_w)
        if not settled and stop_ns == decision_ns:
            self._decide(point, time_ns)
        if stop_ns < end_ns:
            return 0
        self._phase, self._done = phase + 1, 0.0
        self._end_piece()
        if self._phase < len(rates.time_ns):
            return 0
        self._phase = BETWEEN_STEPS
        self._ends.append(stop_ns)
        return 1

    def _decide(self, point: OperatingPoint, time_ns: float) -> None:
        self._governor_mhz = point.decide(self._governor_mhz, self._lowest_cap_mhz)
        self._lowest_cap_mhz = math.inf
        clock_mhz = point.floor_to_step(self._governor_mhz)
        if clock_mhz != self._clock_mhz:
            self._done += (self._t_ns - self._piece_ns) / time_ns
            self._clock_mhz = clock_mhz
            self._end_piece()

    def _idle_w(self, *, up: bool) -> float:
        idle = self._board.idle
        if up:
            power_w = standing_w(self._board, self._heat.effective_c)
        else:
            power_w = idle.context_w if self._contexts else idle.asleep_w
        return float(np.float32(power_w))

    def _end_piece(self) -> None:
        """End the current piece: another begins here."""
        self._piece_ns, self._piece_j = self._t_ns, self._energy_j
        self._is_piece_recorded = False

    def _advance_to(self, stop_ns: int, power_w: float) -> None:
        self._t_ns = stop_ns
        self._energy_j = self._piece_j + power_w * ((stop_ns - self._piece_ns) * 1e-9)

    def _record_piece(self, power_w: float, memory_mhz: float, *rest: float) -> None:
        if not self._is_piece_recorded:
            self._is_piece_recorded = True
            now = (self._t_ns, self._energy_j, power_w, self._clock_mhz, memory_mhz)
            busy, memory_busy, throttle, pstate = rest
            self._rows.append((*now, busy, memory_busy, self._heat.effective_c, throttle, pstate))

    def _flush(self) -> None:
        self._parts.append(np.array(self._rows, PIECE))
        self._end_parts.append(np.array(self._ends, np.int64))
        self._rows, self._ends = [], []


# The equilibrium temperature is found to this. Chosen: a hundredth of the step in which power
# follows temperature; half or twice as much moves no power.
_CLOSE_C = 1e-3
# Iterations before bisection takes over. Chosen: as a rule power hardly depends on heat, and each
# iteration leaves a few percent of the error before it. With twice as many the result is the same.
_FIXED_POINT_STEPS = 5


def play(
    unit: BoardUnit,
    state: State,
    load: Load | None,
    controls: ControlSettings,
    *,
    until_ns: int | None = None,
    steps: int | None = None,
    contexts: int = 1,
    time_factor: float = 1.0,
    power_factor: float = 1.0,
) -> tuple[Timeline, State]:
    """What the board does from ``state`` until ``until_ns``, or until ``steps`` steps are done.

    With a load it goes on with the step in progress, which counts as one. Without, it idles, and a
    step in progress is abandoned (an idle of no length does just that). ``contexts`` processes are
    attached to an idle board. The factors scale the load's time and power: the noise of a run.
    """
    integrator = BoardIntegrator(unit.board, state)
    until_ns = NEVER_NS if until_ns is None else until_ns
    if load is None:
        integrator.stop_load(contexts)
        integrator.idle(controls, until_ns)
    else:
        point = integrator.start_load(load, controls, time_factor, power_factor)
        integrator.work(point, until_ns, NEVER_NS if steps is None else steps)
    return integrator.timeline(), integrator.state()


def equilibrium_c(
    unit: BoardUnit,
    load: Load,
    controls: ControlSettings,
    *,
    time_factor: float = 1.0,
    power_factor: float = 1.0,
) -> float:
    """The temperature (degrees Celsius) at which heat and the load's power agree.

    By fixed-point iteration; near the slowdown temperature that may swing, and bisection follows.
    """
    thermal = unit.board.thermal

    def towards_c(now_c: float) -> float:
        point = OperatingPoint(unit.board, load, controls, time_factor, power_factor, now_c)
        return settled_c(thermal, point.mean_power_w)

    now_c = thermal.reference_c
    for _ in range(_FIXED_POINT_STEPS):
        now_c, before_c = towards_c(now_c), now_c
        if abs(now_c - before_c) < _CLOSE_C:
            return now_c
    low_c, high_c = thermal.ambient_c, max(thermal.ambient_c, thermal.shutdown_c)
    while high_c - low_c > _CLOSE_C:
        middle_c = (low_c + high_c) / 2
        if towards_c(middle_c) > middle_c:
            low_c = middle_c
        else:
            high_c = middle_c
    return (low_c + high_c) / 2


def run_factors(seed: int, run_noise: float) -> tuple[float, float]:
    """Factors by which this run differs from the mean of all runs, in time and in power."""
    draw = random.Random(seed)  # noqa: S311  # noise, not a secret
    return math.exp(draw.gauss(0.0, run_noise)), math.exp(draw.gauss(0.0, run_noise))
