"""Trainings in virtual time: hours in milliseconds, with exact energy (:func:`simulate`)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from joulewise.data import Quantity
from joulewise.simulate.model import BoardUnit, ControlSettings, Load, Workload
from joulewise.simulate.physics.board_state import rest, settled_c
from joulewise.simulate.physics.integrate import equilibrium_c, play, run_factors
from joulewise.simulate.sensor import POWER_AND_ENERGY, poll
from joulewise.simulate.timeline import Timeline, concat
from joulewise.simulate.workloads import StepSequence, iterate_epochs
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

Start = Literal["warm", "cold"]


@dataclass(frozen=True)
class Spans:
    """Start and end of all spans of one name, in order of their index."""

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]


@dataclass(frozen=True)
class VirtualRun:
    """A unit during a training, from a little before it to a little after.

    ``spans`` has ``run``, ``training``, ``epoch``, ``validation`` and ``step``.
    """

    unit: BoardUnit
    workload: Workload
    controls: ControlSettings
    timeline: Timeline
    spans: Mapping[str, Spans]

    @cached_property
    def time_s(self) -> float:
        run = self.spans["run"]
        return int(run.end_ns[0] - run.start_ns[0]) / NS_PER_S

    @cached_property
    def energy_j(self) -> float:
        """The energy that the run really drew."""
        return float(self.span_energy_j("run")[0])

    @property
    def sensed_j(self) -> float:
        """The energy that a perfect integrator of this unit's sensor would measure."""
        return self.unit.gain * self.energy_j

    def span_energy_j(self, name: str) -> NDArray[np.float64]:
        """The energy (J) that each span of that name really drew."""
        spans = self.spans[name]
        return self.timeline.energy_at(spans.end_ns) - self.timeline.energy_at(spans.start_ns)

    def trace(
        self, rate_hz: float, quantities: Collection[Quantity] = POWER_AND_ENERGY
    ) -> dict[str, NDArray[Any]]:
        """The readings of a program that polls NVML at that rate, by column (see ``poll``)."""
        start_ns, end_ns = self.timeline.start_ns, self.timeline.end_ns
        rows = math.floor((end_ns - start_ns) * rate_hz / NS_PER_S) + 1
        t_ns = np.rint(np.arange(rows) * (NS_PER_S / rate_hz)).astype(np.int64) + start_ns
        return poll(self.unit, self.timeline, t_ns, quantities)


def simulate(
    workload: Workload,
    unit: BoardUnit,
    controls: ControlSettings,
    *,
    seed: int = 0,
    run_noise: float | None = None,
    start: Start | float = "warm",
    margin_s: float = 2.0,
) -> VirtualRun:
    """Train once.

    ``seed`` decides by how much this run differs from others (``run_noise``, by default the
    workload's). The board starts ``warm``, as after many such runs, ``cold``, as after a long idle,
    or a number of seconds after the last such run. It idles, with a process attached, for
    ``margin_s`` before and after.
    """
    noise = workload.run_noise if run_noise is None else run_noise
    board = _VirtualBoard(unit, controls, run_factors(seed, noise))
    board.begin(workload.step, start, margin_s)
    board.idle(margin_s)
    spans = _train(board, workload)
    board.idle(margin_s)
    return VirtualRun(unit, workload, controls, concat(board.parts), spans)


class _VirtualBoard:
    """A unit's present state, and what it has done so far (``parts``)."""

    def __init__(
        self, unit: BoardUnit, controls: ControlSettings, factors: tuple[float, float]
    ) -> None:
        self.parts: list[Timeline] = []
        self._unit = unit
        self._controls = controls
        self._factors: dict[str, Any] = {"time_factor": factors[0], "power_factor": factors[1]}
        self._state = rest(unit, 0)

    def begin(self, load: Load, start: Start | float, margin_s: float) -> None:
        """Set the temperature so that it is the wanted one after an idle of ``margin_s``."""
        thermal = self._unit.board.thermal
        begin_c = idle_c = settled_c(thermal, self._unit.board.idle.context_w)
        if start != "cold":
            begin_c = equilibrium_c(self._unit, load, self._controls, **self._factors)
        rested_s = start if isinstance(start, float) else 0.0
        warmer_c = (begin_c - idle_c) * math.exp((margin_s - rested_s) / thermal.time_constant_s)
        self._state = rest(self._unit, 0, temperature_c=idle_c + warmer_c)

    @property
    def t_ns(self) -> int:
        return self._state.t_ns

    def idle(self, time_s: float) -> None:
        until_ns = self.t_ns + round(time_s * NS_PER_S)
        timeline, self._state = play(
            self._unit, self._state, None, self._controls, until_ns=until_ns, contexts=1
        )
        self.parts.append(timeline)

    def work(self, part: StepSequence) -> NDArray[np.int64]:
        """Run the steps; when each of them ended (ns)."""
        timeline, self._state = play(
            self._unit, self._state, part.load, self._controls, steps=part.steps, **self._factors
        )
        self.parts.append(timeline)
        return timeline.step_ends_ns


def _train(board: _VirtualBoard, workload: Workload) -> dict[str, Spans]:
    begin_ns = board.t_ns
    whole: dict[str, list[tuple[int, int]]] = {"epoch": [], "validation": [], "end": []}
    starts: list[NDArray[np.int64]] = []
    ends: list[NDArray[np.int64]] = []
    for parts in iterate_epochs(workload):
        epoch_ns = board.t_ns
        for part in parts:
            part_ns = board.t_ns
            ends_ns = board.work(part)
            if part.name == "step":
                starts.append(np.append(part_ns, ends_ns[:-1]))
                ends.append(ends_ns)
            else:
                whole[part.name].append((part_ns, board.t_ns))
        whole["epoch"].append((epoch_ns, board.t_ns))
    run = _spans([(begin_ns, board.t_ns)])
    return {
        "run": run,
        "training": run,
        "epoch": _spans(whole["epoch"]),
        "validation": _spans(whole["validation"]),
        "step": Spans(np.concatenate(starts), np.concatenate(ends)),
    }


def _spans(pairs: list[tuple[int, int]]) -> Spans:
    start_ns, end_ns = np.array(pairs, np.int64).reshape(-1, 2).T
    return Spans(start_ns, end_ns)
