"""Programs on simulated boards in virtual time, with what a recorder would have written of them.

Each program has a fresh board, whose sensor profile differs from the product's tables by up to
20 %, and whose counter has a lag and a phase of its own. The recorder is there a little before
and after, polls densely right before the start and after the end, and keeps the driver's samples.

On the module of a superchip there are no such samples: its power and its counter are polled, and
both contain what its CPU and memory draw.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from helpers.truth_windows import fresh_unit, recorded_device
from joulewise.analyse.chunks import ArrayStream
from joulewise.analyse.energy.windows import window_energy
from joulewise.record.schedule import Deadlines
from joulewise.simulate import sensor
from joulewise.simulate.boards import load_board
from joulewise.simulate.model import BoardUnit, ControlSettings, Load
from joulewise.simulate.physics.board_state import State, rest
from joulewise.simulate.physics.integrate import play
from joulewise.simulate.timeline import Timeline, concat
from joulewise.simulate.workloads import load_workload
from joulewise.store.manifest import RecordedDevice
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

BOARDS: Final = ("v100", "rtx6000", "a100", "laptop")
MODULES: Final = ("gh200",)
# What the CPU and the memory of a module draw, here all the time. Chosen: a simulated GH200 has
# 85 W when its CPU is idle and 340 W when all cores work.
HOST_W: Final = 240.0
NETWORKS: Final = ("resnet50", "vgg19", "inception3", "alexnet", "mnist-big", "ecg")
BATCH_SIZES: Final = (8, 16, 32, 64)
RATE_HZ: Final = 10.0  # the recorder's default for one GPU
_S: Final = NS_PER_S
# Time between a mark and the load that it stands for: a socket's round trip, as in real time.
_MARK_NS: Final = 300_000


@dataclass(frozen=True)
class Program:
    """Spans of one family in one program, what was recorded, and their true energies."""

    board: str
    family: str
    unit: BoardUnit
    device: RecordedDevice
    fast: ArrayStream
    buffer: ArrayStream | None
    spans_ns: NDArray[np.int64]
    energy_j: NDArray[np.float64]
    sensed_j: NDArray[np.float64]


@dataclass(frozen=True)
class Judged:
    """Energies of spans of one family on one board, beside the truth, a row each."""

    board: str
    family: str
    value: NDArray[np.float64]
    sampling: NDArray[np.float64]
    sensed: NDArray[np.float64]
    time_s: NDArray[np.float64]


class Stage:
    """A board that works and rests in turn."""

    def __init__(self, draw: np.random.Generator, unit: BoardUnit, start_ns: int) -> None:
        limits = unit.board.limits
        capped = draw.random() < 0.5
        limit_w = draw.uniform(limits.minimum_w, limits.maximum_w) if capped else limits.default_w
        self._draw, self._unit, self._controls = draw, unit, ControlSettings(float(limit_w))
        self._state: State = rest(unit, start_ns)
        self._parts: list[Timeline] = []

    @property
    def t_ns(self) -> int:
        return self._state.t_ns

    def rest(self, time_s: float) -> None:
        self._play(None, until_ns=self.t_ns + round(time_s * _S))

    def work(self, time_s: float) -> tuple[int, int]:
        """Whole steps of some network for about ``time_s``; the span around them."""
        return self.steps(self.network(), time_s)

    def network(self) -> Load:
        name, batch = str(self._draw.choice(NETWORKS)), int(self._draw.choice(BATCH_SIZES))
        return load_workload(name, self._unit.board, batch).step

    def steps(self, load: Load, time_s: float) -> tuple[int, int]:
        self.rest(self._draw.exponential(_MARK_NS) / _S)
        start_ns = self.t_ns - round(self._draw.exponential(_MARK_NS))
        self._play(load, steps=max(1, round(time_s / load.time_s)))
        end_ns = self.t_ns + round(self._draw.exponential(_MARK_NS))
        self._play(None, until_ns=end_ns + round(self._draw.exponential(_MARK_NS)))
        return start_ns, end_ns

    def timeline(self) -> Timeline:
        return concat(self._parts)

    def _play(
        self, load: Load | None, *, until_ns: int | None = None, steps: int | None = None
    ) -> None:
        timeline, self._state = play(
            self._unit, self._state, load, self._controls, until_ns=until_ns, steps=steps
        )
        self._parts.append(timeline)


Story = Callable[[np.random.Generator, Stage], "list[tuple[int, int]]"]


def locked_spans(draw: np.random.Generator, stage: Stage) -> list[tuple[int, int]]:
    """Spans of 0.2 to 3 s that begin and end with a load, or with one of its epochs."""
    spans: list[tuple[int, int]] = []
    stage.rest(draw.uniform(0.3, 1.5))
    together = draw.random() < 0.4
    load = stage.network()
    for _ in range(5):
        if together:  # epochs of one training, one right after the other
            spans.append(stage.steps(load, _length_s(draw)))
            stage.rest(draw.choice([0.0, draw.uniform(0.0, 0.1)]))
            continue
        spans.append(stage.work(_length_s(draw)))
        start_ns = stage.t_ns
        stage.rest(_length_s(draw))
        if draw.random() < 0.5:
            spans.append((start_ns, stage.t_ns))
    return spans


def free_spans(draw: np.random.Generator, stage: Stage) -> list[tuple[int, int]]:
    """Spans of 0.2 to 3 s anywhere in a program that works and rests."""
    start_ns = stage.t_ns
    stage.rest(draw.uniform(0.3, 1.5))
    for _ in range(6):
        stage.work(_length_s(draw))
        stage.rest(_length_s(draw) * draw.choice([0.1, 1.0]))
    spans = []
    for _ in range(6):
        length_ns = round(_length_s(draw) * _S)
        begin_ns = int(draw.integers(start_ns, stage.t_ns - length_ns))
        spans.append((begin_ns, begin_ns + length_ns))
    return spans


def whole_run(draw: np.random.Generator, stage: Stage) -> list[tuple[int, int]]:
    """A run of 0.3 to 60 s: a program that starts, and trains now and then, or not at all."""
    start_ns = stage.t_ns
    end_ns = start_ns + round(float(np.exp(draw.uniform(np.log(0.3), np.log(60.0)))) * _S)
    stage.rest(min(draw.uniform(0.05, 2.0), 0.8 * (end_ns - start_ns) / _S))
    busy = draw.choice([0.0, draw.uniform(0.2, 0.95), 1.0])
    while busy and stage.t_ns < end_ns:
        stage.work(min(_length_s(draw), max((end_ns - stage.t_ns) / _S, 0.05)))
        stage.rest(draw.exponential(0.5) * (1 - busy))
    if stage.t_ns < end_ns:
        stage.rest((end_ns - stage.t_ns) / _S)
    return [(start_ns, stage.t_ns)]


def constant_load(draw: np.random.Generator, stage: Stage) -> list[tuple[int, int]]:
    """Two seconds of one network, in the middle of many."""
    load = stage.network()
    stage.steps(load, draw.uniform(2.0, 3.0))
    start_ns = stage.t_ns
    stage.steps(load, 6.0)
    begin_ns = start_ns + int(draw.integers(_S, 3 * _S))
    return [(begin_ns, begin_ns + 2 * _S)]


FAMILIES: Final[dict[str, Story]] = {
    "locked": locked_spans,
    "free": free_spans,
    "run": whole_run,
}


def judge_programs(seed: int, board: str, family: str, least: int, story: Story) -> Judged:
    """At least so many spans, in as many programs as that takes; each has a fresh board."""
    draw = np.random.default_rng([seed, (*BOARDS, *MODULES).index(board), *family.encode()])
    rows: list[tuple[NDArray[np.float64], ...]] = []
    while sum(len(row[0]) for row in rows) < least:
        program = make_program(draw, board, family, story)
        energy = window_energy(program.device, program.fast, program.buffer, program.spans_ns)
        lasting_s = np.diff(program.spans_ns, axis=1)[:, 0] / _S
        rows.append((energy.energy_j, energy.error_sampling_j, program.sensed_j, lasting_s))
    return Judged(board, family, *(np.concatenate(column) for column in zip(*rows, strict=True)))


def make_program(
    draw: np.random.Generator,
    board: str,
    family: str,
    story: Story,
    rate_hz: float = RATE_HZ,
    *,
    unit: BoardUnit | None = None,
    samples: bool = True,
) -> Program:
    """A program on a fresh board, or on ``unit``; without ``samples`` the driver keeps none."""
    unit = unit or fresh_unit(draw, board)
    start_ns = int(draw.integers(1_000 * _S, 2_000 * _S))
    stage = Stage(draw, unit, start_ns - 3 * _S)
    stage.rest(3.0)
    spans_ns = np.array(story(draw, stage), np.int64)
    end_ns = stage.t_ns
    stage.rest(2.0)
    timeline = stage.timeline()
    if unit.board.module:
        timeline, samples = _with_host(timeline), False
    fast, buffer = record(draw, unit, timeline, (start_ns, end_ns), rate_hz)
    energy_j = np.diff(timeline.energy_at(spans_ns), axis=1)[:, 0]
    return Program(
        board,
        family,
        unit,
        recorded_device(load_board(board)),
        ArrayStream(fast),
        ArrayStream(buffer) if samples else None,
        spans_ns,
        energy_j,
        unit.gain * energy_j,
    )


def _with_host(timeline: Timeline) -> Timeline:
    """The same with what the CPU and the memory on the module draw."""
    pieces = timeline.pieces.copy()
    pieces["power_w"] += HOST_W
    pieces["energy_j"] += HOST_W * (pieces["t_ns"] - pieces["t_ns"][0]) / _S
    return Timeline(pieces, timeline.end_ns, timeline.step_ends_ns)


def record(
    draw: np.random.Generator,
    unit: BoardUnit,
    timeline: Timeline,
    run_ns: tuple[int, int],
    rate_hz: float,
) -> tuple[dict[str, NDArray[np.float64]], dict[str, NDArray[np.float64]]]:
    """Polls and the driver's samples, as the recorder takes them."""
    start_ns, end_ns = run_ns
    spec = unit.board.sensor
    first_ns = start_ns - int(draw.integers(_S // 4, _S))
    dense_s = 0.005 if spec.period_s < 0.05 else 0.015
    before_ns = start_ns - int(draw.integers(0, _S // 20)) - _grid(1.5 * spec.period_s, dense_s)
    # The tables' figures, as the recorder has no others: period, short window and lag.
    after_ns = end_ns + _grid(1.5 * spec.period_s + 0.03, dense_s)
    slots_ns = np.arange(first_ns, end_ns, _S / rate_hz)
    channel = sensor.plain_channel(unit)
    if unit.board.module:
        # Uneven, as by default, and the module's power of the moment.
        period_ns, channel = round(_S / rate_hz), sensor.INSTANT
        deadlines = Deadlines(first_ns, period_ns, dither_ns=period_ns)
        slots_ns = np.array([deadlines.due_ns(slot) for slot in range(len(slots_ns))])
        slots_ns = slots_ns[slots_ns < end_ns]
    due_ns = np.sort(np.concatenate([slots_ns, before_ns, after_ns]))
    late_ns = draw.exponential(150_000, len(due_ns))
    rare = draw.random(len(due_ns)) < 0.01
    late_ns[rare] += draw.uniform(0, 0.5 * _S / rate_hz, int(rare.sum()))
    t_ns = np.sort((due_ns + late_ns).astype(np.int64))
    power_ns = t_ns + draw.integers(10_000, 80_000, len(t_ns))
    energy_ns = power_ns + draw.integers(10_000, 80_000, len(t_ns))
    fast = {
        "t_ns": t_ns,
        "power_w": sensor.power_w(unit, timeline, power_ns, channel),
        "energy_j": sensor.counter_j(unit, timeline, energy_ns),
    }
    first, last = sensor.last_power_tick(unit, np.array([t_ns[0], t_ns[-1]]))
    ticks = np.arange(first + 1, last + 1)
    samples = {
        "t_ns": sensor.power_tick_ns(unit, ticks) // 1_000 * 1_000,
        "power_w": sensor.power_at_ticks(unit, timeline, ticks, sensor.INSTANT),
    }
    return fast, samples


def _grid(time_s: float, step_s: float) -> NDArray[np.int64]:
    return (np.arange(0.0, time_s, step_s) * _S).astype(np.int64)


def _length_s(draw: np.random.Generator) -> float:
    return float(np.exp(draw.uniform(np.log(0.2), np.log(3.0))))
