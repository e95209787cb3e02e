"""What a program that polls NVML gets to see of a timeline."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.data import Quantity
from joulewise.simulate import sensor
from joulewise.simulate.model import Unit
from joulewise.simulate.timeline import Timeline

if TYPE_CHECKING:
    from numpy.typing import NDArray

FAST: Final = (Quantity.POWER, Quantity.ENERGY)
_UTILISATION: Final = {
    Quantity.GPU_UTILISATION: "busy",
    Quantity.MEMORY_UTILISATION: "memory_busy",
}
_OF_A_PIECE: Final = {
    Quantity.SM_CLOCK: "sm_mhz",
    Quantity.MEMORY_CLOCK: "memory_mhz",
    Quantity.TEMPERATURE: "temperature_c",
    Quantity.PERFORMANCE_STATE: "pstate",
    Quantity.THROTTLE: "throttle",
}
ALL: Final = (
    *FAST,
    Quantity.POWER_AVERAGE,
    Quantity.POWER_INSTANT,
    *_UTILISATION,
    *_OF_A_PIECE,
)


def poll(
    unit: Unit,
    timeline: Timeline,
    t_ns: NDArray[np.int64],
    quantities: Collection[Quantity] = FAST,
) -> dict[str, NDArray[Any]]:
    """A column ``t_ns`` and one for each quantity, by its name; none for what the board lacks."""
    spec = unit.board.sensor
    columns: dict[str, NDArray[Any]] = {"t_ns": t_ns}
    channels = {Quantity.POWER: sensor.plain_channel(unit)}
    if spec.average_window_s:
        channels[Quantity.POWER_AVERAGE] = sensor.AVERAGE
        channels[Quantity.POWER_INSTANT] = sensor.INSTANT
    asked = {channels[quantity] for quantity in quantities if quantity in channels}
    power_w = {channel: sensor.power_w(unit, timeline, t_ns, channel) for channel in asked}
    here = timeline.index_at(t_ns) if set(_OF_A_PIECE) & set(quantities) else t_ns[:0]
    for quantity in quantities:
        name = quantity.value
        if quantity in channels:
            columns[name] = power_w[channels[quantity]]
        elif quantity is Quantity.ENERGY and spec.counter_period_s:
            columns[name] = sensor.counter_j(unit, timeline, t_ns)
        elif quantity in _UTILISATION:
            columns[name] = sensor.utilisation_pct(unit, timeline, t_ns, _UTILISATION[quantity])
        elif quantity in _OF_A_PIECE:
            # NVML tells whole numbers, rounded down.
            whole = timeline.pieces[_OF_A_PIECE[quantity]].astype(np.int32)
            columns[name] = whole[here]
    return columns
