"""A board in time: a pure function from a state, a load and knobs to what the board did.

Nothing is hidden: playing up to a moment and going on from the state that came out gives, to the
nanosecond, what playing on would have given. So whoever plays ahead and is interrupted plays
again from the same state, up to the interruption.
"""

from __future__ import annotations

import math
import random

from joulewise.simulate.dynamics.governor import Aim
from joulewise.simulate.dynamics.heat import settled_c
from joulewise.simulate.dynamics.player import Player
from joulewise.simulate.dynamics.state import BETWEEN_STEPS, NEVER_NS, State, rest
from joulewise.simulate.model import Knobs, Load, Unit
from joulewise.simulate.timeline import Timeline

__all__ = ["BETWEEN_STEPS", "State", "equilibrium_c", "play", "rest", "run_factors"]

_CLOSE_C = 1e-3
_AT_ONCE = 5


def play(
    unit: Unit,
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
    unit: Unit, load: Load, knobs: Knobs, *, time_factor: float = 1.0, power_factor: float = 1.0
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
