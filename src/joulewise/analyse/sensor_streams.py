"""Which recorded stream tells a quantity of a device, and which of several is the densest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from joulewise.analyse.lanes import OpenLane, Rows
from joulewise.data import Quantity
from joulewise.record.layout import Lane

# The driver's own samples: of power, and where they were drained of utilisation and clocks. Each
# has the quantity as its column. They come before polls, which tell the same less often.
_DRIVER: Final = tuple(lane for lane in Lane if lane.value.startswith(Lane.BUFFER.value))
_POLLED: Final = (Lane.FAST, Lane.SLOW)


@dataclass(frozen=True)
class SensorStream:
    """One column of one stream. ``name`` is that of its file: ``gpu0.buffer``."""

    name: str
    quantity: Quantity
    rows: Rows


def sensor_streams(lanes: OpenLane, key: str) -> Iterator[SensorStream]:
    """Every quantity of a device in every stream that has it, the driver's own samples first."""
    known = {quantity.value: quantity for quantity in Quantity}
    for lane in (*_DRIVER, *_POLLED):
        rows = lanes(key, lane)
        for column in rows.columns if rows is not None else ():
            if rows is not None and column in known:
                yield SensorStream(f"{key}{lane.value}", known[column], rows)
