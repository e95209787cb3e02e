"""One device over all windows of a run: its energies, its idle baseline, and what was odd."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.analyse.baseline import (
    SHORTEST_S,
    USED,
    Baseline,
    Idle,
    IdleStretch,
    baselines,
    chosen,
    cut,
    idle_stretches,
    quiet,
)
from joulewise.analyse.energy import WindowEnergy, energy_of, window_energy
from joulewise.analyse.frozen import frozen
from joulewise.analyse.lanes import OpenLane, Rows
from joulewise.analyse.stretch import Stretch
from joulewise.analyse.touched import Sighting, held_at
from joulewise.analyse.unread import across_faults
from joulewise.data import Energy, Kind, Quantity, Use
from joulewise.record.layout import Lane
from joulewise.record.manifest import RecordedDevice
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

Columns = dict[str, "NDArray[Any]"]
_PIECE_S: Final = 0.5
_MOST_PIECES: Final = 2_000
_SLOW: Final = (
    *USED,
    Quantity.THROTTLE.value,
    Quantity.LOAD.value,
    Quantity.ENFORCED_LIMIT.value,
    Quantity.TEMPERATURE.value,
)


@dataclass(frozen=True)
class Lapse:
    """Seconds of the run in which something failed, all together and in each of its pieces."""

    time_s: float
    pieces_ns: NDArray[np.int64]
    piece_s: NDArray[np.float64]

    @property
    def first_ns(self) -> int:
        """About when it began: it lasts up to the end of its first piece if it goes on there."""
        first = int(np.argmax(self.piece_s > 0))
        start_ns, end_ns = map(int, self.pieces_ns[first])
        goes_on = self.piece_s[first + 1 : first + 2].any()
        return end_ns - round(self.piece_s[first] * NS_PER_S) if goes_on else start_ns


@dataclass(frozen=True)
class Oddities:
    """Of the run: no reading of power, none of something that is polled, always the same.

    ``frozen`` is when the counter stood still for longest, where it never does.
    """

    disagree: bool
    counter_broken: bool
    gap: Lapse
    unread: Lapse
    still: Lapse
    frozen: Stretch | None


@dataclass(frozen=True)
class MeasuredDevice:
    """What a device did: ``uses`` of those windows that are wanted in full, in their order.

    ``energy_j`` and ``sampling_j`` are of all windows, and so is ``clean``: no fault of the sensor
    is in there. The first window is the run.
    ``idle`` has each kind of idle that the trace contains, ``no_baseline`` why it has none.
    """

    device: RecordedDevice
    uses: tuple[Use, ...]
    energy_j: NDArray[np.float64]
    sampling_j: NDArray[np.float64]
    clean: NDArray[np.bool_]
    oddities: Oddities
    slow: Columns
    idle: dict[Idle, Baseline]
    no_baseline: str

    @property
    def baseline(self) -> Baseline | None:
        return chosen(self.idle)


def measure(
    open_lane: OpenLane,
    device: RecordedDevice,
    windows_ns: NDArray[np.int64],
    wanted: NDArray[np.int64],
    sightings: Sequence[Sighting],
) -> MeasuredDevice:
    """The energies of all windows in one pass, the idle stretches among them."""
    key = device.info.key
    slow = _slow_lane(open_lane(key, Lane.SLOW))
    stretches: list[IdleStretch] = []
    no_baseline = "nothing tells whether it was idle"
    if device.info.kind is Kind.GPU and Quantity.GPU_UTILISATION.value in slow:
        no_baseline = f"it was never idle for {SHORTEST_S:g} s at a time"
        stretches = cut(idle_stretches(slow, held_at(sightings, key, slow["t_ns"]), device.card))
    idle_ns = np.array([[s.start_ns, s.end_ns] for s in stretches], np.int64).reshape(-1, 2)
    fast, buffer = open_lane(key, Lane.FAST), open_lane(key, Lane.BUFFER)
    told, failed_s = _told(device, fast, buffer, np.concatenate([windows_ns, idle_ns]))
    n = len(windows_ns)
    idle: dict[Idle, Baseline] = {}
    if stretches:
        no_baseline = "its power did not keep still while it seemed idle"
        sure = quiet(stretches, told.mean_w[n:], told.peak_w[n:], float(told.peak_w[0]))
        idle_j = np.where(sure, told.energy_j[n:], np.nan)
        idle = baselines(stretches, idle_j, told.error_sampling_j[n:], float(told.mean_w[0]))
    times_s = (windows_ns[:, 1] - windows_ns[:, 0]) / NS_PER_S
    uses = tuple(_use(told, i, device, chosen(idle), times_s[i]) for i in wanted.tolist())
    gap, unread, still = _lapses(device, fast, buffer, windows_ns[0], failed_s[:, 0])
    stopped = frozen(device, fast, Stretch(*windows_ns[0].tolist()))
    return MeasuredDevice(
        device,
        uses,
        told.energy_j[:n],
        told.error_sampling_j[:n],
        ~(told.disagree | told.counter_broken | (failed_s > 0).any(axis=0))[:n],
        Oddities(bool(told.disagree[0]), bool(told.counter_broken[0]), gap, unread, still, stopped),
        slow,
        idle,
        "" if idle else no_baseline,
    )


def _told(
    device: RecordedDevice, fast: Rows | None, buffer: Rows | None, windows_ns: NDArray[np.int64]
) -> tuple[WindowEnergy, NDArray[np.float64]]:
    """What each window drew, and its seconds of each kind of failure, in the order of lapses."""
    told = window_energy(device, fast, buffer, windows_ns)
    told, unread_s = across_faults(told, fast, np.maximum(windows_ns, device.awake_ns or 0))
    return told, np.stack([told.gap_s, unread_s, told.still_s])


def _lapses(
    device: RecordedDevice,
    fast: Rows | None,
    buffer: Rows | None,
    run_ns: NDArray[np.int64],
    failed_s: NDArray[np.float64],
) -> list[Lapse]:
    """When in the run the sensor failed; as a rule it never did, and nobody has to look."""
    pieces_ns, piece_s = run_ns[None], failed_s[:, None]
    if (failed_s > 0).any():
        pieces_ns = _pieces(*run_ns.tolist())
        piece_s = _told(device, fast, buffer, pieces_ns)[1]
    return [Lapse(float(s), pieces_ns, each) for s, each in zip(failed_s, piece_s, strict=True)]


def _pieces(start_ns: int, end_ns: int) -> NDArray[np.int64]:
    piece_ns = max(round(_PIECE_S * NS_PER_S), (end_ns - start_ns) // _MOST_PIECES)
    starts_ns = np.arange(start_ns, max(end_ns, start_ns + 1), piece_ns)
    return np.column_stack([starts_ns, np.minimum(starts_ns + piece_ns, end_ns)])


def _use(
    told: WindowEnergy, i: int, device: RecordedDevice, idle: Baseline | None, time_s: float
) -> Use:
    energy: Energy | None = energy_of(told, i, device)
    if energy is None:
        return Use(None)
    return Use(
        energy,
        idle.net(energy, time_s) if idle else None,
        _said(told.mean_w[i]),
        _said(told.peak_w[i]),
        _said(told.counter_j[i]),
        _said(told.integral_j[i]),
    )


def _said(value: np.float64) -> float | None:
    return float(value) if np.isfinite(value) else None


def _slow_lane(reader: Rows | None) -> Columns:
    """The columns that are looked at here; at one row a second they are few."""
    if reader is None:
        return {}
    names = ["t_ns", *(name for name in _SLOW if name in reader.columns)]
    chunks = list(reader.chunks(names))
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in names}
