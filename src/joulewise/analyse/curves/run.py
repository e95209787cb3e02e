"""Everything that can be drawn of one stored run, with few passes over its streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from joulewise.analyse.chunks import ChunkReader, OpenStream
from joulewise.analyse.curves.downsample import Envelope, EnvelopeBuilder, SharedStream, pixel_edges
from joulewise.analyse.curves.sampling import Intervals, Sampling
from joulewise.analyse.curves.series import (
    FAULTS,
    CumulativeEnergy,
    SensorCurves,
    growth_edges,
    growth_of,
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


@dataclass(frozen=True)
class DeviceCurves:
    """The curves of one device. ``power`` is None where power was not read; ``growth`` has a mean.

    ``sampling`` is of each stream, by its name for users.
    """

    device: RecordedDevice
    power: Envelope | None
    growth: CumulativeEnergy
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
    growth: CumulativeEnergy | None

    @property
    def stretch(self) -> TimeInterval:
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
    stretch = TimeInterval(result.run.span.start_ns, result.run.span.end_ns)
    open_stream = SoundStreams(run, manifest)
    _refuse_lost(open_stream, result.counted)
    counted = [one for one in manifest.devices if one.info.key in result.counted and one.sources]
    pixels = int(np.clip(_ALL_PIXELS / max(len(counted), 1), _MIN_PIXELS, PIXELS))
    edges_ns, marks_ns = growth_edges(stretch), load_marks_of_result(result)
    faulty = {one.device for one in result.warnings if one.code in FAULTS}
    with_energies = []
    for device in counted:
        views = _views(open_stream, device, stretch, pixels)
        # Energies are computed first: the viewers get what that reads, as it is read.
        open_shared = partial(_open_shared, views)
        growth, energies = growth_of(
            open_shared,
            device,
            edges_ns,
            faulty=device.info.key in faulty,
            end=result.run.devices[device.info.key].energy,
            marks_ns=marks_ns,
        )
        sensors = sensor_curves(open_stream, device, stretch, min(pixels, _SENSOR_PIXELS))
        with_energies.append((_device(device, views, growth, sensors), energies))
    return RunCurves(
        manifest,
        result,
        tuple(curves for curves, _ in with_energies),
        whole_growth(
            result, edges_ns, [(curves.growth, energies) for curves, energies in with_energies]
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
    growth: CumulativeEnergy,
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
    return DeviceCurves(device, power, growth, sampling, sensors)


@dataclass(frozen=True)
class _StreamView:
    """What is collected from a stream while it is read."""

    rows: SharedStream
    intervals: Intervals
    thinning: EnvelopeBuilder | None


def _views(
    open_stream: OpenStream, device: RecordedDevice, stretch: TimeInterval, pixels: int
) -> dict[StreamKind, _StreamView]:
    opened = {stream: open_stream(device.info.key, stream) for stream in _STREAMS}
    return {stream: _view(rows, stretch, pixels) for stream, rows in opened.items() if rows}


def _open_shared(
    views: Mapping[StreamKind, _StreamView], _key: str, stream: StreamKind
) -> ChunkReader | None:
    return views[stream].rows if stream in views else None


def _view(rows: ChunkReader, stretch: TimeInterval, pixels: int) -> _StreamView:
    if _POWER not in rows.columns:
        intervals = Intervals(rows, "energy_j", stretch)
        return _StreamView(SharedStream(rows, intervals), intervals, None)
    intervals = Intervals(rows, _POWER, stretch)
    thinning = EnvelopeBuilder(_POWER, pixel_edges(rows, stretch, pixels))
    return _StreamView(SharedStream(rows, intervals, thinning), intervals, thinning)
