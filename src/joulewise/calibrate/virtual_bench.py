"""A simulated board in virtual time: minutes of calibration in a second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from joulewise.calibrate.bench import POLL_HZ, POLLED, Burst
from joulewise.calibrate.gpu_load import SIMULATED
from joulewise.calibrate.response import SensorPolls
from joulewise.simulate.model import BoardUnit, ControlSettings
from joulewise.simulate.virtual import Bursts, simulate_bursts
from joulewise.simulate.workloads import load_workload
from joulewise.units import NS_PER_S


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
