"""One device over all windows of a run: its energies, its idle baseline, and what was odd."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from joulewise.analyse.energy import WindowEnergy, energy_of
from joulewise.analyse.frozen import frozen
from joulewise.analyse.lanes import OpenLane, Rows
from joulewise.analyse.lower_bound import bounded_energy, last_reading_ns, read_parts
from joulewise.analyse.stretch import Stretch
from joulewise.analyse.touched import Sighting, held_at
from joulewise.analyse.unread import LONG_S
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
    Quantity.GPU_POWER.value,
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

    ``frozen`` is when the counter stood still for longest, where it never does. ``has_counter``
    says whether the energy counter ran on meanwhile: it was read before and after all of that.
    """

    disagree: bool
    counter_broken: bool
    gap: Lapse
    unread: Lapse
    still: Lapse
    frozen: Stretch | None
    has_counter: bool


@dataclass(frozen=True)
class MeasuredDevice:
    """What a device did: ``uses`` of those windows that are wanted in full, in their order.

    ``energy_j`` and ``sampling_j`` are of all windows, and so is ``clean``: no fault of the sensor
    is in there. NaN is what is not known, or only as a lower bound. The first window is the run.
    ``read`` is the part of the run that its energy is of, where that is a lower bound. ``idle`` has
    each kind of idle that the trace contains, ``no_baseline`` why it has none.
    """

    device: RecordedDevice
    uses: tuple[Use, ...]
    energy_j: NDArray[np.float64]
    sampling_j: NDArray[np.float64]
    clean: NDArray[np.bool_]
    oddities: Oddities
    read: Stretch | None
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
    *,
    marks_ns: NDArray[np.int64] | None = None,
    is_damaged: bool = False,
) -> MeasuredDevice:
    """The energies of all windows in one pass, the idle stretches among them.

    ``marks_ns`` are the run's (load_marks.py); the edges of the windows where nothing is said.
    All energies are lower bounds where the file that they come from ``is_damaged``.
    """
    marks_ns = windows_ns if marks_ns is None else marks_ns
    key = device.info.key
    slow = _slow_lane(open_lane(key, Lane.SLOW))
    stretches: list[IdleStretch] = []
    no_baseline = "nothing tells whether it was idle"
    if device.info.kind is Kind.GPU and Quantity.GPU_UTILISATION.value in slow:
        no_baseline = f"it was never idle for {SHORTEST_S:g} s at a time"
        stretches = cut(idle_stretches(slow, held_at(sightings, key, slow["t_ns"]), device.card))
    idle_ns = np.array([[s.start_ns, s.end_ns] for s in stretches], np.int64).reshape(-1, 2)
    fast, buffer = open_lane(key, Lane.FAST), open_lane(key, Lane.BUFFER)
    all_ns = np.concatenate([windows_ns, idle_ns])
    told, failed_s, at_least = _told(device, fast, buffer, all_ns, marks_ns)
    if is_damaged:
        at_least = np.isfinite(told.energy_j)
    n = len(windows_ns)
    idle: dict[Idle, Baseline] = {}
    if stretches:
        no_baseline = "its power did not keep still while it seemed idle"
        sure = quiet(stretches, told.mean_w[n:], told.peak_w[n:], float(told.peak_w[0]))
        idle_j = np.where(sure, told.energy_j[n:], np.nan)
        idle = baselines(stretches, idle_j, told.error_sampling_j[n:], float(told.mean_w[0]))
    read_ns = read_parts(device, fast, windows_ns) if at_least[:n].any() else windows_ns
    times_s = (read_ns[:, 1] - read_ns[:, 0]) / NS_PER_S
    uses = tuple(
        _use(told, i, device, chosen(idle), float(times_s[i]), at_least=bool(at_least[i]))
        for i in wanted.tolist()
    )
    gap, unread, still = _lapses(device, fast, buffer, windows_ns[0], failed_s[:, 0])
    stopped = frozen(device, fast, Stretch(*windows_ns[0].tolist()))
    return MeasuredDevice(
        device,
        uses,
        np.where(at_least, np.nan, told.energy_j)[:n],
        told.error_sampling_j[:n],
        ~(told.disagree | told.counter_broken | (failed_s > 0).any(axis=0))[:n],
        Oddities(
            disagree=bool(told.disagree[0]),
            counter_broken=bool(told.counter_broken[0]),
            gap=gap,
            unread=unread,
            still=still,
            frozen=stopped,
            has_counter=bool((failed_s[:, 0] > 0).any() and not told.counter_broken[0])
            and _counts_on(fast, windows_ns[0]),
        ),
        Stretch(*read_ns[0].tolist()) if at_least[0] else None,
        slow,
        idle,
        "" if idle else no_baseline,
    )


def _told(
    device: RecordedDevice,
    fast: Rows | None,
    buffer: Rows | None,
    windows_ns: NDArray[np.int64],
    marks_ns: NDArray[np.int64],
) -> tuple[WindowEnergy, NDArray[np.float64], NDArray[np.bool_]]:
    """What each window drew, its seconds of each kind of failure, and what is a lower bound.

    The kinds are in the order of lapses.
    """
    told, unread_s, at_least = bounded_energy(device, fast, buffer, windows_ns, marks_ns)
    return told, np.stack([told.gap_s, unread_s, told.still_s]), at_least


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
        piece_s = _told(device, fast, buffer, pieces_ns, run_ns)[1]
    return [Lapse(float(s), pieces_ns, each) for s, each in zip(failed_s, piece_s, strict=True)]


def _pieces(start_ns: int, end_ns: int) -> NDArray[np.int64]:
    piece_ns = max(round(_PIECE_S * NS_PER_S), (end_ns - start_ns) // _MOST_PIECES)
    starts_ns = np.arange(start_ns, max(end_ns, start_ns + 1), piece_ns)
    return np.column_stack([starts_ns, np.minimum(starts_ns + piece_ns, end_ns)])


def _use(
    told: WindowEnergy,
    i: int,
    device: RecordedDevice,
    idle: Baseline | None,
    time_s: float,
    *,
    at_least: bool,
) -> Use:
    energy: Energy | None = energy_of(told, i, device)
    if energy is None:
        return Use(None)
    energy = replace(energy, at_least=at_least)
    net = idle.net(energy, time_s) if idle else None
    return Use(
        energy,
        net and replace(net, at_least=at_least),
        _said(told.mean_w[i]),
        _said(told.peak_w[i]),
        _said(told.counter_j[i]),
        _said(told.integral_j[i]),
        time_s if at_least else None,
    )


def _counts_on(fast: Rows | None, run_ns: NDArray[np.int64]) -> bool:
    """Whether the counter was read from before the run, or soon after its start, to its end."""
    name, (start_ns, end_ns) = Quantity.ENERGY.value, run_ns.tolist()
    if fast is None or name not in fast.columns:
        return False
    if last_reading_ns(fast, end_ns, [name]) < end_ns:
        return False
    firsts = (
        int(chunk["t_ns"][is_read][0])
        for chunk in fast.chunks(("t_ns", name))
        if (is_read := np.isfinite(chunk[name])).any()
    )
    return bool(next(firsts, end_ns) <= start_ns + round(LONG_S * NS_PER_S))


def _said(value: np.float64) -> float | None:
    return float(value) if np.isfinite(value) else None


def _slow_lane(reader: Rows | None) -> Columns:
    """The columns that are looked at here; at one row a second they are few."""
    if reader is None:
        return {}
    names = ["t_ns", *(name for name in _SLOW if name in reader.columns)]
    chunks = list(reader.chunks(names))
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in names}
