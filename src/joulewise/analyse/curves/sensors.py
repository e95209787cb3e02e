"""What a GPU's slow lane tells over time: heat, clocks, use, the limit, what held it back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.curves.passing import pixel_edges, show
from joulewise.analyse.curves.thin import Envelope, Thinning
from joulewise.analyse.lanes import Rows
from joulewise.analyse.stretch import Stretch
from joulewise.data import Quantity
from joulewise.devices.nvidia.throttle import throttle_names

if TYPE_CHECKING:
    from numpy.typing import NDArray

DRAWN: Final = (
    Quantity.TEMPERATURE,
    Quantity.SM_CLOCK,
    Quantity.MEMORY_CLOCK,
    Quantity.GPU_UTILISATION,
    Quantity.MEMORY_UTILISATION,
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


def sensor_courses(slow: Rows, run: Stretch, vendor: str, pixels: int) -> SensorCourses:
    """All in one pass; at most as many pixels as there are looks."""
    edges_ns = pixel_edges(slow, run, pixels)
    columns = {q: Thinning(q.value, edges_ns) for q in DRAWN if q.value in slow.columns}
    reasons = _reasons(slow, edges_ns, vendor)
    show(slow, *columns.values(), *reasons.values())
    found = {quantity: thinning.envelope() for quantity, thinning in columns.items()}
    told = {name: thinning.envelope() for name, thinning in reasons.items()}
    shares = {name: _share(envelope) for name, envelope in told.items()}
    return SensorCourses(
        {quantity: envelope for quantity, envelope in found.items() if envelope.count.any()},
        {name: envelope for name, envelope in told.items() if shares[name]},
        {name: share for name, share in shares.items() if share},
    )


def _reasons(slow: Rows, edges_ns: NDArray[np.int64], vendor: str) -> dict[str, Thinning]:
    column = Quantity.THROTTLE.value
    if column not in slow.columns or vendor != "nvidia":  # others' bits have no names
        return {}
    return {name: Thinning(column, edges_ns, bit) for bit, name in _HELD.items()}


def _share(envelope: Envelope) -> float:
    looks = int(envelope.count.sum())
    return float(np.nansum(envelope.mean * envelope.count)) / looks if looks else 0.0
