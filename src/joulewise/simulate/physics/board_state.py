"""Where a board is: all that is needed to go on from a moment.

How warm a board is: one resistance and one time constant, brought up to date now and then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from joulewise.simulate.model import BoardUnit, Thermal
from joulewise.simulate.physics.governor import Aim
from joulewise.units import NS_PER_S

_STRETCH_C = 0.2
_LONGEST_S = 60.0
_FELT_C = 0.1


@dataclass(frozen=True)
class Heat:
    """The temperature at ``t_ns``, when ``energy_j`` had been drawn.

    Between two such moments power counts by its mean. ``felt_c`` is what leakage and governor go
    by: it follows in steps, so that a settled load is the same from one step to the next.
    """

    t_ns: int
    energy_j: float
    temperature_c: float
    felt_c: float

    def after(self, thermal: Thermal, t_ns: int, energy_j: float) -> Heat:
        lasting_s = (t_ns - self.t_ns) / NS_PER_S
        if lasting_s <= 0.0:
            return self
        end_c = settled_c(thermal, (energy_j - self.energy_j) / lasting_s)
        decay = math.exp(-lasting_s / thermal.time_constant_s)
        now_c = end_c + (self.temperature_c - end_c) * decay
        felt_c = self.felt_c if abs(now_c - self.felt_c) < _FELT_C else now_c
        return Heat(t_ns, energy_j, now_c, felt_c)

    def due_ns(self, thermal: Thermal, power_w: float) -> int:
        """When to look again, if ``power_w`` is drawn from here: before it is felt twice."""
        away_c = abs(settled_c(thermal, power_w) - self.temperature_c)
        lasting_s = thermal.time_constant_s * _STRETCH_C / max(away_c, 1e-9)
        return self.t_ns + round(min(lasting_s, _LONGEST_S) * NS_PER_S)


def settled_c(thermal: Thermal, power_w: float) -> float:
    """The temperature that a constant power comes to in the end."""
    return thermal.ambient_c + thermal.resistance_c_per_w * power_w


NEVER_NS = 1 << 62
BETWEEN_STEPS = -1


class State(NamedTuple):
    """All that is needed to go on from ``t_ns``.

    The piece in hand began at ``piece_ns`` with ``piece_j`` drawn, the share ``done`` of its
    phase behind it; it is kept whole, so that cutting it moves no later moment. ``aim_mhz`` is
    where the governor is on its way to what ``aim`` says, infinite once clocks have come down:
    the next load starts high. ``seen_mhz`` is the lowest cap since its last decision.
    ``contexts`` is None while a load runs.
    """

    t_ns: int
    energy_j: float
    clock_mhz: float
    piece_ns: int
    piece_j: float
    phase: int
    done: float
    aim_mhz: float
    seen_mhz: float
    dither: int
    up_until_ns: int
    contexts: int | None
    heat: Heat
    heat_due_ns: int
    aim: Aim | None

    def back_to(self, t_ns: int) -> State:
        """An idle board's at a moment of the piece in hand, in which nothing but time goes by."""
        passed = (t_ns - self.piece_ns) / (self.t_ns - self.piece_ns)
        energy_j = self.piece_j + passed * (self.energy_j - self.piece_j)
        return self._replace(t_ns=t_ns, energy_j=energy_j)

    @property
    def temperature_c(self) -> float:
        return self.heat.felt_c


def rest(
    unit: BoardUnit, t_ns: int, *, energy_j: float = 0.0, temperature_c: float | None = None
) -> State:
    """A board asleep, with no context, at the temperature that it has then (or at another)."""
    board = unit.board
    if temperature_c is None:
        temperature_c = settled_c(board.thermal, board.idle.asleep_w)
    return State(
        t_ns=t_ns,
        energy_j=energy_j,
        clock_mhz=board.clocks.sm_min_mhz,
        piece_ns=t_ns,
        piece_j=energy_j,
        phase=BETWEEN_STEPS,
        done=0.0,
        aim_mhz=math.inf,
        seen_mhz=math.inf,
        dither=0,
        up_until_ns=t_ns,
        contexts=0,
        heat=Heat(t_ns, energy_j, temperature_c, temperature_c),
        heat_due_ns=t_ns,
        aim=None,
    )
