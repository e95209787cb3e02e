"""A simulated board on the bench of ``calibrate``, in virtual time: minutes in a second."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from joulewise.calibrate.bench import POLL_HZ, POLLED, Burst
from joulewise.calibrate.gpu_load import SIMULATED
from joulewise.calibrate.response import SensorPolls
from joulewise.data import Quantity
from joulewise.simulate.model import BoardUnit, ControlSettings, Load
from joulewise.simulate.physics.board_state import rest
from joulewise.simulate.physics.integrate import play
from joulewise.simulate.sensor import POWER_AND_ENERGY, poll
from joulewise.simulate.timeline import Timeline, concat
from joulewise.simulate.workloads import load_workload
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Mean lateness of a poll that comes too late. Chosen: a scheduler's time slice.
_LATE_S = 0.01
# The pause after the last burst (chosen), in which what a sensor averages falls again.
_TAIL_S = 0.5


@dataclass(frozen=True)
class Bursts:
    """A board under bursts of load, and when each burst began and ended."""

    unit: BoardUnit
    timeline: Timeline
    on_ns: NDArray[np.int64]
    off_ns: NDArray[np.int64]

    def poll(
        self,
        rate_hz: float,
        quantities: Collection[Quantity] = POWER_AND_ENERGY,
        *,
        late: float = 0.0,
    ) -> dict[str, NDArray[Any]]:
        """Polls at random moments; the share ``late`` of them comes some 10 ms too late."""
        draw = np.random.default_rng(self.unit.seed)
        count = int((self.timeline.end_ns - self.timeline.start_ns) / NS_PER_S * rate_hz)
        t_s = (np.arange(count) + draw.random(count)) / rate_hz
        t_s += (draw.random(count) < late) * draw.exponential(_LATE_S, count)
        t_ns = self.timeline.start_ns + np.sort(np.rint(t_s * NS_PER_S).astype(np.int64))
        return poll(self.unit, self.timeline, t_ns, quantities)


def simulate_bursts(
    unit: BoardUnit,
    load: Load,
    controls: ControlSettings,
    bursts: Iterable[tuple[float, float]],
) -> Bursts:
    """Pauses and bursts as (off, on) in seconds; a burst lasts whole steps, at least one."""
    parts: list[Timeline] = []
    edges: list[tuple[int, int]] = []
    state = rest(unit, random.Random(unit.seed).randrange(NS_PER_S))  # no secret
    step_s = load.time_s
    for off_s, on_s in (*bursts, (_TAIL_S, 0.0)):
        until_ns = state.t_ns + round(off_s * NS_PER_S)
        pause, state = play(unit, state, None, controls, until_ns=until_ns, contexts=1)
        parts.append(pause)
        if on_s:
            on_ns = state.t_ns
            burst, state = play(unit, state, load, controls, steps=max(1, round(on_s / step_s)))
            parts.append(burst)
            edges.append((on_ns, state.t_ns))
    on, off = np.array(edges, np.int64).reshape(-1, 2).T
    return Bursts(unit, concat(parts), on, off)


@dataclass(frozen=True)
class VirtualBench:
    """Loads and polls a simulated board; a share ``late`` of the polls is some 10 ms late."""

    unit: BoardUnit
    late: float = 0.0

    def record(
        self, bursts: Sequence[Burst], kind: str, progress: Callable[[float], None]
    ) -> SensorPolls:
        progress(1.0)
        return as_recording(self.play(bursts, kind), self.late)

    def play(self, bursts: Sequence[Burst], kind: str) -> Bursts:
        workload, batch_size = SIMULATED[kind]
        board = self.unit.board
        load = load_workload(workload, board, batch_size).step
        pairs = [(burst.off_s, burst.on_s) for burst in bursts]
        return simulate_bursts(self.unit, load, ControlSettings(board.limits.default_w), pairs)


def as_recording(played: Bursts, late: float = 0.0) -> SensorPolls:
    polled = played.poll(POLL_HZ, POLLED, late=late)
    return SensorPolls(
        t_s=polled["t_ns"] / NS_PER_S,
        columns={q: polled[q.value] for q in POLLED if q.value in polled},
        on_s=played.on_ns / NS_PER_S,
        off_s=played.off_ns / NS_PER_S,
    )
