"""One device over all windows of a run: its energies, its idle baseline, and its faults.

- `measure`: all of it, in one pass over the device's streams
- `bounded_energy`: energies, where a device that was not read in part of a window has a lower
  bound. A GPU that fell off the bus, or whose recorder was killed, may have drawn anything
  afterwards. What it drew before is known as well as ever, so that is what counts
- `measure_parts`: the measured parts of a GPU's energy (its memory, and on a superchip's module the
  GPU itself). They are inside what the device's counter shows, and are never added to it
- `cpu_share`: how much of the CPUs' work was the command's; their energy is the whole machine's
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from joulewise.analyse.attribution import Sighting, held_at
from joulewise.analyse.baseline import (
    MIN_IDLE_S,
    USED,
    Baseline,
    IdleState,
    baselines,
    choose_baseline,
    find_idle,
    find_quiet,
    split_idle,
)
from joulewise.analyse.chunks import (
    Bools,
    ChunkReader,
    Columns,
    Floats,
    Ints,
    OpenStream,
    typical_step_ns,
)
from joulewise.analyse.energy.gaps import (
    LONG_S,
    MISSED_POLLS,
    find_frozen_counter,
    widen_across_faults,
)
from joulewise.analyse.energy.windows import WindowEnergy, energy_of, gain_error, window_energy
from joulewise.analyse.time_intervals import TimeInterval
from joulewise.data import Energy, Kind, PowerScope, Quantity, Source, Use
from joulewise.data.energy import factors_of_estimates, scale
from joulewise.devices.host.cpu_model import BUSY_SHARE, IDLE_SHARE
from joulewise.store.layout import StreamKind
from joulewise.store.manifest import Manifest, RecordedDevice
from joulewise.units import NS_PER_S

# Faults are located in the run by pieces of half a second, or longer ones in a long run (chosen;
# doubled, the time in a warning is less exact).
_PIECE_S: Final = 0.5
_MAX_PIECES: Final = 2_000
_SLOW: Final = (
    *USED,
    Quantity.THROTTLE.value,
    Quantity.LOAD.value,
    Quantity.ENFORCED_LIMIT.value,
    Quantity.TEMPERATURE.value,
    Quantity.GPU_POWER.value,
)
# Figures of a window that are replaced where the window is empty or read in part.
_BOUNDED: Final = (
    *("energy_j", "error_sampling_j", "mean_w", "peak_w"),
    *("counter_j", "integral_j"),
)
PARTS: Final = {
    Quantity.GPU_POWER: ("gpu", StreamKind.FAST),
    Quantity.MEMORY_POWER: ("memory", StreamKind.SLOW),
}
"""By the quantity of its power: the name of a part, and the stream of its readings."""

# NVML averages power over a second from Ampere on (devices/nvidia/sensor_tables.py): each reading
# stands for the second before it, and the middle of that is half as old.
_WINDOW_S: Final = 1.0
_MIN_READINGS: Final = 2


@dataclass(frozen=True)
class FaultTime:
    """Seconds of the run in which something failed, all together and in each of its pieces."""

    time_s: float
    pieces_ns: Ints
    piece_s: Floats

    @property
    def first_ns(self) -> int:
        """About when it began: it lasts up to the end of its first piece if it goes on there."""
        first = int(np.argmax(self.piece_s > 0))
        start_ns, end_ns = map(int, self.pieces_ns[first])
        goes_on = self.piece_s[first + 1 : first + 2].any()
        return end_ns - round(self.piece_s[first] * NS_PER_S) if goes_on else start_ns


@dataclass(frozen=True)
class SensorFaults:
    """What was wrong with the sensors of a device during the run.

    - ``disagree``: counter and power readings differ by more than their errors
    - ``counter_broken``: the counter went back or jumped; ``frozen``: when it stood still longest
    - ``gap``: no reading of power; ``unread``: a poll failed; ``stuck``: always the same reading
    - ``has_counter``: the counter ran on meanwhile, and was read before and after all of that
    """

    disagree: bool
    counter_broken: bool
    gap: FaultTime
    unread: FaultTime
    stuck: FaultTime
    frozen: TimeInterval | None
    has_counter: bool


@dataclass(frozen=True)
class MeasuredDevice:
    """The energies of one device; the first window is the run.

    ``uses`` are in full, of the windows that were wanted. ``energy_j`` and ``sampling_j`` are of
    all windows, NaN where not known or only as a lower bound; ``clean`` says whether a window is
    free of sensor faults. ``read`` is the part of the run that its energy is of, where that is a
    lower bound. ``idle`` has each kind of idle that the trace contains, ``no_baseline`` the reason
    why there is none.
    """

    device: RecordedDevice
    uses: tuple[Use, ...]
    energy_j: Floats
    sampling_j: Floats
    clean: Bools
    faults: SensorFaults
    read: TimeInterval | None
    slow: Columns
    idle: dict[IdleState, Baseline]
    no_baseline: str

    @property
    def baseline(self) -> Baseline | None:
        return choose_baseline(self.idle)


def measure(
    open_stream: OpenStream,
    device: RecordedDevice,
    windows_ns: Ints,
    wanted: Ints,
    sightings: Sequence[Sighting],
    *,
    marks_ns: Ints | None = None,
    is_damaged: bool = False,
) -> MeasuredDevice:
    """Measure all windows, and the idle intervals among them, in one pass.

    ``wanted`` are the windows whose use is given in full. At ``marks_ns`` the load may have
    changed; without them, at the edges of the windows. Where the file that the energies come from
    ``is_damaged``, all of them are lower bounds.
    """
    marks_ns = windows_ns if marks_ns is None else marks_ns
    key = device.info.key
    slow = _read_slow(open_stream(key, StreamKind.SLOW))
    idle_pieces = []
    no_baseline = "its utilisation was not read, so that it is not known when it was idle"
    if device.info.kind is Kind.GPU and Quantity.GPU_UTILISATION.value in slow:
        no_baseline = f"it was never idle for {MIN_IDLE_S:g} s at a time"
        held = held_at(sightings, key, slow["t_ns"])
        idle_pieces = split_idle(find_idle(slow, held, device.card))
    idle_ns = np.array([[piece.start_ns, piece.end_ns] for piece in idle_pieces], np.int64)
    fast, buffer = open_stream(key, StreamKind.FAST), open_stream(key, StreamKind.BUFFER)
    all_ns = np.concatenate([windows_ns, idle_ns.reshape(-1, 2)])
    energy, failed_s, at_least = _energy_and_faults(device, fast, buffer, all_ns, marks_ns)
    if is_damaged:
        at_least = np.isfinite(energy.energy_j)
    n = len(windows_ns)
    idle: dict[IdleState, Baseline] = {}
    if idle_pieces:
        no_baseline = "its power varied while it seemed idle"
        quiet = find_quiet(
            idle_pieces, energy.mean_w[n:], energy.peak_w[n:], float(energy.peak_w[0])
        )
        idle_j = np.where(quiet, energy.energy_j[n:], np.nan)
        idle = baselines(idle_pieces, idle_j, energy.error_sampling_j[n:], float(energy.mean_w[0]))
    baseline = choose_baseline(idle)
    read_ns = read_parts(device, fast, windows_ns) if at_least[:n].any() else windows_ns
    times_s = (read_ns[:, 1] - read_ns[:, 0]) / NS_PER_S
    uses = tuple(
        _use(energy, i, device, baseline, float(times_s[i]), at_least=bool(at_least[i]))
        for i in wanted.tolist()
    )
    gap, unread, stuck = _locate_faults(device, fast, buffer, windows_ns[0], failed_s[:, 0])
    is_bridged = bool((failed_s[:, 0] > 0).any() and not energy.counter_broken[0])
    faults = SensorFaults(
        disagree=bool(energy.disagree[0]),
        counter_broken=bool(energy.counter_broken[0]),
        gap=gap,
        unread=unread,
        stuck=stuck,
        frozen=find_frozen_counter(device, fast, TimeInterval(*windows_ns[0].tolist())),
        has_counter=is_bridged and _is_counted_throughout(fast, windows_ns[0]),
    )
    is_faulty = energy.disagree | energy.counter_broken | (failed_s > 0).any(axis=0)
    return MeasuredDevice(
        device,
        uses,
        np.where(at_least, np.nan, energy.energy_j)[:n],
        energy.error_sampling_j[:n],
        ~is_faulty[:n],
        faults,
        TimeInterval(*read_ns[0].tolist()) if at_least[0] else None,
        slow,
        idle,
        "" if idle else no_baseline,
    )


def _energy_and_faults(
    device: RecordedDevice,
    fast: ChunkReader | None,
    buffer: ChunkReader | None,
    windows_ns: Ints,
    marks_ns: Ints,
) -> tuple[WindowEnergy, Floats, Bools]:
    """What each window drew, its seconds of gap, unread and stuck time, and the lower bounds."""
    energy, unread_s, at_least = bounded_energy(device, fast, buffer, windows_ns, marks_ns)
    return energy, np.stack([energy.gap_s, unread_s, energy.stuck_s]), at_least


def _locate_faults(
    device: RecordedDevice,
    fast: ChunkReader | None,
    buffer: ChunkReader | None,
    run_ns: Ints,
    failed_s: Floats,
) -> list[FaultTime]:
    """When in the run each kind of fault was; as a rule there is none, and no pass is needed."""
    pieces_ns, piece_s = run_ns[None], failed_s[:, None]
    if (failed_s > 0).any():
        start_ns, end_ns = run_ns.tolist()
        piece_ns = max(round(_PIECE_S * NS_PER_S), (end_ns - start_ns) // _MAX_PIECES)
        starts_ns = np.arange(start_ns, max(end_ns, start_ns + 1), piece_ns)
        pieces_ns = np.column_stack([starts_ns, np.minimum(starts_ns + piece_ns, end_ns)])
        piece_s = _energy_and_faults(device, fast, buffer, pieces_ns, run_ns)[1]
    return [
        FaultTime(float(s), pieces_ns, kind_s) for s, kind_s in zip(failed_s, piece_s, strict=True)
    ]


def _use(
    windows: WindowEnergy,
    i: int,
    device: RecordedDevice,
    baseline: Baseline | None,
    time_s: float,
    *,
    at_least: bool,
) -> Use:
    energy = energy_of(windows, i, device)
    if energy is None:
        return Use(None)
    energy = replace(energy, at_least=at_least)
    net = baseline.net(energy, time_s) if baseline else None

    def known(values: Floats) -> float | None:
        return float(values[i]) if np.isfinite(values[i]) else None

    return Use(
        energy,
        net and replace(net, at_least=at_least),
        known(windows.mean_w),
        known(windows.peak_w),
        known(windows.counter_j),
        known(windows.integral_j),
        time_s if at_least else None,
    )


def _is_counted_throughout(fast: ChunkReader | None, run_ns: Ints) -> bool:
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


def _read_slow(stream: ChunkReader | None) -> Columns:
    """The columns of the slow stream that are needed here; at one row a second they are few."""
    if stream is None:
        return {}
    names = ["t_ns", *(name for name in _SLOW if name in stream.columns)]
    chunks = list(stream.chunks(names))
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in names}


def bounded_energy(
    device: RecordedDevice,
    fast: ChunkReader | None,
    buffer: ChunkReader | None,
    windows_ns: Ints,
    marks_ns: Ints | None = None,
) -> tuple[WindowEnergy, Floats, Bools]:
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
    bounds: dict[str, Any] = {
        name: np.where(
            is_lost, np.where(is_empty, np.nan, getattr(part, name)), getattr(energy, name)
        )
        for name in _BOUNDED
    }
    return replace(energy, **bounds), unread_s, is_lost & np.isfinite(bounds["energy_j"])


def read_parts(device: RecordedDevice, fast: ChunkReader | None, windows_ns: Ints) -> Ints:
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
    patience_ns = max(LONG_S * NS_PER_S, MISSED_POLLS * typical_step_ns(fast))
    return last_ns if end_ns - last_ns > patience_ns else end_ns


def _energy(
    device: RecordedDevice,
    fast: ChunkReader | None,
    buffer: ChunkReader | None,
    windows_ns: Ints,
    marks_ns: Ints | None,
) -> tuple[WindowEnergy, Floats]:
    energy = window_energy(device, fast, buffer, windows_ns, marks_ns)
    is_empty = windows_ns[:, 1] <= windows_ns[:, 0]
    if is_empty.any():
        # A mark of a span's beginning may be the last thing that a program leaves. Where no time
        # passed nothing was measured, and 0 J without an error would look like a measurement.
        known: dict[str, Any] = {
            name: np.where(is_empty, np.nan, getattr(energy, name)) for name in _BOUNDED
        }
        energy = replace(energy, **known)
    return widen_across_faults(energy, fast, np.maximum(windows_ns, device.awake_ns or 0))


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


def measure_parts(
    open_stream: OpenStream, device: RecordedDevice, run: TimeInterval
) -> dict[str, Energy]:
    """What each part of a GPU drew in the run, by name; those that were read at least twice."""
    parts = {}
    for quantity, (name, kind) in PARTS.items():
        # Of a GPU without a module the GPU is no part but all that the device counts. There are
        # such readings where it was taken for a module in its first second.
        is_whole = quantity is Quantity.GPU_POWER and device.info.power_scope is PowerScope.GPU
        rows = open_stream(device.info.key, kind)
        if is_whole or rows is None or quantity.value not in rows.columns:
            continue
        chunks = list(rows.chunks(["t_ns", quantity.value]))
        t_ns = np.concatenate([chunk["t_ns"] for chunk in chunks])
        power_w = np.concatenate([chunk[quantity.value] for chunk in chunks]).astype(np.float64)
        energy = _integrate_trapezoids(t_ns, power_w, device, run)
        if energy is not None:
            parts[name] = energy
    return parts


def _integrate_trapezoids(
    t_ns: Ints, power_w: Floats, device: RecordedDevice, run: TimeInterval
) -> Energy | None:
    """The integral by the trapezoidal rule; None with fewer than two readings.

    Of a run shorter than the averaging window nothing is known either: most of what each reading
    shows is of the time before.

    What the first and the last reading do not show is taken to be within the range of all: the
    sampling error is half that range, times one step and one averaging window.
    """
    is_read = np.isfinite(power_w) & (t_ns >= run.start_ns)
    is_read &= t_ns <= run.end_ns + round(_WINDOW_S * NS_PER_S)
    end_s = (run.end_ns - run.start_ns) / NS_PER_S
    if is_read.sum() < _MIN_READINGS or end_s < _WINDOW_S:
        return None
    middle_s = (t_ns[is_read] - run.start_ns) / NS_PER_S - _WINDOW_S / 2
    watts = power_w[is_read]
    within = (middle_s > 0) & (middle_s < end_s)
    times_s = np.concatenate([[0.0], middle_s[within], [end_s]])
    levels_w = np.interp(times_s, middle_s, watts)
    energy_j = float(np.sum((levels_w[1:] + levels_w[:-1]) * np.diff(times_s)) / 2)
    unseen_s = float(np.median(np.diff(middle_s))) + _WINDOW_S
    sampling_j = float(np.ptp(watts)) * unseen_s / 2
    source = Source.SIMULATED if device.is_simulated else Source.MEASURED
    return Energy(energy_j, sampling_j, gain_error(device) * energy_j, source)


@dataclass(frozen=True)
class CpuShare:
    """CPU seconds of the command (with children, also short-lived ones), of joulewise, and of all.

    ``command_share_j`` is the command's share of the energy that load adds to the modelled one: as
    much as it has of the busy time. None is what is not known.
    """

    command_s: float | None
    recorder_s: float | None
    busy_s: float | None = None
    command_share_j: float | None = None


def cpu_share(counted: Sequence[MeasuredDevice], manifest: Manifest, run: TimeInterval) -> CpuShare:
    """How much of the CPUs' work was the command's, by their mean load during the run."""
    commands_s = [command.cpu_s for command in manifest.commands]
    known_s = [cpu_s for cpu_s in commands_s if cpu_s is not None]
    command_s = sum(known_s) if known_s and len(known_s) == len(commands_s) else None
    recorder_s = manifest.recorder.cpu_s if manifest.recorder else None
    loads = [(one, load) for one in counted if (load := _mean_load(one, run)) is not None]
    cpus = manifest.host.get("cpus", "")
    if not loads or not cpus:
        return CpuShare(command_s, recorder_s)
    mean = sum(load for _, load in loads) / len(loads)
    busy_s = mean * int(cpus) * run.time_s
    by_load_j = sum(_energy_by_load_j(measured, load) for measured, load in loads)
    share_j = None
    if command_s is not None and busy_s > 0 and by_load_j > 0:
        share_j = by_load_j * min(command_s / busy_s, 1.0)
    return CpuShare(command_s, recorder_s, busy_s, share_j)


def _mean_load(measured: MeasuredDevice, run: TimeInterval) -> float | None:
    """The mean load of a CPU, from 0 to 1; None for other devices, and where it was not read."""
    load = measured.slow.get(Quantity.LOAD.value)
    if measured.device.info.kind is not Kind.CPU or load is None:
        return None
    load = load[run.holds(measured.slow["t_ns"])]
    return float(np.nanmean(load)) / 100 if np.isfinite(load).any() else None


def _energy_by_load_j(measured: MeasuredDevice, load: float) -> float:
    """The part of a modelled energy that its load adds; 0 for a measured one, where unknown."""
    energy = measured.uses[0].energy
    if energy is None or energy.source is not Source.MODELLED:
        return 0.0
    return energy.value * BUSY_SHARE * load / (IDLE_SHARE + BUSY_SHARE * load)
