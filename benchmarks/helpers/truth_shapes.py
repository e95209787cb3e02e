"""Programs of other shapes than the families that must be met: their coverage is shown, not judged.

Loads as short as a sensor's period or two, spans shorter than that, boards that lack what the
tables promise, and runs so long that the analysis no longer holds their samples as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from helpers.truth_programs import (
    BATCH_SIZES,
    BOARDS,
    NETWORKS,
    Judged,
    Stage,
    free_spans,
    locked_spans,
    make_program,
)
from helpers.truth_windows import fresh_unit
from joulewise.analyse.energy.windows import window_energy
from joulewise.simulate.boards import load_board
from joulewise.simulate.model import BoardUnit, Load
from joulewise.simulate.workloads import load_workload
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

_S: Final = NS_PER_S
Span = tuple[int, int]
Spans = list[tuple[str, Span]]
"""Each with the name of the row in which it is shown."""

# Loads and pauses of a program that answers requests, in seconds.
BURST_S: Final = (0.15, 1.2)
MOST_STEPS: Final = 6
PAUSES_S: Final = {"0.1 s": (0.1, 0.1), "0.3 s": (0.3, 0.3), "0.5-0.9 s": (0.5, 0.9)}
BRIEF_S: Final = (0.02, 0.1)
# Spans of a sensor's period or some, and pauses that no reading shows by themselves.
SHORT_S: Final = (0.1, 0.5)
SHORT_PAUSE_S: Final = 0.03
# More samples than power_curve._WHOLE_ROWS holds as a whole, where a board's period is 20 % longer.
LONG_SAMPLES: Final = (1 << 17) * 1.25
LONG_JUDGED: Final = 70  # of each long program, so that three or four make a row
Story = Callable[[np.random.Generator, Stage, BoardUnit], Spans]


@dataclass(frozen=True)
class Shape:
    """What a program does, and how its board differs from others."""

    story: Story
    samples: bool = True  # whether GetSamples works
    whole_window: bool = False  # whether a reading averages all of its period
    is_told: bool = False  # whether the sensor profile says so, as after a calibration


def judge_shapes(seed: int, board: str, least: int) -> Iterator[Judged]:
    """At least so many windows of each row of each shape."""
    for name, shape in SHAPES.items():
        yield from judge_shape(seed, board, name, shape, least)


def judge_shape(seed: int, board: str, name: str, shape: Shape, least: int) -> list[Judged]:
    draw = np.random.default_rng([seed, BOARDS.index(board), *name.encode()])
    rows: dict[str, list[NDArray[np.float64]]] = {}
    while not rows or min(sum(map(len, parts)) for parts in rows.values()) < least:
        for row, figures in _judge_program(draw, board, name, shape).items():
            rows.setdefault(row, []).append(figures)
    return [Judged(board, row, *np.concatenate(parts).T) for row, parts in rows.items()]


def _judge_program(
    draw: np.random.Generator, board: str, name: str, shape: Shape
) -> dict[str, NDArray[np.float64]]:
    """Value, sampling error, truth and length of each window, by row."""
    unit = fresh_unit(draw, board)
    if shape.whole_window:
        spec = unit.board.sensor
        unit = replace(
            unit, board=replace(unit.board, sensor=replace(spec, window_s=spec.period_s))
        )
    spans: Spans = []

    def story(draw: np.random.Generator, stage: Stage) -> list[Span]:
        spans.extend(shape.story(draw, stage, unit))
        return [span_ns for _, span_ns in spans]

    program = make_program(draw, board, name, story, unit=unit, samples=shape.samples)
    device = program.device
    if shape.is_told:
        period_s = load_board(board).sensor.period_s
        device = replace(device, card=replace(device.card, window_s=period_s))
    energy = window_energy(device, program.fast, program.buffer, program.spans_ns)
    lasting_s = np.diff(program.spans_ns, axis=1)[:, 0] / _S
    figures = np.column_stack(
        [energy.energy_j, energy.error_sampling_j, program.sensed_j, lasting_s]
    )
    names = np.array([row for row, _ in spans])
    return {row: figures[names == row] for row in dict.fromkeys(names.tolist())}


def _bursts(pause_s: tuple[float, float], suffix: str) -> Story:
    """Spans around short loads, around each of their steps, and around the pauses between."""

    def story(draw: np.random.Generator, stage: Stage, unit: BoardUnit) -> Spans:
        spans: Spans = []
        stage.rest(draw.uniform(0.3, 1.5))
        for _ in range(12):
            load, number = _burst(draw, unit)
            steps = [stage.steps(load, load.time_s) for _ in range(number)]
            spans += [(f"step, {suffix}", step_ns) for step_ns in steps]
            spans.append((f"burst, {suffix}", (steps[0][0], steps[-1][1])))
            start_ns = stage.t_ns
            stage.rest(draw.uniform(*pause_s))
            spans.append((f"pause, {suffix}", (start_ns, stage.t_ns)))
        return spans

    return story


def _burst(draw: np.random.Generator, unit: BoardUnit) -> tuple[Load, int]:
    while True:
        load, number = _network(draw, unit), int(draw.integers(1, MOST_STEPS + 1))
        if BURST_S[0] <= number * load.time_s <= BURST_S[1]:
            return load, number


def _network(draw: np.random.Generator, unit: BoardUnit) -> Load:
    name, batch = str(draw.choice(NETWORKS)), int(draw.choice(BATCH_SIZES))
    return load_workload(name, unit.board, batch).step


def _brief(draw: np.random.Generator, stage: Stage, unit: BoardUnit) -> Spans:
    """Spans of 20 to 100 ms: some steps of a training, and anywhere in it."""
    spans: Spans = []
    stage.rest(draw.uniform(0.3, 1.5))
    begin_ns = stage.t_ns
    for _ in range(6):
        load = _network(draw, unit)
        while load.time_s > BRIEF_S[1]:
            load = _network(draw, unit)
        for _ in range(4):
            time_s = float(np.exp(draw.uniform(*np.log(BRIEF_S))))
            span_ns = stage.steps(load, time_s)
            if BRIEF_S[0] <= (span_ns[1] - span_ns[0]) / _S <= BRIEF_S[1]:
                spans.append(("brief step", span_ns))
            stage.rest(draw.choice([0.0, draw.uniform(0.0, 0.3)]))
        stage.rest(draw.uniform(0.0, 1.0))
    for _ in range(6):
        length_ns = round(float(np.exp(draw.uniform(*np.log(BRIEF_S)))) * _S)
        start_ns = int(draw.integers(begin_ns, stage.t_ns - length_ns))
        spans.append(("brief anywhere", (start_ns, start_ns + length_ns)))
    return spans


def _short(draw: np.random.Generator, stage: Stage, unit: BoardUnit) -> Spans:
    """Spans of 0.1 to 0.5 s of other networks each, with pauses of 30 ms between them."""
    spans: Spans = []
    stage.rest(draw.uniform(0.3, 1.5))
    for _ in range(10):
        load = _network(draw, unit)
        while load.time_s > SHORT_S[1]:
            load = _network(draw, unit)
        span_ns = stage.steps(load, float(np.exp(draw.uniform(*np.log(SHORT_S)))))
        if SHORT_S[0] <= (span_ns[1] - span_ns[0]) / _S <= SHORT_S[1]:
            spans.append(("short, pauses 30 ms", span_ns))
        stage.rest(SHORT_PAUSE_S)
    return spans


def _long(draw: np.random.Generator, stage: Stage, unit: BoardUnit) -> Spans:
    """Epochs of 1 to 300 s with breaks, for longer than samples are held as a whole."""
    period_s = load_board(unit.board.key).sensor.period_s
    start_ns, end_ns = stage.t_ns, stage.t_ns + round(LONG_SAMPLES * period_s * _S)
    epochs: list[Span] = []
    while stage.t_ns < end_ns:
        epochs.append(stage.work(float(np.exp(draw.uniform(0.0, np.log(300.0))))))
        stage.rest(draw.exponential(2.0))
    chosen = draw.permutation(len(epochs))[:LONG_JUDGED]
    spans: Spans = [("long: epoch", epochs[i]) for i in chosen]
    lengths_ns = (np.exp(draw.uniform(np.log(0.2), np.log(30.0), LONG_JUDGED)) * _S).astype(int)
    for length_ns in lengths_ns.tolist():
        begin_ns = int(draw.integers(start_ns, end_ns - length_ns))
        spans.append(("long: anywhere", (begin_ns, begin_ns + length_ns)))
    return spans


def _families(suffix: str) -> Story:
    """The spans of the families, on a board that is not as the tables say."""

    def story(draw: np.random.Generator, stage: Stage, unit: BoardUnit) -> Spans:
        del unit
        locked = [(f"locked, {suffix}", span_ns) for span_ns in locked_spans(draw, stage)]
        stage.rest(0.5)
        return locked + [(f"free, {suffix}", span_ns) for span_ns in free_spans(draw, stage)]

    return story


SHAPES: Final[dict[str, Shape]] = {
    **{f"bursts, {name}": Shape(_bursts(pause_s, name)) for name, pause_s in PAUSES_S.items()},
    "bursts, no samples": Shape(_bursts((0.1, 0.9), "no samples"), samples=False),
    "brief": Shape(_brief),
    "short": Shape(_short),
    "no samples": Shape(_families("no samples"), samples=False),
    "whole window": Shape(_families("whole window"), whole_window=True),
    "whole window, told": Shape(_families("window told"), whole_window=True, is_told=True),
    "long": Shape(_long),
}
