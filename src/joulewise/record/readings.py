"""One device's readings, a row at every deadline."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Final

from joulewise.data import Quantity, Reading, SensorInfo, Unavailable
from joulewise.devices.protocol import Device
from joulewise.record.notes import Notes
from joulewise.record.rows import Rows
from joulewise.record.statistics import Statistics
from joulewise.units import NS_PER_MS

# The counter goes first: joules come from it, so the row bears the moment at which it was asked.
FAST: Final = (Quantity.ENERGY, Quantity.POWER)
_LONG_NS: Final = 2 * NS_PER_MS


def fast_quantities(device: Device) -> tuple[Quantity, ...]:
    return tuple(q for q in FAST if isinstance(device.sensors.get(q), SensorInfo))


def slow_quantities(device: Device) -> tuple[Quantity, ...]:
    """Everything else that there is, what takes milliseconds last."""
    others = [
        sensor
        for quantity, sensor in device.sensors.items()
        if quantity not in FAST and isinstance(sensor, SensorInfo)
    ]
    return tuple(sensor.quantity for sensor in sorted(others, key=lambda s: s.slow))


class Readings:
    """Reads some quantities of a device into rows. What cannot be read is a gap, and noted."""

    def __init__(
        self,
        name: str,
        device: Device,
        quantities: Sequence[Quantity],
        notes: Notes,
        *,
        period_ns: int,
        now_ns: Callable[[], int] = monotonic_ns,
    ) -> None:
        self.name = name
        self.rows = Rows([quantity.value for quantity in quantities])
        self._key = device.info.key
        self._read = device.read
        self._quantities = tuple(quantities)
        # What is new is judged by power where that is read, else by the first.
        news = Quantity.POWER if Quantity.POWER in quantities else self._quantities[0]
        self.statistics = Statistics(period_ns, news.value)
        self._notes = notes
        self._now_ns = now_ns
        self._faults: dict[Quantity, str] = {}

    def serve(self, deadline_ns: int) -> None:
        """Read everything once: one more row."""
        asked_ns = t_ns = self._now_ns()
        values: list[float] = []
        for quantity in self._quantities:
            reading = self._read(quantity)
            if type(reading) is Reading:
                if not values:
                    t_ns = reading.t_ns
                values.append(reading.value)
                if self._faults:
                    self._recovered(quantity)
            else:
                values.append(math.nan)
                self._fault(quantity, reading)
        took_ns = self._now_ns() - asked_ns
        if took_ns > _LONG_NS:  # somewhere in there the values were taken
            t_ns += took_ns // 2
        self.rows.add(t_ns, asked_ns - deadline_ns, values)

    def skip(self, missed: int) -> None:
        self.statistics.missed += missed

    def _fault(self, quantity: Quantity, reading: Reading | Unavailable) -> None:
        reason = reading.reason if isinstance(reading, Unavailable) else ""
        if self._faults.get(quantity) != reason:
            self._faults[quantity] = reason
            self._notes.add("device_unavailable", reason, self._key, quantity=quantity.value)

    def _recovered(self, quantity: Quantity) -> None:
        if self._faults.pop(quantity, None) is not None:
            self._notes.add("device_back", "it is read again", self._key, quantity=quantity.value)
