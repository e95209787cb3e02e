"""The state of a board at one moment: all that is needed to go on from it.

Heat follows the usual lumped model: one thermal resistance and one time constant, so that the
temperature approaches ``ambient + resistance * power`` exponentially. It is brought up to date now
and then, from the mean power since the last update, not at every change of power.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from joulewise.simulate.model import BoardUnit, Thermal
from joulewise.simulate.physics.governor import OperatingPoint
from joulewise.units import NS_PER_S

# All chosen. The temperature is updated before it has moved by _UPDATE_C, and at least every
# _UPDATE_S. What leakage and governor use follows in steps of _EFFECTIVE_STEP_C, which moves the
# power of a board by some hundredths of a watt. With twice as much, settled loads are computed in
# half as many stretches, and power follows heat in steps twice as coarse.
_UPDATE_C = 0.2
_UPDATE_S = 60.0
_EFFECTIVE_STEP_C = 0.1

NEVER_NS = 1 << 62
BETWEEN_STEPS = -1  # in place of the index of a phase


@dataclass(frozen=True)
class Heat:
    """The temperature at ``t_ns``, when ``energy_j`` had been drawn.

    ``effective_c`` is the temperature that leakage and governor use. It follows in steps, so that
    a settled load is the same from one step to the next.
    """

    t_ns: int
    energy_j: float
    temperature_c: float
    effective_c: float

    def advance(self, thermal: Thermal, t_ns: int, energy_j: float) -> Heat:
        """The heat at a later moment, when ``energy_j`` has been drawn in all."""
        elapsed_s = (t_ns - self.t_ns) / NS_PER_S
        if elapsed_s <= 0.0:
            return self
        end_c = settled_c(thermal, (energy_j - self.energy_j) / elapsed_s)
        decay = math.exp(-elapsed_s / thermal.time_constant_s)
        now_c = end_c + (self.temperature_c - end_c) * decay
        is_near = abs(now_c - self.effective_c) < _EFFECTIVE_STEP_C
        return Heat(t_ns, energy_j, now_c, self.effective_c if is_near else now_c)

    def next_update_ns(self, thermal: Thermal, power_w: float) -> int:
        """When to update it, if ``power_w`` is drawn from here on."""
        distance_c = abs(settled_c(thermal, power_w) - self.temperature_c)
        wait_s = thermal.time_constant_s * _UPDATE_C / max(distance_c, 1e-9)
        return self.t_ns + round(min(wait_s, _UPDATE_S) * NS_PER_S)


def settled_c(thermal: Thermal, power_w: float) -> float:
    """The temperature that a constant power leads to in the end."""
    return thermal.ambient_c + thermal.resistance_c_per_w * power_w


class State(NamedTuple):
    """A board at ``t_ns``, when it had drawn ``energy_j`` since its beginning.

    The current piece (a stretch of constant power) began at ``piece_ns`` with ``piece_j`` drawn and
    the share ``done`` of its phase completed. It is kept whole, so that an interruption shifts no
    later moment. ``governor_mhz`` is the clock that the governor asks for; it is infinite once an
    idle board has lowered its clocks: the next load starts high. ``lowest_cap_mhz`` is the lowest
    of the phases' clock caps since the governor's last decision. ``dither`` is the carry of
    :attr:`OperatingPoint.dither`. ``contexts`` is None while a load runs, else the number of
    attached processes.
    """

    t_ns: int
    energy_j: float
    clock_mhz: float
    piece_ns: int
    piece_j: float
    phase: int
    done: float
    governor_mhz: float
    lowest_cap_mhz: float
    dither: int
    up_until_ns: int
    contexts: int | None
    heat: Heat
    heat_due_ns: int
    point: OperatingPoint | None

    def rewind(self, t_ns: int) -> State:
        """The state at an earlier moment of the current piece, on an idle board."""
        passed = (t_ns - self.piece_ns) / (self.t_ns - self.piece_ns)
        energy_j = self.piece_j + passed * (self.energy_j - self.piece_j)
        return self._replace(t_ns=t_ns, energy_j=energy_j)

    @property
    def temperature_c(self) -> float:
        return self.heat.effective_c


def rest(unit: BoardUnit, t_ns: int, *, temperature_c: float | None = None) -> State:
    """A sleeping board with no process attached, at the temperature it then has (or the given)."""
    board = unit.board
    if temperature_c is None:
        temperature_c = settled_c(board.thermal, board.idle.asleep_w)
    return State(
        t_ns=t_ns,
        energy_j=0.0,
        clock_mhz=board.clocks.sm_min_mhz,
        piece_ns=t_ns,
        piece_j=0.0,
        phase=BETWEEN_STEPS,
        done=0.0,
        governor_mhz=math.inf,
        lowest_cap_mhz=math.inf,
        dither=0,
        up_until_ns=t_ns,
        contexts=0,
        heat=Heat(t_ns, 0.0, temperature_c, temperature_c),
        heat_due_ns=t_ns,
        point=None,
    )
