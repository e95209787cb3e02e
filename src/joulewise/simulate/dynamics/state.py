"""Where a board is: all that is needed to go on from a moment."""

from __future__ import annotations

import math
from typing import NamedTuple

from joulewise.simulate.dynamics.governor import Aim
from joulewise.simulate.dynamics.heat import Heat, settled_c
from joulewise.simulate.model import Unit

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
    unit: Unit, t_ns: int, *, energy_j: float = 0.0, temperature_c: float | None = None
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
