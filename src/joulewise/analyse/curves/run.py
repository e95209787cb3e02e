"""Everything that can be drawn of one stored run, each stream read as seldom as can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from joulewise.analyse.chunks import ChunkReader, OpenStream
from joulewise.analyse.curves.downsample import Envelope, Shown, Thinning, pixel_edges
from joulewise.analyse.curves.sampling import Intervals, Sampling
from joulewise.analyse.curves.series import (
    FAULTS,
    Growth,
    SensorCourses,
    growth_edges,
    growth_of,
    sensor_courses,
    whole_growth,
)
from joulewise.analyse.damage import HINT, SoundLanes
from joulewise.analyse.energy.load_steps import load_marks_of_result
from joulewise.analyse.stored_result import result_of
from joulewise.analyse.time_intervals import Stretch
from joulewise.data import Kind, RunResult
from joulewise.errors import JoulewiseError
from joulewise.store.layout import StreamKind
from joulewise.store.manifest import Manifest, RecordedDevice, read_manifest

PIXELS: Final = 600
_FEWEST_PIXELS: Final = 150
_ALL_PIXELS: Final = 2_400
_SENSOR_PIXELS: Final = 300  # there are ten panels a device: twice as many double a page's data
_POWER: Final = "power_w"
_LANES: Final = {StreamKind.FAST: "polls", StreamKind.BUFFER: "driver's samples"}


@dataclass(frozen=True)
class DeviceCurves:
    """One device. ``power`` is None where nobody read its power; ``growth`` has a mean then.

    ``sampling`` is of each stream, by what it is called.
    """

    device: RecordedDevice
    power: Envelope | None
    growth: Growth
    sampling: dict[str, Sampling]
    sensors: SensorCourses

    @property
    def key(self) -> str:
        return self.device.info.key


@dataclass(frozen=True)
class RunCurves:
    """The devices that count, in their order, and the energy of all of them."""

    manifest: Manifest
    result: RunResult
    devices: tuple[DeviceCurves, ...]
    growth: Growth | None

    @property
    def stretch(self) -> Stretch:
        span = self.result.run.span
        return Stretch(span.start_ns, span.end_ns)

    @property
    def gpus(self) -> list[DeviceCurves]:
        return [one for one in self.devices if one.device.info.kind is Kind.GPU]


def run_curves(run: Path, result: RunResult | None = None) -> RunCurves:
    """Of a run in a store, with the result that is told of it, else the one that is kept.

    A run that goes on has another result a moment later, and the same moment must be drawn.
    """
    manifest, result = read_manifest(run), result or result_of(run)
    stretch = Stretch(result.run.span.start_ns, result.run.span.end_ns)
    open_stream = SoundLanes(run, manifest)
    _refuse_lost(open_stream, result.counted)
    counted = [one for one in manifest.devices if one.info.key in result.counted and one.sources]
    pixels = int(np.clip(_ALL_PIXELS / max(len(counted), 1), _FEWEST_PIXELS, PIXELS))
    edges_ns, marks_ns = growth_edges(stretch), load_marks_of_result(result)
    faulty = {one.device for one in result.warnings if one.code in FAULTS}
    found = []
    for device in counted:
        views = _views(open_stream, device, stretch, pixels)
        # Joules are reckoned first: the views see what that reads, as it is read.
        seen = partial(_seen, views)
        growth, energies = growth_of(
            seen,
            device,
            edges_ns,
            faulty=device.info.key in faulty,
            end=result.run.devices[device.info.key].energy,
            marks_ns=marks_ns,
        )
        sensors = sensor_courses(open_stream, device, stretch, min(pixels, _SENSOR_PIXELS))
        found.append((_device(device, views, growth, sensors), energies))
    return RunCurves(
        manifest,
        result,
        tuple(curves for curves, _ in found),
        whole_growth(result, edges_ns, [(curves.growth, told) for curves, told in found]),
    )


def _refuse_lost(open_stream: SoundLanes, keys: Sequence[str]) -> None:
    """A figure of a device of whose trace nothing is left would be made up."""
    for key in keys:
        damage = open_stream.find_lane_damage(key, StreamKind.FAST)
        if damage is not None and open_stream(key, StreamKind.FAST) is None:
            raise JoulewiseError(f"its trace cannot be read: {damage.message}", HINT)


def _device(
    device: RecordedDevice,
    views: Mapping[StreamKind, _StreamView],
    growth: Growth,
    sensors: SensorCourses,
) -> DeviceCurves:
    power: Envelope | None = None
    sampling = {}
    for stream, view in views.items():
        view.rows.finish()
        # The driver's own samples come last, and are those that are drawn where there are any.
        if view.thinning and (envelope := view.thinning.envelope()).count.any():
            power = envelope
        if seen := view.intervals.sampling():
            sampling[_LANES[stream]] = seen
    return DeviceCurves(device, power, growth, sampling, sensors)


@dataclass(frozen=True)
class _StreamView:
    """What is looked at of a stream while it is read."""

    rows: Shown
    intervals: Intervals
    thinning: Thinning | None


def _views(
    open_stream: OpenStream, device: RecordedDevice, stretch: Stretch, pixels: int
) -> dict[StreamKind, _StreamView]:
    opened = {stream: open_stream(device.info.key, stream) for stream in _LANES}
    return {stream: _view(rows, stretch, pixels) for stream, rows in opened.items() if rows}


def _seen(
    views: Mapping[StreamKind, _StreamView], _key: str, stream: StreamKind
) -> ChunkReader | None:
    return views[stream].rows if stream in views else None


def _view(rows: ChunkReader, stretch: Stretch, pixels: int) -> _StreamView:
    if _POWER not in rows.columns:
        intervals = Intervals(rows, "energy_j", stretch)
        return _StreamView(Shown(rows, intervals), intervals, None)
    intervals = Intervals(rows, _POWER, stretch)
    thinning = Thinning(_POWER, pixel_edges(rows, stretch, pixels))
    return _StreamView(Shown(rows, intervals, thinning), intervals, thinning)
