"""When a run in virtual time is ended early, as one that goes on would be."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from joulewise.data.sweeps import Planned
from joulewise.simulate.timeline import Timeline, join
from joulewise.simulate.virtual import VirtualRun
from joulewise.sweep.looking import STEP, UNSTEADY_STEPS
from joulewise.sweep.runner import Hopeless
from joulewise.sweep.trial import GPU
from joulewise.sweep.watching import Why
from joulewise.units import NS_PER_S


def ending(
    played: VirtualRun, planned: Planned, timeout_s: float | None, hopeless: Hopeless | None
) -> tuple[int, Why | None]:
    """The moment at which it ends, and why if not by itself."""
    run = played.spans["run"]
    start_ns, end_ns = int(run.start_ns[0]), int(run.end_ns[0])
    ends: list[tuple[int, Why | None]] = [(end_ns, None)]
    if timeout_s is not None:
        ends.append((start_ns + round(timeout_s * NS_PER_S), Why.TOO_LONG))
    if planned.look_s is not None:
        ends += [(t_ns, Why.ENOUGH) for t_ns in _seen_ns(played, planned.look_s)]
    if hopeless is not None:
        ends += [(t_ns, Why.DOMINATED) for t_ns in _given_up_ns(played, hopeless)]
    return min(ends, key=lambda end: end[0])


def cut(played: VirtualRun, end_ns: int) -> Timeline:
    """What the board did if the run was ended then: it idles with clocks up for a moment."""
    whole, idle = played.timeline, played.unit.board.idle
    if end_ns >= played.spans["run"].end_ns[0]:
        return whole
    part = whole.between(whole.start_ns, end_ns)
    after = part.pieces[-1:].copy()
    after["t_ns"], after["energy_j"], after["power_w"] = (
        end_ns,
        part.energy_at(end_ns),
        idle.clocks_up_w,
    )
    after["busy"] = after["memory_busy"] = after["throttle"] = 0
    return Timeline(join([part.pieces, after]), end_ns + round(idle.hold_s * NS_PER_S))


def _seen_ns(played: VirtualRun, look_s: float) -> Iterator[int]:
    """When there were so many seconds of steady steps, if ever."""
    ends_ns = played.spans[STEP].end_ns
    if len(ends_ns) > UNSTEADY_STEPS:
        wanted_ns = ends_ns[UNSTEADY_STEPS - 1] + round(look_s * NS_PER_S)
        yield from ends_ns[int(np.searchsorted(ends_ns, wanted_ns)) :][:1].tolist()


def _given_up_ns(played: VirtualRun, hopeless: Hopeless) -> Iterator[int]:
    """When a look once a second first finds it hopeless, which it then stays, if ever."""
    run, timeline = played.spans["run"], played.timeline
    looks_ns = np.arange(run.start_ns[0], run.end_ns[0], NS_PER_S)
    drawn_j = played.unit.gain * (timeline.energy_at(looks_ns) - timeline.energy_at(looks_ns[0]))

    def is_hopeless(look: int) -> bool:
        return hopeless(float(look), {GPU: float(drawn_j[look])})

    first = bisect_left(range(len(looks_ns)), True, key=is_hopeless)
    yield from looks_ns[first:][:1].tolist()
