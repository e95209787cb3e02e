"""One device over all windows of a run: its energies, its idle baseline, and what was odd.

The measured parts of a GPU's energy: its memory, and on a superchip's module the GPU itself.

They are inside what the device's counter tells, and are never added to it.

How much of the CPUs' work was the command's. Their energy is that of the whole machine.

Energy of windows in part of which a device was not read: a lower bound, up to where it was.

A GPU that fell off the bus, or whose recorder was killed, may have drawn anything afterwards. What
it drew before is known as well as ever, so that is what counts, marked as the least it can be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.analyse.attribution import Sighting, held_at
from joulewise.analyse.baseline import (
    SHORTEST_S,
    USED,
    Baseline,
    IdleState,
    IdleStretch,
    baselines,
    chosen,
    cut,
    idle_stretches,
    quiet,
)
from joulewise.analyse.chunks import ChunkReader, OpenLane
from joulewise.analyse.energy.gaps import LONG_S, across_faults, frozen
from joulewise.analyse.energy.power_integral import typical_step_ns
from joulewise.analyse.energy.windows import WindowEnergy, energy_of, window_energy
from joulewise.analyse.time_intervals import Stretch
from joulewise.data import Energy, Kind, PowerScope, Quantity, Source, Use
from joulewise.data.energy import factors_of_estimates, scale
from joulewise.devices.host.cpu_model import BUSY, IDLE
from joulewise.store.layout import StreamKind
from joulewise.store.manifest import Manifest, RecordedDevice
from joulewise.units import NS_PER_S, Z95

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from joulewise.analyse.chunks import ChunkReader
    from joulewise.store.manifest import RecordedDevice

# Polls in a row that may fail before the device counts as gone. A poll or two come late on a busy
# machine; twice as many would have a GPU that was lost 2 s before the end pass for whole.
_POLLS_MISSED: Final = 3


def bounded_energy(
    device: RecordedDevice,
    fast: ChunkReader | None,
    buffer: ChunkReader | None,
    windows_ns: NDArray[np.int64],
    marks_ns: NDArray[np.int64] | None = None,
) -> tuple[WindowEnergy, NDArray[np.float64], NDArray[np.bool_]]:
    """What each window drew, its seconds without a poll, and which energies are lower bounds.

    A window that reaches beyond the last reading, of which nothing bridges the rest, has the
    energy up to that reading. So has one whose beginning was not read for the most part. A window
    of which nothing was read, or that has no length, has none (NaN). ``marks_ns`` as of
    :func:`window_energy`.
    """
    energy, unread_s = _energy(device, fast, buffer, windows_ns, marks_ns)
    read_ns = read_parts(device, fast, windows_ns)
    is_cut = (read_ns != windows_ns).any(axis=1)
    is_lost = is_cut & ((windows_ns[:, 1] > read_ns[:, 1]) | np.isnan(energy.energy_j))
    if fast is None or not is_lost.any():
        return energy, unread_s, np.zeros(len(windows_ns), bool)
    part, _ = _energy(replace(device, awake_ns=None), fast, buffer, read_ns, marks_ns)
    is_empty = read_ns[:, 1] <= read_ns[:, 0]

    def bound(of_part: NDArray[np.float64], of_whole: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(is_lost, np.where(is_empty, np.nan, of_part), of_whole)

    bounded = replace(
        energy,
        energy_j=bound(part.energy_j, energy.energy_j),
        error_sampling_j=bound(part.error_sampling_j, energy.error_sampling_j),
        mean_w=bound(part.mean_w, energy.mean_w),
        peak_w=bound(part.peak_w, energy.peak_w),
        counter_j=bound(part.counter_j, energy.counter_j),
        integral_j=bound(part.integral_j, energy.integral_j),
    )
    return bounded, unread_s, is_lost & np.isfinite(bounded.energy_j)


def read_parts(
    device: RecordedDevice, fast: ChunkReader | None, windows_ns: NDArray[np.int64]
) -> NDArray[np.int64]:
    """From when to when the device was read in each window: from its first reading to its last."""
    end_ns = last_reading_ns(fast, int(windows_ns.max(initial=0)))
    return np.maximum(np.minimum(windows_ns, end_ns), device.awake_ns or 0)


def last_reading_ns(
    fast: ChunkReader | None, end_ns: int, quantities: Sequence[str] = ("power_w", "energy_j")
) -> int:
    """When the device was last read, where it never was again before ``end_ns``; else that."""
    names = [] if fast is None else [name for name in quantities if name in fast.columns]
    if fast is None or not fast.rows or not names:
        return end_ns
    last_ns = None
    for chunk in fast.chunks(("t_ns", *names)):
        is_read = np.any([np.isfinite(chunk[name]) for name in names], axis=0)
        if is_read.any():
            last_ns = int(chunk["t_ns"][is_read][-1])
    if last_ns is None:
        return end_ns
    patience_ns = max(LONG_S * NS_PER_S, _POLLS_MISSED * typical_step_ns(fast))
    return last_ns if end_ns - last_ns > patience_ns else end_ns


def _energy(
    device: RecordedDevice,
    fast: ChunkReader | None,
    buffer: ChunkReader | None,
    windows_ns: NDArray[np.int64],
    marks_ns: NDArray[np.int64] | None,
) -> tuple[WindowEnergy, NDArray[np.float64]]:
    energy = window_energy(device, fast, buffer, windows_ns, marks_ns)
    is_empty = windows_ns[:, 1] <= windows_ns[:, 0]
    if is_empty.any():
        energy = _without(energy, is_empty)
    return across_faults(energy, fast, np.maximum(windows_ns, device.awake_ns or 0))


def _without(energy: WindowEnergy, is_empty: NDArray[np.bool_]) -> WindowEnergy:
    """No energy where no time passed: that is no measurement, and 0 J with no error looks like one.

    A mark of a span's beginning may be the last thing that a program leaves.
    """

    def none(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(is_empty, np.nan, values)

    return replace(
        energy,
        energy_j=none(energy.energy_j),
        error_sampling_j=none(energy.error_sampling_j),
        mean_w=none(energy.mean_w),
        peak_w=none(energy.peak_w),
        counter_j=none(energy.counter_j),
        integral_j=none(energy.integral_j),
    )


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
    idle: dict[IdleState, Baseline]
    no_baseline: str

    @property
    def baseline(self) -> Baseline | None:
        return chosen(self.idle)


def bound_by_whole(
    measured: Mapping[str, MeasuredDevice], counted: Collection[str]
) -> dict[str, MeasuredDevice]:
    """The same, with modelled parts that draw no more than a measured device around them.

    The error of a model is one factor of the whole run: all windows are scaled alike.
    """
    energies = {key: one.uses[0].energy for key, one in measured.items()}
    infos = [one.device.info for one in measured.values()]
    factors = factors_of_estimates(energies, infos, counted)
    return {key: _scaled(one, *factors.get(key, (1.0, 1.0))) for key, one in measured.items()}


def _scaled(one: MeasuredDevice, factor: float, error_factor: float) -> MeasuredDevice:
    if factor == error_factor == 1.0:
        return one
    return replace(
        one,
        uses=tuple(
            replace(
                use,
                energy=scale(use.energy, factor, error_factor),
                mean_w=use.mean_w and factor * use.mean_w,
                peak_w=use.peak_w and factor * use.peak_w,
                integral_j=use.integral_j and factor * use.integral_j,
            )
            for use in one.uses
        ),
        energy_j=factor * one.energy_j,
        sampling_j=error_factor * one.sampling_j,
    )


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
    slow = _slow_lane(open_lane(key, StreamKind.SLOW))
    stretches: list[IdleStretch] = []
    no_baseline = "nothing tells whether it was idle"
    if device.info.kind is Kind.GPU and Quantity.GPU_UTILISATION.value in slow:
        no_baseline = f"it was never idle for {SHORTEST_S:g} s at a time"
        stretches = cut(idle_stretches(slow, held_at(sightings, key, slow["t_ns"]), device.card))
    idle_ns = np.array([[s.start_ns, s.end_ns] for s in stretches], np.int64).reshape(-1, 2)
    fast, buffer = open_lane(key, StreamKind.FAST), open_lane(key, StreamKind.BUFFER)
    all_ns = np.concatenate([windows_ns, idle_ns])
    told, failed_s, at_least = _told(device, fast, buffer, all_ns, marks_ns)
    if is_damaged:
        at_least = np.isfinite(told.energy_j)
    n = len(windows_ns)
    idle: dict[IdleState, Baseline] = {}
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
    fast: ChunkReader | None,
    buffer: ChunkReader | None,
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
    fast: ChunkReader | None,
    buffer: ChunkReader | None,
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


def _counts_on(fast: ChunkReader | None, run_ns: NDArray[np.int64]) -> bool:
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


def _slow_lane(reader: ChunkReader | None) -> Columns:
    """The columns that are looked at here; at one row a second they are few."""
    if reader is None:
        return {}
    names = ["t_ns", *(name for name in _SLOW if name in reader.columns)]
    chunks = list(reader.chunks(names))
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in names}


if TYPE_CHECKING:
    from numpy.typing import NDArray

PARTS: Final = {
    Quantity.GPU_POWER: ("gpu", StreamKind.FAST),
    Quantity.MEMORY_POWER: ("memory", StreamKind.SLOW),
}
"""By what its power is read from: the name of the part, and where its readings lie."""

# NVML averages power over a second from Ampere on (generations.py): each reading stands for the
# second before it, and the middle of that is half as old.
_WINDOW_S: Final = 1.0
_FEWEST: Final = 2


def measure_parts(lanes: OpenLane, device: RecordedDevice, run: Stretch) -> dict[str, Energy]:
    """What each part drew in the run, by name; those that were read at least twice.

    Of a run that is shorter than what a reading averages over nothing is known: most of what each
    reading shows is of the time before.
    The readings are joined by straight lines (the trapezoidal rule). What the first and the last of
    them do not show is taken to be within the range of all.
    """
    found = {
        name: _integrate(*_readings(rows, quantity.value), device, run)
        for quantity, (name, lane) in PARTS.items()
        if not _is_whole(quantity, device)
        and (rows := lanes(device.info.key, lane)) is not None
        and quantity.value in rows.columns
    }
    return {part: energy for part, energy in found.items() if energy is not None}


def _is_whole(quantity: Quantity, device: RecordedDevice) -> bool:
    """Whether it is no part but what the device counts: the GPU, where that is all it tells.

    Its readings are there where the device was taken for a module in its first second.
    """
    scope = device.info.power_scope
    return quantity is Quantity.GPU_POWER and scope is PowerScope.GPU


def _readings(rows: ChunkReader, name: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    chunks = list(rows.chunks(["t_ns", name]))
    return (
        np.concatenate([chunk["t_ns"] for chunk in chunks]),
        np.concatenate([chunk[name] for chunk in chunks]).astype(np.float64),
    )


def _integrate(
    t_ns: NDArray[np.int64],
    power_w: NDArray[np.float64],
    device: RecordedDevice,
    run: Stretch,
) -> Energy | None:
    is_read = np.isfinite(power_w) & (t_ns >= run.start_ns)
    is_read &= t_ns <= run.end_ns + round(_WINDOW_S * NS_PER_S)
    end_s = (run.end_ns - run.start_ns) / NS_PER_S
    if is_read.sum() < _FEWEST or end_s < _WINDOW_S:
        return None
    middle_s = (t_ns[is_read] - run.start_ns) / NS_PER_S - _WINDOW_S / 2
    watts = power_w[is_read]
    within = (middle_s > 0) & (middle_s < end_s)
    times_s = np.concatenate([[0.0], middle_s[within], [end_s]])
    levels_w = np.interp(times_s, middle_s, watts)
    energy_j = float(np.sum((levels_w[1:] + levels_w[:-1]) * np.diff(times_s)) / 2)
    unseen_s = float(np.median(np.diff(middle_s))) + _WINDOW_S
    sampling_j = float(np.ptp(watts)) * unseen_s / 2
    gain_j = Z95 * device.card.gain_sigma * energy_j
    source = Source.SIMULATED if device.is_simulated else Source.MEASURED
    return Energy(energy_j, sampling_j, gain_j, source)


@dataclass(frozen=True)
class CpuShare:
    """CPU time of the command (with children, also short-lived ones), of us, and of all.

    ``command_share_j`` is of what load adds to the modelled energy, as much as the command has of
    the busy time. None is what nobody knows.
    """

    command_s: float | None
    recorder_s: float | None
    busy_s: float | None = None
    command_share_j: float | None = None


def cpu_share(counted: Sequence[MeasuredDevice], manifest: Manifest, run: Stretch) -> CpuShare:
    known = [command.cpu_s for command in manifest.commands]
    told = [cpu_s for cpu_s in known if cpu_s is not None]
    command_s = sum(told) if told and len(told) == len(known) else None
    recorder_s = manifest.recorder.cpu_s if manifest.recorder else None
    loads = list(_loads(counted, run))
    cpus = manifest.host.get("cpus", "")
    if not loads or not cpus:
        return CpuShare(command_s, recorder_s)
    mean = sum(load for _, load in loads) / len(loads)
    busy_s = mean * int(cpus) * run.time_s
    by_load_j = sum(_by_load_j(measured, load) for measured, load in loads)
    share_j = None
    if command_s is not None and busy_s > 0 and by_load_j > 0:
        share_j = by_load_j * min(command_s / busy_s, 1.0)
    return CpuShare(command_s, recorder_s, busy_s, share_j)


def _loads(
    counted: Sequence[MeasuredDevice], run: Stretch
) -> Iterator[tuple[MeasuredDevice, float]]:
    """Of each CPU the mean load, from 0 to 1."""
    for measured in counted:
        if measured.device.info.kind is Kind.CPU and Quantity.LOAD.value in measured.slow:
            load = measured.slow[Quantity.LOAD.value][run.holds(measured.slow["t_ns"])]
            if np.isfinite(load).any():
                yield measured, float(np.nanmean(load)) / 100


def _by_load_j(measured: MeasuredDevice, load: float) -> float:
    """What of a modelled energy is the load's; of a measured one nobody knows."""
    energy = measured.uses[0].energy
    if energy is None or energy.source is not Source.MODELLED:
        return 0.0
    return energy.value * BUSY * load / (IDLE + BUSY * load)
