"""What figures of a run show: its energy and sensors over time, its spans, and its parts.

- `CumulativeEnergy`: the energy from the start up to each time; it ends at that of the result
- `SensorCurves`: temperature, clocks, use, memory, PCIe, limit, and what held clocks down
- `Stage`: energy and time of the epochs, and of the steps in them
- `Share`: GPU, CPU, RAM; what idling would have drawn, and what work added
- the average of several runs' curves, on a common grid of times.

Cubic interpolation overshoots: it is for drawing only, and energies never come from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Final

import numpy as np

from joulewise.analyse.chunks import ChunkReader, Floats, Ints, OpenStream, sensor_streams, show
from joulewise.analyse.curves.downsample import Envelope, EnvelopeBuilder, even_edges, pixel_edges
from joulewise.analyse.damage import SoundStreams
from joulewise.analyse.energy.gaps import widen_across_faults
from joulewise.analyse.energy.load_steps import load_marks_of_result
from joulewise.analyse.energy.windows import energy_of, window_energy
from joulewise.analyse.time_intervals import TimeInterval
from joulewise.data import Energy, Kind, Quantity, RunResult, Source, SpanResult, WarningCode, total
from joulewise.data.devices import throttle_names
from joulewise.store.layout import StreamKind
from joulewise.store.manifest import RecordedDevice, read_manifest
from joulewise.units import NS_PER_S

# Times of the grid for each new value. Published averages use about twice the raw rate.
_PER_READING: Final = 2


@dataclass(frozen=True)
class Curve:
    """Values at moments that ascend, in seconds since the run's start."""

    t_s: Floats
    values: Floats


@dataclass(frozen=True)
class Average:
    """Mean and standard deviation at each moment, over the ``count`` runs that were still there.

    The deviation of a single run is NaN.
    """

    t_s: Floats
    mean: Floats
    sigma: Floats
    count: Ints


def grid(longest_s: float, effective_hz: float, most: int) -> Floats:
    """Times up to the end of the longest run: twice as many as new values, but at most ``most``.

    With two new values a second it is a grid of 4 Hz.
    """
    times = int(np.clip(longest_s * _PER_READING * effective_hz, 1, most))
    return np.linspace(0.0, longest_s, times + 1)


def average_curves(curves: Sequence[Curve], grid_s: Floats) -> Average:
    """The mean of runs of different length: one that has ended is no longer in it."""
    values = np.stack([cubic(curve, grid_s) for curve in curves])
    is_known = np.isfinite(values)
    count = is_known.sum(axis=0)
    known = np.where(is_known, values, 0.0)
    mean = known.sum(axis=0) / np.where(count, count, np.nan)
    squares = np.square(np.where(is_known, values - mean, 0.0)).sum(axis=0)
    sigma = np.sqrt(squares / np.where(count > 1, count - 1, np.nan))
    return Average(grid_s, mean, sigma, count)


def cubic(curve: Curve, grid_s: Floats) -> Floats:
    """The curve at the grid's times by cubic Hermite pieces; NaN outside of the curve.

    The slope at a point is that of the parabola through it and its neighbours (np.gradient).
    scipy's spline would differ by less than a line is wide, and takes a second to import.
    """
    known = np.isfinite(curve.values)
    t_s, values = curve.t_s[known], curve.values[known]
    if len(t_s) < 2:
        return np.full(len(grid_s), np.nan)
    slopes = np.gradient(values, t_s, edge_order=2 if len(t_s) > 2 else 1)
    at = np.clip(np.searchsorted(t_s, grid_s, "right") - 1, 0, len(t_s) - 2)
    width = t_s[at + 1] - t_s[at]
    part = (grid_s - t_s[at]) / width
    rest = 1 - part
    interpolated = (
        values[at] * (1 + 2 * part) * rest**2
        + values[at + 1] * (1 + 2 * rest) * part**2
        + width * part * rest * (slopes[at] * rest - slopes[at + 1] * part)
    )
    return np.where((grid_s < t_s[0]) | (grid_s > t_s[-1]), np.nan, interpolated)


FAULTS: Final = {
    WarningCode.GAP,
    WarningCode.STUCK,
    WarningCode.COUNTER_RESET,
    WarningCode.UNAVAILABLE,
    WarningCode.DAMAGED,
    WarningCode.IMPLAUSIBLE,
}
"""Warnings by which it is known that a device did not answer for a while."""

# Points of a cumulative curve: as many as are seen in a figure, and none closer than the shortest
# step of known sensors (chosen; each point costs a window's energy).
_MAX_POINTS: Final = 200
_MIN_STEP_S: Final = 0.1


@dataclass(frozen=True)
class CumulativeEnergy:
    """Joules from the run's start up to each moment ``t_s``; NaN where they are not known.

    ``error_j`` is a 95 % half-width. ``mean_w`` is the mean power from the moment before, so that
    the first is NaN.
    """

    t_s: Floats
    energy_j: Floats
    error_j: Floats
    mean_w: Floats


def cumulative_edges(run: TimeInterval) -> Ints:
    """The times at which the energy so far is shown: few, none closer than a sensor resolves."""
    return even_edges(run, int(np.clip(run.time_s / _MIN_STEP_S, 1, _MAX_POINTS)))


def accumulate_energy(
    open_stream: OpenStream,
    device: RecordedDevice,
    edges_ns: Ints,
    *,
    faulty: bool,
    end: Energy | None = None,
    marks_ns: Ints | None = None,
) -> tuple[CumulativeEnergy, list[Energy | None]]:
    """The curve of one device, and its energy up to each edge; the first edge is the run's start.

    ``end`` is the energy of the whole run in its result, at which the curve ends, and ``marks_ns``
    are the run's (`load_marks`), else its start and end. ``faulty``: it is known that the device
    did not answer for a while. If not, and the readings show no fault, the passes that widen the
    error are left out.
    """
    fast, buffer = (
        open_stream(device.info.key, kind) for kind in (StreamKind.FAST, StreamKind.BUFFER)
    )
    since_start_ns = np.column_stack([np.full(len(edges_ns) - 1, edges_ns[0]), edges_ns[1:]])
    pieces_ns = np.column_stack([edges_ns[:-1], edges_ns[1:]])
    windows_ns = np.concatenate([since_start_ns, pieces_ns])
    marks_ns = edges_ns[[0, -1]] if marks_ns is None else marks_ns
    energy = window_energy(device, fast, buffer, windows_ns, marks_ns)
    if faulty or energy.counter_broken.any() or np.any((energy.gap_s > 0) | (energy.stuck_s > 0)):
        energy, _ = widen_across_faults(energy, fast, np.maximum(windows_ns, device.awake_ns or 0))
    pieces = len(pieces_ns)
    zero = Energy(0.0, 0.0, 0.0, next(iter(device.sources.values())))
    energies = [zero, *(energy_of(energy, i, device) for i in range(pieces))]
    energies = _ending_at(end, energies)
    return _growth(edges_ns, energies, np.append(np.nan, energy.mean_w[pieces:])), energies


def cumulative_gpu_energy(run: Path, result: RunResult) -> Curve | None:
    """Energy so far of all GPUs that count in a stored run, joules over seconds since its start.

    It ends at their energy in the result. None where there is no GPU, or one was not read in all
    of the run.
    """
    manifest = read_manifest(run)
    gpus = [
        device
        for device in manifest.devices
        if device.info.kind is Kind.GPU and device.info.key in result.counted
    ]
    ends = [result.run.devices[device.info.key].energy for device in gpus]
    known_j = [energy.value for energy in ends if energy is not None and not energy.at_least]
    interval = TimeInterval(result.run.span.start_ns, result.run.span.end_ns)
    if not gpus or len(known_j) < len(gpus) or interval.time_ns <= 0:
        return None
    edges_ns = cumulative_edges(interval)
    faulty = {one.device for one in result.warnings if one.code in FAULTS}
    energy_j, marks_ns = np.zeros(len(edges_ns)), load_marks_of_result(result)
    open_stream = SoundStreams(run, manifest)
    for device, end in zip(gpus, ends, strict=True):
        is_faulty = device.info.key in faulty
        cumulative, _ = accumulate_energy(
            open_stream, device, edges_ns, faulty=is_faulty, end=end, marks_ns=marks_ns
        )
        energy_j += cumulative.energy_j
    return Curve(np.asarray((edges_ns - edges_ns[0]) / NS_PER_S), energy_j)


def _ending_at(end: Energy | None, energies: list[Energy | None]) -> list[Energy | None]:
    """Scale the energies to end at that of the result, which knows more spans."""
    last = energies[-1]
    if end is None or last is None or not last.value:
        return energies
    scale = end.value / last.value
    moved = [None if one is None else replace(one, value=one.value * scale) for one in energies]
    return [*moved[:-1], end]


def whole_growth(
    result: RunResult,
    edges_ns: Ints,
    devices: Sequence[tuple[CumulativeEnergy, Sequence[Energy | None]]],
) -> CumulativeEnergy | None:
    """The curve of all devices that count; it ends at the run's own energy and error.

    None where the run has no energy, or only a lower bound: a sum with a device left out would
    pass for the whole.
    """
    if result.run.total is None or result.run.total.at_least or not devices:
        return None
    sums = [
        total(known) if len(known := [e for e in at if e is not None]) == len(at) else None
        for at in zip(*(energies for _, energies in devices), strict=True)
    ]
    sums[-1] = result.run.total
    mean_w = np.sum([cumulative.mean_w for cumulative, _ in devices], axis=0)
    return _growth(edges_ns, sums, mean_w)


def _growth(edges_ns: Ints, energies: Sequence[Energy | None], mean_w: Floats) -> CumulativeEnergy:
    t_s = (edges_ns - edges_ns[0]) / NS_PER_S
    energy_j = np.array([np.nan if one is None else one.value for one in energies])
    error_j = np.array([np.nan if one is None else one.error for one in energies])
    return CumulativeEnergy(np.asarray(t_s), energy_j, error_j, mean_w)


DRAWN: Final = (
    Quantity.TEMPERATURE,
    Quantity.SM_CLOCK,
    Quantity.MEMORY_CLOCK,
    Quantity.GPU_UTILISATION,
    Quantity.MEMORY_UTILISATION,
    Quantity.MEMORY_USED,
    Quantity.PERFORMANCE_STATE,
    Quantity.PCIE_TX,
    Quantity.PCIE_RX,
    Quantity.ENFORCED_LIMIT,
    Quantity.LOAD,
)
# An idle GPU's clocks are low because nothing is to be done.
_THROTTLE_BITS: Final = {
    bit: name
    for bit in (1 << shift for shift in range(11))
    for name in throttle_names(bit)
    if name != "idle"
}


@dataclass(frozen=True)
class SensorCurves:
    """``reasons`` has, for each reason that held the clocks down, its share of each pixel's polls.

    ``held`` has its share of all polls.
    """

    columns: dict[Quantity, Envelope]
    reasons: dict[str, Envelope]
    held: dict[str, float]


def sensor_curves(
    open_stream: OpenStream, device: RecordedDevice, run: TimeInterval, pixels: int
) -> SensorCurves:
    """The sensors of a device, each stream in one pass, with at most a pixel for each reading.

    The driver's own samples are taken before polls.
    """
    columns: dict[Quantity, Envelope] = {}
    reasons: dict[str, Envelope] = {}
    streams = list(sensor_streams(open_stream, device.info.key))
    for _, together in groupby(streams, key=attrgetter("name")):
        of_name = {stream.quantity: stream.rows for stream in together}
        drawn = [quantity for quantity in DRAWN if quantity in of_name and quantity not in columns]
        if not drawn and Quantity.THROTTLE not in of_name:
            continue
        rows = next(iter(of_name.values()))
        edges_ns = pixel_edges(rows, run, pixels)
        builders = {quantity: EnvelopeBuilder(quantity.value, edges_ns) for quantity in drawn}
        held = _reasons(rows, edges_ns, device.info.vendor)
        show(rows, *builders.values(), *held.values())
        envelopes = {quantity: each.envelope() for quantity, each in builders.items()}
        columns.update({quantity: it for quantity, it in envelopes.items() if it.count.any()})
        reasons.update({name: each.envelope() for name, each in held.items()})
    shares = {name: _share(envelope) for name, envelope in reasons.items()}
    return SensorCurves(
        {quantity: columns[quantity] for quantity in DRAWN if quantity in columns},
        {name: envelope for name, envelope in reasons.items() if shares[name]},
        {name: share for name, share in shares.items() if share},
    )


def _reasons(rows: ChunkReader, edges_ns: Ints, vendor: str) -> dict[str, EnvelopeBuilder]:
    column = Quantity.THROTTLE.value
    if column not in rows.columns or vendor != "nvidia":  # others' bits have no names
        return {}
    return {name: EnvelopeBuilder(column, edges_ns, bit) for bit, name in _THROTTLE_BITS.items()}


def _share(envelope: Envelope) -> float:
    polls = int(envelope.count.sum())
    return float(np.nansum(envelope.mean * envelope.count)) / polls if polls else 0.0


@dataclass(frozen=True)
class Stage:
    """One span of a run, in seconds from its start; ``number`` counts those of its name from 1."""

    number: int
    start_s: float
    end_s: float
    energy: Energy

    @property
    def time_s(self) -> float:
        return self.end_s - self.start_s


def stages(result: RunResult, name: str = "epoch") -> list[Stage]:
    """The spans of a name that were finished and have an energy, in the order of their starts.

    The energy of some may be a lower bound: :func:`whole_stages` leaves these out.
    """
    return list(_numbered(result, name, lambda span: span.total))


def whole_stages(result: RunResult, name: str = "epoch") -> list[Stage]:
    """Those whose energy is known: a lower bound would pass for a span that took less."""
    return [stage for stage in stages(result, name) if not stage.energy.at_least]


def gpu_stages(result: RunResult) -> list[Stage]:
    """The epochs with the energy of the GPUs alone, where all of it is known.

    An epoch in which a GPU that counts was not read throughout would pass for one that took less.
    """
    gpus = [key for key in result.counted if key.rpartition("/")[2].startswith("gpu")]
    return list(_numbered(result, "epoch", partial(_sum, gpus)))


def _sum(keys: Sequence[str], span: SpanResult) -> Energy | None:
    energies = [span.devices[key].energy for key in keys]
    known = [energy for energy in energies if energy is not None and not energy.at_least]
    return total(known) if len(known) == len(energies) else None


def _numbered(
    result: RunResult, name: str, energy_of: Callable[[SpanResult], Energy | None]
) -> Iterator[Stage]:
    origin_ns = result.run.span.start_ns
    of_name = [one for one in result.spans if one.span.name == name and one.span.closed]
    for number, one in enumerate(sorted(of_name, key=lambda each: each.span.start_ns), start=1):
        start_s, end_s = (
            (t_ns - origin_ns) / NS_PER_S for t_ns in (one.span.start_ns, one.span.end_ns)
        )
        energy = energy_of(one)
        if energy is not None:
            yield Stage(number, start_s, end_s, energy)


class EnergyPart(str, Enum):
    """A part of a device's energy; WHOLE is not divided, since the idle power is not known."""

    IDLE = "idle"
    DYNAMIC = "dynamic"
    WHOLE = "not divided"


@dataclass(frozen=True)
class Share:
    """A part of the joules of one device that counts."""

    device: str
    kind: str
    part: EnergyPart
    energy_j: float
    error_j: float
    source: Source


def breakdown(result: RunResult) -> list[Share]:
    """Every device that counts and was read; an idle part only where its baseline is known."""
    return [share for key in result.counted for share in _shares(result, key)]


def _shares(result: RunResult, key: str) -> Iterator[Share]:
    use = result.run.devices[key]
    if use.energy is None:
        return
    kind = key.rpartition("/")[2].rstrip("0123456789")
    if use.net is None:
        yield Share(
            key, kind, EnergyPart.WHOLE, use.energy.value, use.energy.error, use.energy.source
        )
        return
    source = use.energy.source
    # The board's gain is one factor of both; the rest of the error is that of the baseline.
    idle_j = use.energy.value - use.net.value
    gain_j = use.energy.error_gain - use.net.error_gain
    sampling_j = max(use.net.error_sampling**2 - use.energy.error_sampling**2, 0.0) ** 0.5
    yield Share(key, kind, EnergyPart.IDLE, idle_j, (gain_j**2 + sampling_j**2) ** 0.5, source)
    yield Share(key, kind, EnergyPart.DYNAMIC, use.net.value, use.net.error, source)
