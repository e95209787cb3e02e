"""Sensors over time: heat, clocks, use, memory, PCIe, the limit, and what held clocks down."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.curves.passing import pixel_edges, show
from joulewise.analyse.curves.thin import Envelope, Thinning
from joulewise.analyse.lanes import OpenLane, Rows
from joulewise.analyse.sensor_streams import sensor_streams
from joulewise.analyse.stretch import Stretch
from joulewise.data import Quantity
from joulewise.devices.nvidia.throttle import throttle_names

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from joulewise.record.manifest import RecordedDevice

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
_HELD: Final = {
    bit: name
    for bit in (1 << shift for shift in range(11))
    for name in throttle_names(bit)
    if name != "idle"
}


@dataclass(frozen=True)
class SensorCourses:
    """``reasons`` has, for each reason that held the clocks down, its share of each pixel's looks.

    ``held`` has its share of all of them.
    """

    columns: dict[Quantity, Envelope]
    reasons: dict[str, Envelope]
    held: dict[str, float]


def sensor_courses(
    lanes: OpenLane, device: RecordedDevice, run: Stretch, pixels: int
) -> SensorCourses:
    """Each stream in one pass, with at most as many pixels as it has readings.

    What the driver sampled itself goes before what was polled.
    """
    columns: dict[Quantity, Envelope] = {}
    reasons: dict[str, Envelope] = {}
    streams = list(sensor_streams(lanes, device.info.key))
    for _, together in groupby(streams, key=attrgetter("name")):
        mine = {stream.quantity: stream.rows for stream in together}
        drawn = [quantity for quantity in DRAWN if quantity in mine and quantity not in columns]
        if not drawn and Quantity.THROTTLE not in mine:
            continue
        rows = next(iter(mine.values()))
        edges_ns = pixel_edges(rows, run, pixels)
        thinned = {quantity: Thinning(quantity.value, edges_ns) for quantity in drawn}
        held = _reasons(rows, edges_ns, device.info.vendor)
        show(rows, *thinned.values(), *held.values())
        envelopes = {quantity: each.envelope() for quantity, each in thinned.items()}
        columns.update({quantity: it for quantity, it in envelopes.items() if it.count.any()})
        reasons.update({name: each.envelope() for name, each in held.items()})
    shares = {name: _share(envelope) for name, envelope in reasons.items()}
    return SensorCourses(
        {quantity: columns[quantity] for quantity in DRAWN if quantity in columns},
        {name: envelope for name, envelope in reasons.items() if shares[name]},
        {name: share for name, share in shares.items() if share},
    )


def _reasons(rows: Rows, edges_ns: NDArray[np.int64], vendor: str) -> dict[str, Thinning]:
    column = Quantity.THROTTLE.value
    if column not in rows.columns or vendor != "nvidia":  # others' bits have no names
        return {}
    return {name: Thinning(column, edges_ns, bit) for bit, name in _HELD.items()}


def _share(envelope: Envelope) -> float:
    looks = int(envelope.count.sum())
    return float(np.nansum(envelope.mean * envelope.count)) / looks if looks else 0.0
