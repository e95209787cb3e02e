"""Everything that can be drawn of one stored run, each lane read as seldom as can be."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from joulewise.analyse.curves.cumulative import Growth, growth_edges, growth_of, whole_growth
from joulewise.analyse.curves.jitter import Intervals, Sampling
from joulewise.analyse.curves.passing import pixel_edges, show
from joulewise.analyse.curves.sensors import SensorCourses, sensor_courses
from joulewise.analyse.curves.thin import Envelope, Thinning
from joulewise.analyse.lanes import OpenLane, Rows
from joulewise.analyse.stored import result_of
from joulewise.analyse.stretch import Stretch
from joulewise.data import Caution, Kind, RunResult
from joulewise.record.layout import Lane
from joulewise.record.manifest import Manifest, RecordedDevice, read_manifest
from joulewise.record.trace import open_lane

PIXELS: Final = 600
_FEWEST_PIXELS: Final = 150
_ALL_PIXELS: Final = 2_400
_POWER: Final = "power_w"
_FAULTS: Final = {Caution.GAP, Caution.STUCK, Caution.COUNTER_RESET, Caution.UNAVAILABLE}
_LANES: Final = {Lane.FAST: "polls", Lane.BUFFER: "driver's samples"}


@dataclass(frozen=True)
class DeviceCurves:
    """One device. ``power`` is None where nobody read its power; ``growth`` has a mean then.

    ``sampling`` is of each lane, by what it is called.
    """

    device: RecordedDevice
    power: Envelope | None
    growth: Growth
    sampling: dict[str, Sampling]
    sensors: SensorCourses | None

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
    lanes = partial(open_lane, run)
    counted = [one for one in manifest.devices if one.info.key in result.counted and one.sources]
    pixels = int(np.clip(_ALL_PIXELS / max(len(counted), 1), _FEWEST_PIXELS, PIXELS))
    edges_ns = growth_edges(stretch)
    faulty = {one.device for one in result.warnings if one.code in _FAULTS}
    found = []
    for device in counted:
        growth, energies = growth_of(lanes, device, edges_ns, faulty=device.info.key in faulty)
        found.append((_device(lanes, device, stretch, pixels, growth), energies))
    return RunCurves(
        manifest,
        result,
        tuple(curves for curves, _ in found),
        whole_growth(result, edges_ns, [(curves.growth, told) for curves, told in found]),
    )


def _device(
    lanes: OpenLane,
    device: RecordedDevice,
    stretch: Stretch,
    pixels: int,
    growth: Growth,
) -> DeviceCurves:
    key = device.info.key
    power: Envelope | None = None
    sampling = {}
    for lane, name in _LANES.items():
        rows = lanes(key, lane)
        if rows is None:
            continue
        # The driver's own samples come last, and are those that are drawn where there are any.
        seen, envelope = _seen(rows, stretch, pixels)
        power = envelope or power
        if seen:
            sampling[name] = seen
    slow = lanes(key, Lane.SLOW)
    sensors = None if slow is None else sensor_courses(slow, stretch, device.info.vendor, pixels)
    return DeviceCurves(device, power, growth, sampling, sensors)


def _seen(rows: Rows, stretch: Stretch, pixels: int) -> tuple[Sampling | None, Envelope | None]:
    column = _POWER if _POWER in rows.columns else "energy_j"
    intervals = Intervals(rows, column, stretch)
    if column != _POWER:
        show(rows, intervals)
        return intervals.sampling(), None
    thinning = Thinning(_POWER, pixel_edges(rows, stretch, pixels))
    show(rows, intervals, thinning)
    envelope = thinning.envelope()
    return intervals.sampling(), envelope if envelope.count.any() else None
