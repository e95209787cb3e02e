"""Everything that can be drawn of one stored run, with few passes over its streams.

Among it how evenly each stream was sampled (jitter), and how many of its rows had a new value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from joulewise.analyse.chunks import (
    Array,
    ChunkReader,
    Columns,
    Floats,
    Ints,
    OpenStream,
    ScratchArrays,
    SharedStream,
    last_reading,
    mark_new_values,
    typical_step_ns,
)
from joulewise.analyse.curves.downsample import Envelope, EnvelopeBuilder, even_edges, pixel_edges
from joulewise.analyse.curves.series import (
    FAULTS,
    CumulativeEnergy,
    SensorCurves,
    accumulate_energy,
    cumulative_edges,
    sensor_curves,
    whole_growth,
)
from joulewise.analyse.damage import HINT, SoundStreams
from joulewise.analyse.energy.load_steps import load_marks_of_result
from joulewise.analyse.stored_result import load_or_compute_result
from joulewise.analyse.time_intervals import TimeInterval
from joulewise.data import Kind, RunResult
from joulewise.errors import JoulewiseError
from joulewise.store.layout import StreamKind
from joulewise.store.manifest import Manifest, RecordedDevice, read_manifest
from joulewise.units import NS_PER_S

# Points of a power curve. Chosen: about the width of a figure on a page; twice as many double the
# data of the page and show no more.
PIXELS: Final = 600
# With many devices each has fewer, so that all together stay within the second number.
_MIN_PIXELS: Final = 150
_ALL_PIXELS: Final = 2_400
# There are ten panels of sensors a device: twice as many points double a page's data.
_SENSOR_PIXELS: Final = 300
_POWER: Final = "power_w"
_STREAMS: Final = {StreamKind.FAST: "polls", StreamKind.BUFFER: "driver's samples"}
# Bins of the histogram of intervals; what is longer is counted apart (chosen for a narrow figure).
_BINS: Final = 90
# The histogram goes up to so many typical intervals, and one of these is the middle of a bin.
_MAX_INTERVALS: Final = 3.0
# The rate over time has at most so many points, of so many rows or more each: with fewer the rate
# of a piece would be off by a row more or less, 5 % (chosen).
_MAX_PIECES: Final = 200
_PIECE_ROWS: Final = 20


@dataclass(frozen=True)
class Sampling:
    """How the rows in one interval of time were sampled.

    ``rate_hz`` is rows a second, ``cv`` the standard deviation of the intervals between them over
    their mean, ``sigma_hz`` the same in hertz. ``effective_hz`` is new values a second, between
    the first row and the last: a sensor that is polled more often than it updates repeats itself.
    ``histogram`` counts intervals between neighbours of ``interval_edges_s``, and ``longer`` those
    beyond. ``course_hz`` and ``course_effective_hz`` are the same rates in pieces of one length,
    between neighbours of ``edges_ns``.
    """

    rows: int
    rate_hz: float
    sigma_hz: float
    cv: float
    effective_hz: float
    longest_s: float
    interval_edges_s: Floats
    histogram: Ints
    longer: int
    edges_ns: Ints
    course_hz: Floats
    course_effective_hz: Floats


class Intervals:
    """Collects the intervals between rows of a stream, and whether ``column`` changed in them."""

    def __init__(self, stream: ChunkReader, column: str, interval: TimeInterval) -> None:
        self.columns = (column,)
        self._scratch = ScratchArrays()
        self._usual_ns = max(typical_step_ns(stream), 1.0)
        self._bin_ns = max(_MAX_INTERVALS * self._usual_ns / _BINS, 1.0)
        expected = min(stream.rows, interval.time_ns / self._usual_ns)
        self._edges_ns = even_edges(interval, min(_MAX_PIECES, int(expected / _PIECE_ROWS)))
        self._rows, self._news = np.zeros((2, len(self._edges_ns) - 1), np.int64)
        self._histogram = np.zeros(_BINS + 1, np.int64)
        self._apart_ns, self._squares_ns2 = 0.0, 0.0
        self._longest_ns = 0
        self._first_ns: int | None = None
        self._last_ns, self._last = 0, math.nan

    def take(self, chunk: Columns) -> None:
        all_ns = chunk["t_ns"]
        first = np.searchsorted(all_ns, self._edges_ns[0])
        end = np.searchsorted(all_ns, self._edges_ns[-1], "right")
        t_ns, values = all_ns[first:end], chunk[self.columns[0]][first:end]
        if not len(t_ns):
            return
        self._count(t_ns, mark_new_values(values, self._last).view(np.int8))
        steps_ns = self._scratch.get("steps", len(t_ns), np.int64)
        steps_ns[0] = t_ns[0] - self._last_ns
        np.subtract(t_ns[1:], t_ns[:-1], out=steps_ns[1:])
        if self._first_ns is None:
            self._first_ns, steps_ns = int(t_ns[0]), steps_ns[1:]
        if len(steps_ns):
            self._add(steps_ns)
        self._last_ns, self._last = int(t_ns[-1]), last_reading(values, self._last)

    def _count(self, t_ns: Ints, changed: Array) -> None:
        cuts = np.searchsorted(t_ns, self._edges_ns)
        cuts[-1] = len(t_ns)
        counts = np.diff(cuts)
        filled = np.flatnonzero(counts)
        self._rows += counts
        self._news[filled] += np.add.reduceat(changed, cuts[filled], dtype=np.int64)

    def _add(self, steps_ns: Ints) -> None:
        self._longest_ns = max(self._longest_ns, int(steps_ns.max()))
        apart_ns, places = (
            self._scratch.get(name, len(steps_ns), np.float64) for name in ("apart", "places")
        )
        np.subtract(steps_ns, self._usual_ns, out=apart_ns)
        self._apart_ns += float(apart_ns.sum())
        np.multiply(apart_ns, 1 / self._bin_ns, out=places)
        places += self._usual_ns / self._bin_ns + 0.5
        np.minimum(places, _BINS, out=places)
        np.copyto(steps_ns, places, casting="unsafe")
        self._histogram += np.bincount(steps_ns, minlength=_BINS + 1)
        self._squares_ns2 += float(np.square(apart_ns, out=apart_ns).sum())

    def sampling(self) -> Sampling | None:
        """None of fewer than three rows: two intervals are the least that can differ."""
        intervals = int(self._histogram.sum())
        time_ns = self._last_ns - (self._first_ns or 0)
        if intervals < 2 or time_ns <= 0:
            return None
        apart_ns = self._apart_ns / intervals
        variance_ns2 = (self._squares_ns2 - intervals * apart_ns**2) / (intervals - 1)
        mean_ns = time_ns / intervals
        cv, rate_hz = math.sqrt(max(variance_ns2, 0.0)) / mean_ns, NS_PER_S / mean_ns
        piece_s = np.diff(self._edges_ns) / NS_PER_S
        return Sampling(
            rows=intervals + 1,
            rate_hz=rate_hz,
            sigma_hz=cv * rate_hz,
            cv=cv,
            effective_hz=int(self._news.sum()) / intervals * rate_hz,
            longest_s=self._longest_ns / NS_PER_S,
            interval_edges_s=np.maximum(np.arange(_BINS + 1) - 0.5, 0) * self._bin_ns / NS_PER_S,
            histogram=self._histogram[:_BINS],
            longer=int(self._histogram[_BINS]),
            edges_ns=self._edges_ns,
            course_hz=self._rows / piece_s,
            course_effective_hz=self._news / piece_s,
        )


@dataclass(frozen=True)
class DeviceCurves:
    """The curves of one device. ``power`` is None where power was not read.

    ``cumulative`` has a mean power. ``sampling`` is of each stream, by its name for users.
    """

    device: RecordedDevice
    power: Envelope | None
    cumulative: CumulativeEnergy
    sampling: dict[str, Sampling]
    sensors: SensorCurves

    @property
    def key(self) -> str:
        return self.device.info.key


@dataclass(frozen=True)
class RunCurves:
    """The devices that count, in their order, and the energy of all of them."""

    manifest: Manifest
    result: RunResult
    devices: tuple[DeviceCurves, ...]
    cumulative: CumulativeEnergy | None

    @property
    def interval(self) -> TimeInterval:
        span = self.result.run.span
        return TimeInterval(span.start_ns, span.end_ns)

    @property
    def gpus(self) -> list[DeviceCurves]:
        return [one for one in self.devices if one.device.info.kind is Kind.GPU]


def run_curves(run: Path, result: RunResult | None = None) -> RunCurves:
    """The curves of a stored run, by the given ``result``, else the stored one.

    A run that goes on has another result a moment later, and the same moment must be drawn.
    """
    manifest, result = read_manifest(run), result or load_or_compute_result(run)
    interval = TimeInterval(result.run.span.start_ns, result.run.span.end_ns)
    open_stream = SoundStreams(run, manifest)
    _refuse_lost(open_stream, result.counted)
    counted = [one for one in manifest.devices if one.info.key in result.counted and one.sources]
    pixels = int(np.clip(_ALL_PIXELS / max(len(counted), 1), _MIN_PIXELS, PIXELS))
    edges_ns, marks_ns = cumulative_edges(interval), load_marks_of_result(result)
    faulty = {one.device for one in result.warnings if one.code in FAULTS}
    with_energies = []
    for device in counted:
        views = _views(open_stream, device, interval, pixels)
        # Energies are computed first: the viewers get what that reads, as it is read.
        open_shared = partial(_open_shared, views)
        cumulative, energies = accumulate_energy(
            open_shared,
            device,
            edges_ns,
            faulty=device.info.key in faulty,
            end=result.run.devices[device.info.key].energy,
            marks_ns=marks_ns,
        )
        sensors = sensor_curves(open_stream, device, interval, min(pixels, _SENSOR_PIXELS))
        with_energies.append((_device(device, views, cumulative, sensors), energies))
    return RunCurves(
        manifest,
        result,
        tuple(curves for curves, _ in with_energies),
        whole_growth(
            result, edges_ns, [(curves.cumulative, energies) for curves, energies in with_energies]
        ),
    )


def _refuse_lost(open_stream: SoundStreams, keys: Sequence[str]) -> None:
    """Raise where nothing is left of a device's trace: a figure of it would be made up."""
    for key in keys:
        damage = open_stream.find_stream_damage(key, StreamKind.FAST)
        if damage is not None and open_stream(key, StreamKind.FAST) is None:
            raise JoulewiseError(f"its trace cannot be read: {damage.message}", HINT)


def _device(
    device: RecordedDevice,
    views: Mapping[StreamKind, _StreamView],
    cumulative: CumulativeEnergy,
    sensors: SensorCurves,
) -> DeviceCurves:
    power: Envelope | None = None
    sampling = {}
    for stream, view in views.items():
        view.rows.finish()
        # The driver's own samples come last, and are those that are drawn where there are any.
        if view.thinning and (envelope := view.thinning.envelope()).count.any():
            power = envelope
        if seen := view.intervals.sampling():
            sampling[_STREAMS[stream]] = seen
    return DeviceCurves(device, power, cumulative, sampling, sensors)


@dataclass(frozen=True)
class _StreamView:
    """What is collected from a stream while it is read."""

    rows: SharedStream
    intervals: Intervals
    thinning: EnvelopeBuilder | None


def _views(
    open_stream: OpenStream, device: RecordedDevice, interval: TimeInterval, pixels: int
) -> dict[StreamKind, _StreamView]:
    opened = {stream: open_stream(device.info.key, stream) for stream in _STREAMS}
    return {stream: _view(rows, interval, pixels) for stream, rows in opened.items() if rows}


def _open_shared(
    views: Mapping[StreamKind, _StreamView], _key: str, stream: StreamKind
) -> ChunkReader | None:
    return views[stream].rows if stream in views else None


def _view(rows: ChunkReader, interval: TimeInterval, pixels: int) -> _StreamView:
    if _POWER not in rows.columns:
        intervals = Intervals(rows, "energy_j", interval)
        return _StreamView(SharedStream(rows, intervals), intervals, None)
    intervals = Intervals(rows, _POWER, interval)
    thinning = EnvelopeBuilder(_POWER, pixel_edges(rows, interval, pixels))
    return _StreamView(SharedStream(rows, intervals, thinning), intervals, thinning)
