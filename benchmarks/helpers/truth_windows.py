"""Windows on simulated boards, each a fresh one, with what a recorder would have written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.chunks import ArrayStream
from joulewise.data import DeviceInfo, Kind, Quantity, SensorProfile, Source
from joulewise.devices.nvidia.sensor_tables import sensor_timing
from joulewise.simulate import sensor
from joulewise.simulate.boards import load_board, make_unit
from joulewise.simulate.model import Board, BoardUnit, ControlSettings
from joulewise.simulate.physics.board_state import rest
from joulewise.simulate.physics.integrate import play
from joulewise.simulate.timeline import PIECE, Timeline
from joulewise.simulate.workloads import load_workload
from joulewise.store.manifest import RecordedDevice
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

BOARDS: Final = ("v100", "rtx6000", "a100")
NETWORKS: Final = ("resnet50", "alexnet", "vgg19", "inception3", "mnist-big", "ecg")
GAIN_SIGMA: Final = 0.025
OFF: Final = 0.2
_S: Final = NS_PER_S


@dataclass(frozen=True)
class Window:
    """One window, what was recorded around it, and the truth."""

    family: str
    device: RecordedDevice
    fast: ArrayStream
    buffer: ArrayStream | None
    span_ns: tuple[int, int]
    energy_j: float
    sensed_j: float


@dataclass(frozen=True)
class Setup:
    """How a window is recorded: at what rate, and of a board with or without."""

    rate_hz: float = 2.5
    counter: bool = True
    buffer: bool = True


BY_DEFAULT: Final = Setup()


def make_window(
    draw: np.random.Generator,
    unit: BoardUnit,
    family: str,
    setup: Setup = BY_DEFAULT,
    *,
    time_s: float | None = None,
    cap_w: float | None = None,
) -> Window:
    """A window of 1 to 30 s, or of ``time_s``; ``cap_w`` limits a training."""
    length_s = draw.uniform(1.0, 30.0) if time_s is None else time_s
    start_ns = int(draw.integers(1_000 * _S, 2_000 * _S))
    end_ns = start_ns + round(length_s * _S)
    # The recorder is there a little before the command, and a little after it.
    first_ns = start_ns - int(draw.integers(_S // 4, _S))
    last_ns = end_ns + int(draw.integers(_S // 4, _S))
    around_ns = first_ns - 2 * _S, last_ns + _S
    if cap_w is None:
        timeline = FAMILIES[family](draw, unit, *around_ns)
    else:
        timeline = _train(draw, unit, *around_ns, cap_w)
    fast, samples = record(draw, unit, timeline, (first_ns, last_ns), setup.rate_hz)
    if not setup.counter:
        del fast["energy_j"]
    energy_j = float(np.diff(timeline.energy_at(np.array([start_ns, end_ns])))[0])
    return Window(
        family,
        recorded_device(load_board(unit.board.key), counter=setup.counter),
        ArrayStream(fast),
        ArrayStream(samples) if setup.buffer else None,
        (start_ns, end_ns),
        energy_j,
        unit.gain * energy_j,
    )


def fresh_unit(draw: np.random.Generator, board_key: str) -> BoardUnit:
    """A board that differs from the tables, with gain, phases and counter lag of its own."""
    board = off_the_tables(load_board(board_key), draw)
    unit = make_unit(board, int(draw.integers(1 << 31)))
    return replace(unit, gain=draw.normal(1.0, GAIN_SIGMA))


def off_the_tables(board: Board, draw: np.random.Generator) -> Board:
    spec = board.sensor
    period, window, lag, counter_lag = draw.uniform(1 - OFF, 1 + OFF, 4)
    return replace(
        board,
        sensor=replace(
            spec,
            period_s=spec.period_s * period,
            window_s=spec.window_s * window,
            lag_s=spec.lag_s * lag,
            counter_period_s=spec.counter_period_s * period,
            counter_lag_s=spec.counter_lag_s * counter_lag,
        ),
    )


def recorded_device(board: Board, *, counter: bool = True) -> RecordedDevice:
    """As the recorder would find it: what the product's own tables say of this generation."""
    result = sensor_timing(board.architecture, board.compute_capability, Quantity.POWER)
    info = DeviceInfo("gpu0", Kind.GPU, board.name, "GPU-0", "NVIDIA")
    sources = {"power_w": Source.MEASURED, "energy_j": Source.MEASURED}
    if not counter:
        del sources["energy_j"]
    return RecordedDevice(
        info,
        sources,
        SensorProfile(result.update_period_s, result.window_s, gain_sigma=GAIN_SIGMA),
        maximum_w=board.limits.maximum_w,
    )


def record(
    draw: np.random.Generator,
    unit: BoardUnit,
    timeline: Timeline,
    span_ns: tuple[int, int],
    rate_hz: float,
) -> tuple[dict[str, NDArray[np.float64]], dict[str, NDArray[np.float64]]]:
    """Both lanes: polls that wake up late at times, and the driver's samples, none of them lost."""
    first_ns, last_ns = span_ns
    step_ns = _S / rate_hz
    due_ns = np.arange(first_ns, last_ns, step_ns)
    late_ns = draw.exponential(150_000, len(due_ns))
    rare = draw.random(len(due_ns)) < 0.01
    late_ns[rare] += draw.uniform(0, 0.5 * step_ns, int(rare.sum()))
    t_ns = np.sort((due_ns + late_ns).astype(np.int64))
    power_ns = t_ns + draw.integers(10_000, 80_000, len(t_ns))
    energy_ns = power_ns + draw.integers(10_000, 80_000, len(t_ns))
    fast = {
        "t_ns": t_ns,
        "power_w": sensor.power_w(unit, timeline, power_ns, sensor.plain_channel(unit)),
        "energy_j": sensor.counter_j(unit, timeline, energy_ns),
    }
    first, last = sensor.last_power_tick(unit, np.array([first_ns - 1, last_ns]))
    ticks = np.arange(first + 1, last + 1)
    samples = {
        "t_ns": sensor.power_tick_ns(unit, ticks) // 1_000 * 1_000,
        "power_w": sensor.power_at_ticks(unit, timeline, ticks, sensor.INSTANT),
    }
    return fast, samples


def make_timeline(t_ns: NDArray[np.int64], power_w: NDArray[np.float64], end_ns: int) -> Timeline:
    pieces = np.zeros(len(t_ns), PIECE)
    pieces["t_ns"], pieces["power_w"] = t_ns, power_w
    lasting_s = np.diff(t_ns) * 1e-9
    drawn = pieces["power_w"][:-1].astype(np.float64) * lasting_s
    pieces["energy_j"] = np.concatenate([[0.0], np.cumsum(drawn)])
    return Timeline(pieces, end_ns)


def _levels(draw: np.random.Generator, unit: BoardUnit, size: int) -> NDArray[np.float64]:
    return draw.uniform(unit.board.idle.context_w, unit.board.limits.maximum_w, size)


def _constant(draw: np.random.Generator, unit: BoardUnit, start_ns: int, end_ns: int) -> Timeline:
    return make_timeline(np.array([start_ns]), _levels(draw, unit, 1), end_ns)


def _ramps(draw: np.random.Generator, unit: BoardUnit, start_ns: int, end_ns: int) -> Timeline:
    corners = [start_ns]
    while corners[-1] < end_ns:
        corners.append(corners[-1] + int(draw.uniform(0.5, 10.0) * _S))
    t_ns = np.arange(start_ns, end_ns, _S // 1_000)
    return make_timeline(t_ns, np.interp(t_ns, corners, _levels(draw, unit, len(corners))), end_ns)


def _bursts(draw: np.random.Generator, unit: BoardUnit, start_ns: int, end_ns: int) -> Timeline:
    """Of 5 to 50 ms, at random or in a rhythm."""
    number = (end_ns - start_ns) // (_S // 200) + 1
    low, high = np.sort(_levels(draw, unit, 2))
    if draw.random() < 0.5:
        on, off = draw.uniform(0.005, 0.05), draw.uniform(0.005, 0.2)
        lasting_s = np.tile([off, on], (number, 1)) * draw.normal(1.0, 0.02, (number, 1))
    else:
        mean_off = draw.uniform(0.005, 0.2)
        lasting_s = np.stack(
            [draw.exponential(mean_off, number), draw.uniform(0.005, 0.05, number)], axis=1
        )
    return _alternating(start_ns, end_ns, lasting_s, (low, high))


def _phases(draw: np.random.Generator, unit: BoardUnit, start_ns: int, end_ns: int) -> Timeline:
    number = (end_ns - start_ns) // (_S // 5) + 2
    ends = np.cumsum(draw.uniform(0.2, 5.0, number) * _S).astype(np.int64)
    t_ns = start_ns + np.append(0, ends)
    t_ns = t_ns[t_ns < end_ns]
    return make_timeline(t_ns, _levels(draw, unit, len(t_ns)), end_ns)


def _locked(draw: np.random.Generator, unit: BoardUnit, start_ns: int, end_ns: int) -> Timeline:
    """A square wave that the sensor meets in the same phase every time."""
    period_s = unit.board.sensor.period_s * draw.choice([0.5, 1.0, 1.0, 1.0, 2.0])
    duty = draw.uniform(0.15, 0.85)
    number = int((end_ns - start_ns) / _S / period_s) + 3
    lasting_s = np.tile([period_s * (1 - duty), period_s * duty], (number, 1))
    start_ns -= int(draw.uniform(0, period_s) * _S)
    low, high = np.sort(_levels(draw, unit, 2))
    return _alternating(start_ns, end_ns, lasting_s, (low, high))


def _training(draw: np.random.Generator, unit: BoardUnit, start_ns: int, end_ns: int) -> Timeline:
    """A published network's steps under any cap, with what the governor makes of them."""
    limits = unit.board.limits
    return _train(
        draw, unit, start_ns, end_ns, float(draw.uniform(limits.minimum_w, limits.maximum_w))
    )


def _train(
    draw: np.random.Generator, unit: BoardUnit, start_ns: int, end_ns: int, cap_w: float
) -> Timeline:
    load = load_workload(str(draw.choice(NETWORKS)), unit.board).step
    timeline, _ = play(unit, rest(unit, start_ns), load, ControlSettings(cap_w), until_ns=end_ns)
    return timeline


def _alternating(
    start_ns: int, end_ns: int, lasting_s: NDArray[np.float64], power_w: tuple[float, float]
) -> Timeline:
    ends = np.cumsum(np.maximum(lasting_s, 1e-4).reshape(-1) * _S)
    t_ns = start_ns + np.append(0, np.rint(ends)).astype(np.int64)
    t_ns = t_ns[t_ns < end_ns]
    return make_timeline(t_ns, np.resize(power_w, len(t_ns)), end_ns)


FAMILIES: Final[dict[str, Callable[[np.random.Generator, BoardUnit, int, int], Timeline]]] = {
    "constant": _constant,
    "ramps": _ramps,
    "bursts": _bursts,
    "phases": _phases,
    "locked": _locked,
    "training": _training,
}
