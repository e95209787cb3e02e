"""A state on its way through time, and the pieces that it leaves behind.

A board in time: a pure function from a state, a load and knobs to what the board did.

Nothing is hidden: playing up to a moment and going on from the state that came out gives, to the
nanosecond, what playing on would have given. So whoever plays ahead and is interrupted plays
again from the same state, up to the interruption.

Many steps of a settled load at once.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import numpy as np

from joulewise.simulate.model import Board, BoardUnit, Knobs, Load
from joulewise.simulate.physics.board_state import BETWEEN_STEPS, NEVER_NS, State, rest, settled_c
from joulewise.simulate.physics.governor import DITHER_ONE, IDLE, Aim, memory_clock
from joulewise.simulate.physics.scalar import standing_w
from joulewise.simulate.timeline import PIECE, Timeline, join
from joulewise.units import NS_PER_S

__all__ = ["BETWEEN_STEPS", "State", "equilibrium_c", "play", "rest", "run_factors"]

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


if TYPE_CHECKING:
    from numpy.typing import NDArray

_TILED_STEPS = 16
_P0, _P8 = 0, 8


class Player:
    """A :class:`State` that moves: it takes up a load or puts it down, then plays."""

    def __init__(self, board: Board, state: State) -> None:
        self._board = board
        self._period_ns = round(board.governor.period_s * NS_PER_S)
        self._t_ns, self._energy_j, self._clock_mhz, self._piece_ns, self._piece_j = state[:5]
        self._phase, self._done, self._aim_mhz, self._seen_mhz, self._dither = state[5:10]
        self._up_until_ns, self._contexts, self._heat, self._heat_due_ns, self._aim = state[10:]
        self._shown = False
        self._rows: list[tuple[float, ...]] = []
        self._parts: list[NDArray[np.void]] = []
        self._ends: list[int] = []
        self._end_parts: list[NDArray[np.int64]] = []

    def state(self) -> State:
        return State(
            self._t_ns,
            self._energy_j,
            self._clock_mhz,
            self._piece_ns,
            self._piece_j,
            self._phase,
            self._done,
            self._aim_mhz,
            self._seen_mhz,
            self._dither,
            self._up_until_ns,
            self._contexts,
            self._heat,
            self._heat_due_ns,
            self._aim,
        )

    def timeline(self) -> Timeline:
        self._flush()
        ends_ns = self._end_parts
        return Timeline(
            join(self._parts),
            self._t_ns,
            np.concatenate(ends_ns) if len(ends_ns) > 1 else ends_ns[0],
        )

    def put_down(self, contexts: int) -> None:
        if self._contexts is None:
            self._up_until_ns = self._t_ns + round(self._board.idle.hold_s * NS_PER_S)
        if self._contexts != contexts:
            self._cut()
            self._heat_due_ns = self._t_ns
        self._phase = BETWEEN_STEPS
        self._contexts = contexts

    def idle(self, knobs: Knobs, until_ns: int) -> None:
        thermal = self._board.thermal
        while self._t_ns < until_ns:
            up = self._t_ns < self._up_until_ns
            if not up:
                low_mhz = knobs.sm_lock_mhz[0] if knobs.sm_lock_mhz else 0.0
                self._clock_mhz = max(low_mhz, self._board.clocks.sm_min_mhz)
                self._aim_mhz = math.inf
            due = self._t_ns >= self._heat_due_ns
            if due:
                self._heat = self._heat.after(thermal, self._t_ns, self._energy_j)
                self._cut()
            power_w = self._idle_w(up=up)
            if due:
                self._heat_due_ns = self._heat.due_ns(thermal, power_w)
            memory_mhz = memory_clock(self._board, knobs, up=up)
            if up:
                self._show(power_w, memory_mhz, 0.0, 0.0, 0, _P0)
            else:
                self._show(power_w, memory_mhz, 0.0, 0.0, IDLE, _P8)
            stop_ns = min(until_ns, self._heat_due_ns, self._up_until_ns if up else NEVER_NS)
            self._go(stop_ns, power_w)
            if stop_ns == self._up_until_ns:
                self._cut()

    def take_up(self, load: Load, knobs: Knobs, time_factor: float, power_factor: float) -> Aim:
        before, idle = self._aim, self._contexts is not None
        same = before is not None and before.holds(load, knobs, time_factor, power_factor)
        if before is not None and same and not idle:
            return before
        if idle or before is None or before.load != load:
            self._phase = BETWEEN_STEPS
        elif self._phase != BETWEEN_STEPS:
            time_ns = before.at(self._clock_mhz).time_ns[self._phase]
            self._done += (self._t_ns - self._piece_ns) / time_ns
        self._cut()
        if before is None or not same:
            self._seen_mhz = math.inf
            wanted = (load, knobs, time_factor, power_factor, self._heat.felt_c)
            before = before.other(*wanted) if before else Aim(self._board, *wanted)
        aim = self._feel(before)
        if idle:
            self._aim_mhz = min(self._aim_mhz, aim.top_mhz)
        self._contexts = None
        return aim

    def work(self, aim: Aim, until_ns: int, steps: int) -> None:
        while self._t_ns < until_ns and steps > 0:
            if self._phase == BETWEEN_STEPS:
                if self._t_ns >= self._heat_due_ns:
                    aim = self._feel(aim)
                whole = self._whole_steps(aim, until_ns, steps)
                if whole >= _TILED_STEPS:
                    self._tile(aim, whole)
                    steps -= whole
                    continue
                self._begin_step(aim)
                if whole:
                    self._whole_step(aim)
                    steps -= 1
                    continue
            steps -= self._advance(aim, until_ns)

    def _feel(self, aim: Aim) -> Aim:
        """Bring heat up to date; a settled governor follows its slow drift without deciding."""
        thermal = self._board.thermal
        self._heat = self._heat.after(thermal, self._t_ns, self._energy_j)
        if aim.temperature_c != self._heat.felt_c:
            before = aim
            aim = aim.at_temperature(self._heat.felt_c)
            near = abs(aim.target_mhz - self._aim_mhz) < self._board.clocks.sm_step_mhz
            if self._aim_mhz == before.target_mhz and near:
                self._aim_mhz = aim.target_mhz
        self._heat_due_ns = self._heat.due_ns(thermal, aim.mean_power_w)
        self._aim = aim
        return aim

    def _whole_steps(self, aim: Aim, until_ns: int, steps: int) -> int:
        """How many steps will surely begin before heat is due and end in time."""
        if self._aim_mhz != aim.target_mhz:
            return 0
        step_ns = max(aim.low.step_ns, aim.high.step_ns)
        in_time = (until_ns - self._t_ns) // step_ns
        return min(steps, in_time, -((self._t_ns - self._heat_due_ns) // step_ns))

    def _tile(self, aim: Aim, steps: int) -> None:
        self._flush()
        pieces, ends, energy_j = tile(aim, self._t_ns, self._energy_j, self._dither, steps)
        self._parts.append(pieces)
        self._end_parts.append(ends)
        self._t_ns, self._energy_j = int(ends[-1]), energy_j
        self._dither = (self._dither + steps * aim.dither) % DITHER_ONE
        self._clock_mhz = float(pieces["sm_mhz"][-1])
        self._cut()

    def _begin_step(self, aim: Aim) -> None:
        self._clock_mhz = aim.whole_step(self._aim_mhz)
        if self._aim_mhz == aim.target_mhz:
            fast, self._dither = divmod(self._dither + aim.dither, DITHER_ONE)
            self._clock_mhz = aim.high_mhz if fast else aim.low_mhz
        self._phase, self._done = 0, 0.0
        self._cut()

    def _whole_step(self, aim: Aim) -> None:
        """As :meth:`_advance` does phase by phase, where nothing can come between."""
        rates, clocks_mhz = aim.at(self._clock_mhz), (self._clock_mhz, aim.memory_mhz)
        t_ns, energy_j = self._t_ns, self._energy_j
        for lasting_ns, power_w, busy, memory_busy in rates.pieces:
            now = (t_ns, energy_j, power_w, *clocks_mhz, busy, memory_busy)
            self._rows.append((*now, self._heat.felt_c, rates.throttle, _P0))
            t_ns += lasting_ns
            energy_j += power_w * (lasting_ns * 1e-9)
        self._t_ns, self._energy_j, self._phase = t_ns, energy_j, BETWEEN_STEPS
        self._ends.append(t_ns)
        self._cut()

    def _advance(self, aim: Aim, until_ns: int) -> int:
        """To the end of the phase, the governor's decision or the end; 1 where a step is done."""
        phase, rates = self._phase, aim.at(self._clock_mhz)
        time_ns, power_w = rates.time_ns[phase], rates.power_w[phase]
        end_ns = self._piece_ns + round((1.0 - self._done) * time_ns)
        stop_ns = min(end_ns, until_ns)
        settled = self._aim_mhz == aim.target_mhz
        if not settled:
            decision_ns = (self._t_ns // self._period_ns + 1) * self._period_ns
            stop_ns = min(stop_ns, decision_ns)
            self._seen_mhz = min(self._seen_mhz, aim.caps_mhz[phase])
        busy, memory_busy = rates.busy[phase], rates.memory_busy[phase]
        self._show(power_w, aim.memory_mhz, busy, memory_busy, rates.throttle, _P0)
        self._go(stop_ns, power_w)
        if not settled and stop_ns == decision_ns:
            self._decide(aim, time_ns)
        if stop_ns < end_ns:
            return 0
        self._phase, self._done = phase + 1, 0.0
        self._cut()
        if self._phase < len(rates.time_ns):
            return 0
        self._phase = BETWEEN_STEPS
        self._ends.append(stop_ns)
        return 1

    def _decide(self, aim: Aim, time_ns: float) -> None:
        self._aim_mhz = aim.decide(self._aim_mhz, self._seen_mhz)
        self._seen_mhz = math.inf
        clock_mhz = aim.whole_step(self._aim_mhz)
        if clock_mhz != self._clock_mhz:
            self._done += (self._t_ns - self._piece_ns) / time_ns
            self._clock_mhz = clock_mhz
            self._cut()

    def _idle_w(self, *, up: bool) -> float:
        idle = self._board.idle
        if up:
            power_w = standing_w(self._board, self._heat.felt_c)
        else:
            power_w = idle.context_w if self._contexts else idle.asleep_w
        return float(np.float32(power_w))

    def _cut(self) -> None:
        """Another piece begins here."""
        self._piece_ns, self._piece_j = self._t_ns, self._energy_j
        self._shown = False

    def _go(self, stop_ns: int, power_w: float) -> None:
        self._t_ns = stop_ns
        self._energy_j = self._piece_j + power_w * ((stop_ns - self._piece_ns) * 1e-9)

    def _show(self, power_w: float, memory_mhz: float, *rest: float) -> None:
        if not self._shown:
            self._shown = True
            now = (self._t_ns, self._energy_j, power_w, self._clock_mhz, memory_mhz)
            busy, memory_busy, throttle, pstate = rest
            self._rows.append((*now, busy, memory_busy, self._heat.felt_c, throttle, pstate))

    def _flush(self) -> None:
        self._parts.append(np.array(self._rows, PIECE))
        self._end_parts.append(np.array(self._ends, np.int64))
        self._rows, self._ends = [], []


_CLOSE_C = 1e-3
_AT_ONCE = 5


def play(
    unit: BoardUnit,
    state: State,
    load: Load | None,
    knobs: Knobs,
    *,
    until_ns: int | None = None,
    steps: int | None = None,
    contexts: int = 1,
    time_factor: float = 1.0,
    power_factor: float = 1.0,
) -> tuple[Timeline, State]:
    """What the board does from ``state`` until ``until_ns``, or until ``steps`` steps are done.

    With a load it goes on with the step in hand, which counts as one; without, it idles, and the
    step in hand is given up (an idle of no length does just that). ``contexts`` processes are
    attached to an idle board. The factors are those of a run, on the load's time and power.
    """
    player = Player(unit.board, state)
    until_ns = NEVER_NS if until_ns is None else until_ns
    if load is None:
        player.put_down(contexts)
        player.idle(knobs, until_ns)
    else:
        aim = player.take_up(load, knobs, time_factor, power_factor)
        player.work(aim, until_ns, NEVER_NS if steps is None else steps)
    return player.timeline(), player.state()


def equilibrium_c(
    unit: BoardUnit,
    load: Load,
    knobs: Knobs,
    *,
    time_factor: float = 1.0,
    power_factor: float = 1.0,
) -> float:
    """The temperature that the load comes to in the end."""
    thermal = unit.board.thermal

    def towards_c(now_c: float) -> float:
        aim = Aim(unit.board, load, knobs, time_factor, power_factor, now_c)
        return settled_c(thermal, aim.mean_power_w)

    now_c = thermal.reference_c
    for _ in range(_AT_ONCE):  # as a rule power hardly depends on heat
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
    """How much this run differs from the mean of all runs, in time and in power."""
    draw = random.Random(seed)  # noqa: S311  # noise, not a secret
    return math.exp(draw.gauss(0.0, run_noise)), math.exp(draw.gauss(0.0, run_noise))
