"""A board under bursts of load in virtual time, and what polling it meanwhile shows."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from joulewise.data import Quantity
from joulewise.simulate.dynamics.play import play, rest
from joulewise.simulate.model import Knobs, Load, Unit
from joulewise.simulate.poll import FAST, poll
from joulewise.simulate.timeline import Timeline, concat
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Bursts:
    """What the board did, and when each burst began and ended."""

    unit: Unit
    timeline: Timeline
    on_ns: NDArray[np.int64]
    off_ns: NDArray[np.int64]

    def poll(
        self, rate_hz: float, quantities: Collection[Quantity] = FAST, *, late: float = 0.0
    ) -> dict[str, NDArray[Any]]:
        """Polls at drawn moments; the share ``late`` of them comes some 10 ms too late."""
        draw = np.random.default_rng(self.unit.seed)
        count = int((self.timeline.end_ns - self.timeline.start_ns) / NS_PER_S * rate_hz)
        t_s = (np.arange(count) + draw.random(count)) / rate_hz
        t_s += (draw.random(count) < late) * draw.exponential(0.01, count)
        t_ns = self.timeline.start_ns + np.sort(np.rint(t_s * NS_PER_S).astype(np.int64))
        return poll(self.unit, self.timeline, t_ns, quantities)


def play_bursts(
    unit: Unit, load: Load, knobs: Knobs, bursts: Iterable[tuple[float, float]], tail_s: float = 0.5
) -> Bursts:
    """Pauses and bursts, as (off, on) in seconds; a burst lasts whole steps, at least one."""
    parts: list[Timeline] = []
    edges: list[tuple[int, int]] = []
    state = rest(unit, random.Random(unit.seed).randrange(NS_PER_S))  # noqa: S311  # no secret
    step_s = sum(phase.time_s for phase in load.phases)
    for off_s, on_s in (*bursts, (tail_s, 0.0)):
        until_ns = state.t_ns + round(off_s * NS_PER_S)
        pause, state = play(unit, state, None, knobs, until_ns=until_ns, contexts=1)
        parts.append(pause)
        if on_s:
            on_ns = state.t_ns
            burst, state = play(unit, state, load, knobs, steps=max(1, round(on_s / step_s)))
            parts.append(burst)
            edges.append((on_ns, state.t_ns))
    on, off = np.array(edges, np.int64).reshape(-1, 2).T
    return Bursts(unit, concat(parts), on, off)
