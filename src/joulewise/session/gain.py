"""A board's gain from a wall meter: live, under slow waves of load, or from an earlier run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.sensor_fit import SensorPolls
from joulewise.analyse.sensor_gain import Drawn, fit_gains
from joulewise.analyse.wall_meter import read_meter
from joulewise.data import Card, DeviceInfo, Kind, Quantity, Unavailable
from joulewise.errors import UsageError
from joulewise.record.cards import Figure
from joulewise.record.layout import Lane
from joulewise.record.manifest import read_manifest
from joulewise.record.trace import open_lane
from joulewise.session.calibrate import Bench
from joulewise.session.load import HEAVY
from joulewise.session.waves import draw_waves
from joulewise.units import NS_PER_S, Z95

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A supply of which nothing is known: 80 PLUS asks for 0.80 (plain) to 0.96 (Titanium) at half load.
USUAL_EFFICIENCY: Final = Figure(0.90, 0.06)
WAVES_S: Final = 100.0

_LEAD_S: Final = 5.0
_PAUSES_S: Final = (4.0, 10.0)  # a wall meter tells about one value a second
_PRIOR: Final = Card().gain_sigma


@dataclass(frozen=True)
class WallMeter:
    """The log that the meter writes, and what lies between it and the boards."""

    path: Path
    efficiency: Figure = USUAL_EFFICIENCY


@dataclass(frozen=True)
class Gain:
    gain: Figure | Unavailable
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


def _if_any_better(gain: Figure | Unavailable) -> Figure | Unavailable:
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
    lane = open_lane(run, key, Lane.FAST)
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
