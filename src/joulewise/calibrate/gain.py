"""A board's gain from a wall meter: how much more the wall sees when the GPU says it draws more.

The rest of the node is a constant that may drift; what is between the board and the wall is the
power supply's efficiency. So the meter is a straight line in what the boards say, and its slope
is 1 / (efficiency x gain). The meter's clock and the time over which it averages are found too,
as those under which the line fits best.

A board's gain from a wall meter: live, under slow waves of load, or from an earlier run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.calibrate.bench import draw_waves
from joulewise.calibrate.board import Bench
from joulewise.calibrate.gpu_load import HEAVY
from joulewise.calibrate.response import SensorPolls
from joulewise.calibrate.wall_meter import Meter, read_meter
from joulewise.data import DeviceInfo, Kind, Quantity, SensorProfile, Unavailable
from joulewise.errors import UsageError
from joulewise.record.sensor_profiles import CalibratedValue
from joulewise.store.layout import StreamKind
from joulewise.store.manifest import read_manifest
from joulewise.store.trace import open_lane
from joulewise.units import NS_PER_S, Z95

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# Fans, regulators and the core that feeds the GPU draw more when it works: a part of the slope
# (95 %) that is not the board's.
REST_SHARE: Final = 0.02

_LEAST_SWING_W: Final = 10.0
_FOLLOWS: Final = 0.8
_FEWEST: Final = 20
_LEVEL: Final = 0.1
_MOST_AHEAD_S: Final = 60.0
_AVERAGES: Final = (0.1, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0, 5.0)
_PARTS: Final = 10
_STUDENT_95: Final = 2.26


@dataclass(frozen=True)
class Drawn:
    """What a board says it has drawn by each moment."""

    t_s: Array
    energy_j: Array

    def mean_w(self, start_s: Array, end_s: Array) -> Array:
        used_j = np.interp(end_s, self.t_s, self.energy_j)
        used_j -= np.interp(start_s, self.t_s, self.energy_j)
        return np.asarray(used_j / (end_s - start_s))


@dataclass(frozen=True)
class Gains:
    """``gains`` is one for each board, or why it cannot be told; the meter's clock is ahead."""

    gains: tuple[CalibratedValue | Unavailable, ...]
    ahead_s: float
    average_s: float


def fit_gains(
    meter: Meter, boards: Sequence[Drawn], efficiency: CalibratedValue
) -> Gains | Unavailable:
    """All boards at once: a node has several, and each must be told from the others."""
    interval_s = float(np.median(np.diff(meter.t_s)))
    averages_s = [interval_s * factor for factor in _AVERAGES]
    found = _aligned(
        meter, boards, np.arange(-_MOST_AHEAD_S, _MOST_AHEAD_S, interval_s / 4), averages_s
    )
    if found is None:
        return Unavailable("the meter's log and the recording have no minute in common")
    fine = found.ahead_s + interval_s * np.linspace(-0.5, 0.5, 41)
    found = _aligned(meter, boards, fine, np.geomspace(0.6, 1.6, 9) * found.average_s) or found
    moved_w = np.ptp(found.columns[:, 2:], axis=0)
    level = found.kept(_level(found, boards, interval_s))
    if found.left > 1 - _FOLLOWS or moved_w.max() < _LEAST_SWING_W:
        return Unavailable(
            f"the meter follows the GPU by only {1 - found.left:.0%}: the node had other work, "
            "or its log is of another time"
        )
    if level.power_w.size < _FEWEST:
        return Unavailable(
            f"the load was steady for only {level.power_w.size} of the meter's readings: "
            "it takes pauses and loads of several of them"
        )
    slopes = level.solved()[2:]
    part = np.arange(level.power_w.size) * _PARTS // level.power_w.size
    without = np.array([level.kept(part != i).solved()[2:] for i in range(_PARTS)])
    spread = np.sqrt((_PARTS - 1) / _PARTS * ((without - without.mean(0)) ** 2).sum(0))
    gains = tuple(
        _gain(slope, _STUDENT_95 * error, swing_w, efficiency)
        for slope, error, swing_w in zip(slopes, spread, _own_swings_w(level), strict=True)
    )
    return Gains(gains, found.ahead_s, found.average_s)


def _gain(
    slope: float, error: float, swing_w: float, efficiency: CalibratedValue
) -> CalibratedValue | Unavailable:
    if swing_w < _LEAST_SWING_W or slope <= 0 or error > slope / 2:
        return Unavailable("this board's load moved too little, or only together with another's")
    gain = 1 / (efficiency.value * slope)
    relative = np.sqrt(
        (error / slope) ** 2 + (efficiency.error / efficiency.value) ** 2 + REST_SHARE**2
    )
    return CalibratedValue(float(gain), float(gain * relative))


def _own_swings_w(line: _GainLine) -> list[float]:
    """By how much each board moved that no other did: what tells it from them."""
    swings_w = []
    for at in range(2, line.columns.shape[1]):
        column, others = line.columns[:, at], np.delete(line.columns, at, axis=1)
        shared, *_ = np.linalg.lstsq(others, column, rcond=None)
        alone = np.std(column - others @ shared) / max(np.std(column), 1e-9)
        swings_w.append(float(np.ptp(column) * alone))
    return swings_w


@dataclass(frozen=True)
class _GainLine:
    """The meter against the boards, for one clock and one averaging time."""

    ahead_s: float
    average_s: float
    end_s: Array
    power_w: Array
    columns: Array

    def kept(self, keep: NDArray[np.bool_]) -> _GainLine:
        parts = (self.end_s[keep], self.power_w[keep], self.columns[keep])
        return _GainLine(self.ahead_s, self.average_s, *parts)

    def solved(self) -> Array:
        found, *_ = np.linalg.lstsq(self.columns, self.power_w, rcond=None)
        return np.asarray(found)

    @property
    def left(self) -> float:
        """The share of the meter's variance that the boards do not explain."""
        residual = self.power_w - self.columns @ self.solved()
        return float(residual.var() / max(self.power_w.var(), 1e-12))


def _aligned(
    meter: Meter, boards: Sequence[Drawn], ahead_s: Array, averages_s: Sequence[float] | Array
) -> _GainLine | None:
    """The likeliest of all; a clock under which less of the log is used must fit the better."""
    best, likeliest = None, 0.0
    for average_s in averages_s:
        for ahead in ahead_s:
            line = _line(meter, boards, float(ahead), float(average_s))
            if line is None:
                continue
            likely = -line.power_w.size * np.log(max(line.left, 1e-9))
            if likely > likeliest:
                best, likeliest = line, likely
    return best


def _line(
    meter: Meter, boards: Sequence[Drawn], ahead_s: float, average_s: float
) -> _GainLine | None:
    end_s = meter.t_s - ahead_s
    start_s = end_s - average_s
    known = (start_s >= max(b.t_s[0] for b in boards)) & (end_s <= min(b.t_s[-1] for b in boards))
    if known.sum() < _FEWEST:
        return None
    start_s, end_s = start_s[known], end_s[known]
    drift = (end_s - end_s.mean()) / np.ptp(end_s)
    said_w = [board.mean_w(start_s, end_s) for board in boards]
    columns = np.column_stack([np.ones_like(drift), drift, *said_w])
    return _GainLine(ahead_s, average_s, end_s, meter.power_w[known], columns)


def _level(line: _GainLine, boards: Sequence[Drawn], margin_s: float) -> NDArray[np.bool_]:
    """Where no board's load changed for some time around: there the exact clock does not matter."""
    start_s = line.end_s - line.average_s
    level = np.ones(line.end_s.size, bool)
    for board in boards:
        means_w = np.array(
            [
                board.mean_w(start_s - margin_s, start_s),
                board.mean_w(start_s, line.end_s),
                board.mean_w(line.end_s, line.end_s + margin_s),
            ]
        )
        level &= np.ptp(means_w, axis=0) <= _LEVEL * max(np.ptp(means_w[1]), _LEAST_SWING_W)
    return level


if TYPE_CHECKING:
    from numpy.typing import NDArray

# A supply of which nothing is known: 80 PLUS asks for 0.80 (plain) to 0.96 (Titanium) at half load.
USUAL_EFFICIENCY: Final = CalibratedValue(0.90, 0.06)
WAVES_S: Final = 100.0

_LEAD_S: Final = 5.0
_PAUSES_S: Final = (4.0, 10.0)  # a wall meter tells about one value a second
_PRIOR: Final = SensorProfile().gain_sigma


@dataclass(frozen=True)
class WallMeter:
    """The log that the meter writes, and what lies between it and the boards."""

    path: Path
    efficiency: CalibratedValue = USUAL_EFFICIENCY


@dataclass(frozen=True)
class Gain:
    gain: CalibratedValue | Unavailable
    how: str


def gain_from_waves(
    bench: Bench, meter: WallMeter, *, seed: int = 0, progress: Callable[[float], None]
) -> Gain:
    """Load the board slowly, while the meter writes its log."""
    read_meter(meter.path, _wall_ahead_s(), fewest=0)  # what is wrong with it is best said at once
    waves = draw_waves(WAVES_S - _LEAD_S, *_PAUSES_S, lead_s=_LEAD_S, seed=seed)
    recording = bench.record(waves, HEAVY, progress)
    if recording.faults:
        return Gain(Unavailable("; ".join(recording.faults)), "")
    (gain,) = _told(meter, _wall_ahead_s(), [_of_recording(recording)])
    return gain


def gains_from_run(run: Path, meter: WallMeter) -> dict[DeviceInfo, Gain]:
    """Of every GPU of the run; its load must have gone up and down."""
    manifest = read_manifest(run)
    gpus = [device.info for device in manifest.devices if device.info.kind is Kind.GPU]
    drawn = {info: found for info in gpus if (found := _of_run(run, info.key)) is not None}
    if not drawn:
        raise UsageError(
            f"run {manifest.id} has no trace of a GPU", "joulewise show tells what it has"
        )
    ahead_s = (manifest.wall_start_ns - manifest.monotonic_start_ns) / NS_PER_S
    return dict(zip(drawn, _told(meter, ahead_s, list(drawn.values())), strict=True))


def _told(meter: WallMeter, wall_ahead_s: float, boards: list[Drawn]) -> list[Gain]:
    log = read_meter(meter.path, wall_ahead_s)
    found = fit_gains(log, boards, meter.efficiency)
    if isinstance(found, Unavailable):
        return [Gain(found, "") for _ in boards]
    how = (
        f"{meter.path.name}, a supply of {meter.efficiency.value:g} ± {meter.efficiency.error:g}, "
        f"the meter's clock {found.ahead_s:+.1f} s"
    )
    return [Gain(_if_any_better(gain), how) for gain in found.gains]


def _if_any_better(gain: CalibratedValue | Unavailable) -> CalibratedValue | Unavailable:
    if isinstance(gain, Unavailable) or gain.error / gain.value < Z95 * _PRIOR:
        return gain
    return Unavailable(
        f"the meter tells {gain.value:.3f} ± {gain.error:.3f}, "
        f"no better than the ± {Z95 * _PRIOR:.3f} that is known without it",
        "name the power supply's efficiency: --psu-efficiency 0.94±0.01",
    )


def _of_recording(recording: SensorPolls) -> Drawn:
    energy_j = recording.columns.get(Quantity.ENERGY)
    return _drawn(recording.t_s, recording.columns[Quantity.POWER], energy_j)


def _of_run(run: Path, key: str) -> Drawn | None:
    lane = open_lane(run, key, StreamKind.FAST)
    if lane is None or Quantity.POWER.value not in lane.columns:
        return None
    names = [n for n in ("t_ns", Quantity.POWER.value, Quantity.ENERGY.value) if n in lane.columns]
    chunks = list(lane.chunks(names))
    column = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in names}
    t_s = column["t_ns"] / NS_PER_S
    return _drawn(t_s, column[Quantity.POWER.value], column.get(Quantity.ENERGY.value))


def _drawn(
    t_s: NDArray[np.float64],
    power_w: NDArray[np.float64],
    energy_j: NDArray[np.float64] | None,
) -> Drawn:
    """By the counter, else by holding each reading until the next."""
    if energy_j is not None and np.isfinite(energy_j).any():
        good = np.isfinite(energy_j)
        t_s, energy_j = t_s[good], energy_j[good]
        # Between two of its steps the counter stands still, and the board does not.
        stepped = np.diff(energy_j, prepend=energy_j[0] - 1.0) != 0
        return Drawn(t_s[stepped], energy_j[stepped])
    good = np.isfinite(power_w)
    t_s, power_w = t_s[good], power_w[good]
    return Drawn(t_s, np.concatenate([[0.0], np.cumsum(power_w[:-1] * np.diff(t_s))]))


def _wall_ahead_s() -> float:
    return time.time() - time.monotonic()
