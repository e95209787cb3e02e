"""A whole training in virtual time: hours of it in milliseconds, with its exact truth.

A board under bursts of load in virtual time, and what polling it meanwhile shows.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from joulewise.data import Quantity
from joulewise.simulate.model import BoardUnit, Knobs, Load, Workload
from joulewise.simulate.physics.board_state import settled_c
from joulewise.simulate.physics.integrate import equilibrium_c, play, rest, run_factors
from joulewise.simulate.sensor import FAST, poll, samples
from joulewise.simulate.timeline import Timeline, concat
from joulewise.simulate.workloads import StepSequence, epochs
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

Start = Literal["warm", "cold"]


@dataclass(frozen=True)
class Spans:
    """All spans of one name, in order; the index of each is its place."""

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]


@dataclass(frozen=True)
class VirtualRun:
    """What a unit did in a training, from a little before it to a little after.

    ``spans`` has ``run``, ``training``, ``epoch``, ``validation`` and ``step``.
    """

    unit: BoardUnit
    workload: Workload
    knobs: Knobs
    timeline: Timeline
    spans: Mapping[str, Spans]

    @cached_property
    def time_s(self) -> float:
        run = self.spans["run"]
        return int(run.end_ns[0] - run.start_ns[0]) / NS_PER_S

    @cached_property
    def energy_j(self) -> float:
        """What the run truly drew."""
        return float(self.span_energy_j("run")[0])

    @property
    def sensed_j(self) -> float:
        """What a perfect integrator behind this unit's sensor would get."""
        return self.unit.gain * self.energy_j

    def span_energy_j(self, name: str) -> NDArray[np.float64]:
        """What every span of that name truly drew."""
        spans = self.spans[name]
        return self.timeline.energy_at(spans.end_ns) - self.timeline.energy_at(spans.start_ns)

    def trace(
        self, rate_hz: float, quantities: Collection[Quantity] = FAST
    ) -> dict[str, NDArray[Any]]:
        """What polling NVML at that rate gets to see, column by column (see ``poll``)."""
        start_ns, end_ns = self.timeline.start_ns, self.timeline.end_ns
        rows = math.floor((end_ns - start_ns) * rate_hz / NS_PER_S) + 1
        t_ns = np.rint(np.arange(rows) * (NS_PER_S / rate_hz)).astype(np.int64) + start_ns
        return poll(self.unit, self.timeline, t_ns, quantities)

    def drain(self, every_s: float = 2.0) -> dict[str, NDArray[Any]]:
        """What emptying the driver's sample buffer so often gets; too seldom, and some are lost."""
        start_ns, end_ns = self.timeline.start_ns, self.timeline.end_ns
        step_ns = round(every_s * NS_PER_S)
        times, powers = [np.empty(0, np.int64)], [np.empty(0)]
        since_ns = start_ns - 1
        for now_ns in (*range(start_ns + step_ns, end_ns, step_ns), end_ns):
            t_ns, power_w = samples(self.unit, self.timeline, now_ns)
            fresh = t_ns > since_ns
            times.append(t_ns[fresh])
            powers.append(power_w[fresh])
            since_ns = int(t_ns[-1])
        return {"t_ns": np.concatenate(times), Quantity.POWER.value: np.concatenate(powers)}


def simulate(
    workload: Workload,
    unit: BoardUnit,
    knobs: Knobs,
    *,
    seed: int = 0,
    run_noise: float | None = None,
    start: Start | float = "warm",
    margin_s: float = 2.0,
) -> VirtualRun:
    """Train once.

    ``seed`` decides by how much this run differs from others (``run_noise``, else the
    workload's). It starts ``warm``, as after many such runs, ``cold``, as after a long idle, or so
    many seconds of idle after the last such run.
    The board idles, with a process attached, for ``margin_s`` before and after.
    """
    noise = workload.run_noise if run_noise is None else run_noise
    factors = run_factors(seed, noise)
    stage = _Stage(unit, knobs, factors)
    stage.begin(workload.step, start, margin_s)
    stage.idle(margin_s)
    spans = _train(stage, workload)
    stage.idle(margin_s)
    return VirtualRun(unit, workload, knobs, concat(stage.parts), spans)


def simulate_all(
    workload: Workload, units: Sequence[BoardUnit], knobs: Knobs, **options: Any
) -> list[VirtualRun]:
    """The same training on several units, each on its own (see :func:`simulate`)."""
    return [simulate(workload, unit, knobs, **options) for unit in units]


class _Stage:
    """Where a board is, and what it has played so far."""

    def __init__(self, unit: BoardUnit, knobs: Knobs, factors: tuple[float, float]) -> None:
        self.parts: list[Timeline] = []
        self._unit = unit
        self._knobs = knobs
        self._time_factor, self._power_factor = factors
        self._state = rest(unit, 0)

    def begin(self, load: Load, start: Start | float, margin_s: float) -> None:
        """As warm as to be at its temperature after an idle of ``margin_s``."""
        thermal = self._unit.board.thermal
        begin_c = idle_c = settled_c(thermal, self._unit.board.idle.context_w)
        if start != "cold":
            begin_c = equilibrium_c(
                self._unit,
                load,
                self._knobs,
                time_factor=self._time_factor,
                power_factor=self._power_factor,
            )
        rested_s = start if isinstance(start, float) else 0.0
        warmer_c = (begin_c - idle_c) * math.exp((margin_s - rested_s) / thermal.time_constant_s)
        self._state = rest(self._unit, 0, temperature_c=idle_c + warmer_c)

    @property
    def t_ns(self) -> int:
        return self._state.t_ns

    def idle(self, time_s: float) -> None:
        until_ns = self.t_ns + round(time_s * NS_PER_S)
        timeline, self._state = play(
            self._unit, self._state, None, self._knobs, until_ns=until_ns, contexts=1
        )
        self.parts.append(timeline)

    def work(self, part: StepSequence) -> NDArray[np.int64]:
        """When each of the steps ended."""
        timeline, self._state = play(
            self._unit,
            self._state,
            part.load,
            self._knobs,
            steps=part.steps,
            time_factor=self._time_factor,
            power_factor=self._power_factor,
        )
        self.parts.append(timeline)
        return timeline.step_ends_ns


def _train(stage: _Stage, workload: Workload) -> dict[str, Spans]:
    begin_ns = stage.t_ns
    whole: dict[str, list[tuple[int, int]]] = {"epoch": [], "validation": [], "end": []}
    starts: list[NDArray[np.int64]] = []
    ends: list[NDArray[np.int64]] = []
    for parts in epochs(workload):
        epoch_ns = stage.t_ns
        for part in parts:
            part_ns = stage.t_ns
            ends_ns = stage.work(part)
            if part.name == "step":
                starts.append(np.append(part_ns, ends_ns[:-1]))
                ends.append(ends_ns)
            else:
                whole[part.name].append((part_ns, stage.t_ns))
        whole["epoch"].append((epoch_ns, stage.t_ns))
    run = _spans([(begin_ns, stage.t_ns)])
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


if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Bursts:
    """What the board did, and when each burst began and ended."""

    unit: BoardUnit
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
    unit: BoardUnit,
    load: Load,
    knobs: Knobs,
    bursts: Iterable[tuple[float, float]],
    tail_s: float = 0.5,
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
