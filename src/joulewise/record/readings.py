"""Reading a device's sensors, a row at every deadline; polling one that does not answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Any, Final

from joulewise.data import PowerScope, Quantity, Reading, SensorInfo, Unavailable
from joulewise.devices.device import Device
from joulewise.record.schedule import NO_EDGE, EdgeTiming
from joulewise.record.statistics import StreamStatistics
from joulewise.record.writer import RecorderNotes
from joulewise.store.arrow_stream import EXTRA_NS, RowBuffer
from joulewise.units import NS_PER_MS

# The counter is read first: energy comes from it, so the row has the time at which it was read.
FAST: Final = (Quantity.ENERGY, Quantity.POWER)
# A row that takes longer than this gets the middle of its calls as its time. Chosen: about twice
# what the calls of a driver take. Doubled, the times of slow rows are wrong by up to 2 ms more.
_LONG_NS: Final = 2 * NS_PER_MS


def fast_quantities(device: Device) -> tuple[Quantity, ...]:
    """The quantities that energy comes from; of a superchip also the GPU's part of its power."""
    wanted = (*FAST, Quantity.GPU_POWER)
    return tuple(q for q in wanted if isinstance(device.sensors.get(q), SensorInfo))


def slow_quantities(device: Device) -> tuple[Quantity, ...]:
    """All other quantities of a device, those that take milliseconds last."""
    others = [
        sensor
        for quantity, sensor in device.sensors.items()
        if quantity not in FAST and isinstance(sensor, SensorInfo)
    ]
    return tuple(sensor.quantity for sensor in sorted(others, key=lambda s: s.slow))


class DeviceReader:
    """A channel that reads some quantities of a device into rows.

    What cannot be read is NaN in the row, and noted when the reason changes.
    """

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
        # New values are counted in power where that is read, else in the first quantity.
        counted = Quantity.POWER if Quantity.POWER in quantities else self._quantities[0]
        self.statistics = StreamStatistics(period_ns, counted.value)
        self._notes = notes
        self._now_ns = now_ns
        self._faults: dict[Quantity, str] = {}
        # For each quantity: its newest value, when that was last read, and the last reading before
        # it appeared, after which the sensor was updated.
        self._newest = [math.nan] * len(self._quantities)
        self._shown_ns = [0] * len(self._quantities)
        self._updated_after_ns = [0] * len(self._quantities)

    @property
    def is_of_module(self) -> bool:
        """Whether its device reports the power of a superchip's module."""
        return self._device.info.power_scope is PowerScope.MODULE

    def serve(self, deadline_ns: int) -> None:
        """Read all quantities once, as one more row."""
        self._read_row(deadline_ns)

    def serve_extra(self) -> None:
        """Read one more row, at no deadline."""
        self._read_row(None)

    def is_settled(self, end_ns: int) -> bool:
        """Whether each sensor was updated late enough to show all that was drawn until then."""
        if not self.edge.tail_ns:
            return True
        return all(after_ns >= end_ns + self.edge.lag_ns for after_ns in self._updated_after_ns)

    def _read_row(self, deadline_ns: int | None) -> None:
        start_ns = t_ns = self._now_ns()
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
        finished_ns = self._now_ns()
        if finished_ns - start_ns > _LONG_NS:
            # The counter was read between its own time and the answer. After a long wait for the
            # thread these may be close together, but never later than the next row.
            t_ns += (finished_ns - t_ns) // 2
        if self.edge.tail_ns:
            self._note_updates(start_ns, values)
        self.rows.add(t_ns, EXTRA_NS if deadline_ns is None else start_ns - deadline_ns, values)

    def _note_updates(self, start_ns: int, values: list[float]) -> None:
        for index, value in enumerate(values):
            if math.isnan(value):
                continue
            if value != self._newest[index]:
                self._updated_after_ns[index] = self._shown_ns[index]
                self._newest[index] = value
            self._shown_ns[index] = start_ns

    def skip(self, missed: int) -> None:
        """Count deadlines that were missed."""
        self.statistics.missed += missed

    def _fault(self, quantity: Quantity, reading: Reading | Unavailable) -> None:
        unavailable = reading if isinstance(reading, Unavailable) else Unavailable("")
        reason, fix = unavailable.reason, unavailable.fix
        if self._faults.get(quantity) != reason:
            self._faults[quantity] = reason
            more = {"quantity": quantity.value, **({"hint": fix} if fix else {})}
            self._notes.add("device_unavailable", reason, self._key, **more)

    def _recovered(self, quantity: Quantity) -> None:
        if self._faults.pop(quantity, None) is not None:
            self._notes.add("device_back", "it is read again", self._key, quantity=quantity.value)


class ReopenPoller:
    """A channel that tries to open a device that did not answer, without waking one that sleeps.

    Once it is open, ``on_reopened`` is called with the device and the time up to which it is known
    to have slept, None where it did not sleep.
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
        now_ns, device = monotonic_ns(), self._device.reopened()
        self._sleeps &= self._device.asleep
        if self._sleeps:
            self._asleep_ns = now_ns
        if device is not None:
            self._done = True
            self._on_reopened(device, self._asleep_ns)

    def skip(self, missed: int) -> None:
        """Nothing is lost: it is tried again at the next deadline."""
