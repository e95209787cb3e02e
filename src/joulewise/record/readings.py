"""One device's readings, a row at every deadline.

A device that says nothing, asleep or lost: looked at now and then, never woken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Any, Final

from joulewise.data import PowerScope, Quantity, Reading, SensorInfo, Unavailable
from joulewise.devices.device import Device
from joulewise.record.schedule import NO_EDGE, EdgeTiming
from joulewise.record.statistics import Statistics
from joulewise.record.writer import RecorderNotes
from joulewise.store.arrow_stream import EXTRA_NS, RowBuffer
from joulewise.units import NS_PER_MS

# The counter goes first: joules come from it, so the row bears the moment at which it was asked.
FAST: Final = (Quantity.ENERGY, Quantity.POWER)
_LONG_NS: Final = 2 * NS_PER_MS


def fast_quantities(device: Device) -> tuple[Quantity, ...]:
    """What joules come from; of a superchip's module also the GPU's part of its power."""
    wanted = (*FAST, Quantity.GPU_POWER)
    return tuple(q for q in wanted if isinstance(device.sensors.get(q), SensorInfo))


def slow_quantities(device: Device) -> tuple[Quantity, ...]:
    """Everything else that there is, what takes milliseconds last."""
    others = [
        sensor
        for quantity, sensor in device.sensors.items()
        if quantity not in FAST and isinstance(sensor, SensorInfo)
    ]
    return tuple(sensor.quantity for sensor in sorted(others, key=lambda s: s.slow))


class DeviceReader:
    """Reads some quantities of a device into rows. What cannot be read is a gap, and noted."""

    def __init__(
        self,
        name: str,
        device: Device,
        quantities: Sequence[Quantity],
        notes: RecorderNotes,
        *,
        period_ns: int,
        edge: EdgeTiming = NO_EDGE,
        now_ns: Callable[[], int] = monotonic_ns,
    ) -> None:
        self.name = name
        self.edge = edge
        self.rows = RowBuffer([quantity.value for quantity in quantities])
        self._device = device
        self._key = device.info.key
        self._read = device.read
        self._quantities = tuple(quantities)
        # What is new is judged by power where that is read, else by the first.
        news = Quantity.POWER if Quantity.POWER in quantities else self._quantities[0]
        self.statistics = Statistics(period_ns, news.value)
        self._notes = notes
        self._now_ns = now_ns
        self._faults: dict[Quantity, str] = {}
        # For each quantity: its newest value, when that was shown last, and when it was not shown
        # yet, after which it was updated.
        self._newest = [math.nan] * len(self._quantities)
        self._shown_ns = [0] * len(self._quantities)
        self._updated_after_ns = [0] * len(self._quantities)

    @property
    def is_of_module(self) -> bool:
        """Whether its device tells the power of a module, which a sensor may show only later."""
        return self._device.info.power_scope is PowerScope.MODULE

    def serve(self, deadline_ns: int) -> None:
        """Read everything once: one more row."""
        self._read_row(deadline_ns)

    def serve_extra(self) -> None:
        self._read_row(None)

    def is_settled(self, end_ns: int) -> bool:
        """Whether each quantity was updated late enough to show all that was drawn until then."""
        if not self.edge.tail_ns:
            return True
        return all(after_ns >= end_ns + self.edge.lag_ns for after_ns in self._updated_after_ns)

    def _read_row(self, deadline_ns: int | None) -> None:
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
        answered_ns = self._now_ns()
        if answered_ns - asked_ns > _LONG_NS:
            # The counter was read somewhere between its own time and the answer, which may be close
            # together after a long wait for the thread to run: never later than the next row.
            t_ns += (answered_ns - t_ns) // 2
        if self.edge.tail_ns:
            self._see_updates(asked_ns, values)
        self.rows.add(t_ns, EXTRA_NS if deadline_ns is None else asked_ns - deadline_ns, values)

    def _see_updates(self, asked_ns: int, values: list[float]) -> None:
        for index, value in enumerate(values):
            if math.isnan(value):
                continue
            if value != self._newest[index]:
                self._updated_after_ns[index] = self._shown_ns[index]
                self._newest[index] = value
            self._shown_ns[index] = asked_ns

    def skip(self, missed: int) -> None:
        self.statistics.missed += missed

    def _fault(self, quantity: Quantity, reading: Reading | Unavailable) -> None:
        reason, fix = (
            (reading.reason, reading.fix) if isinstance(reading, Unavailable) else ("", "")
        )
        if self._faults.get(quantity) != reason:
            self._faults[quantity] = reason
            more = {"quantity": quantity.value, **({"hint": fix} if fix else {})}
            self._notes.add("device_unavailable", reason, self._key, **more)

    def _recovered(self, quantity: Quantity) -> None:
        if self._faults.pop(quantity, None) is not None:
            self._notes.add("device_back", "it is read again", self._key, quantity=quantity.value)


class Silent:
    """Asks the device whether it can be opened by now, and hands on what was opened, once.

    With it goes the moment up to which it is known to have slept, None where it was just lost.
    """

    def __init__(self, device: Any, on_reopened: Callable[[Device, int | None], None]) -> None:
        self.name = f"{device.info.key}.silent"
        self._device = device
        self._on_reopened = on_reopened
        self._sleeps: bool = device.asleep
        self._asleep_ns = monotonic_ns() if self._sleeps else None
        self._done = False

    def serve(self, _deadline_ns: int) -> None:
        if self._done:
            return
        now_ns, found = monotonic_ns(), self._device.reopened()
        self._sleeps &= self._device.asleep
        if self._sleeps:
            self._asleep_ns = now_ns
        if found is not None:
            self._done = True
            self._on_reopened(found, self._asleep_ns)

    def skip(self, missed: int) -> None:
        """It is looked at the next time."""
