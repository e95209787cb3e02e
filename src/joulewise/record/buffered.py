"""The driver's own samples of one device, drained before it forgets them."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns, time_ns

from joulewise.data import Quantity, Unavailable
from joulewise.devices.protocol import Device
from joulewise.record.driver_clock import DriverClock
from joulewise.record.notes import Notes
from joulewise.record.rows import Pieces
from joulewise.record.statistics import Statistics


class Buffered:
    """Adds what is new to rows, none dropped and none doubled."""

    def __init__(
        self,
        name: str,
        device: Device,
        notes: Notes,
        now_ns: Callable[[], int] = monotonic_ns,
        wall_ns: Callable[[], int] = time_ns,
    ) -> None:
        self.name = name
        self.rows = Pieces([Quantity.POWER.value])
        self.statistics = Statistics(0, Quantity.POWER.value)
        self._device = device
        self._clock = DriverClock(now_ns, wall_ns)
        self._now_ns = now_ns
        self._notes = notes
        self._fault = ""

    def serve(self, deadline_ns: int) -> None:
        late_ns = self._now_ns() - deadline_ns
        samples = self._device.samples(Quantity.POWER, self._clock.since_us())
        if isinstance(samples, Unavailable):
            if samples.reason != self._fault:
                self._fault = samples.reason
                self._notes.add(
                    "device_unavailable", samples.reason, self._device.info.key, quantity="samples"
                )
            return
        self._fault = ""
        times_ns, values = self._clock.place(samples)
        self.rows.add(late_ns, times_ns, values)

    def skip(self, missed: int) -> None:
        self.statistics.missed += missed


def has_buffer(device: Device) -> bool:
    return not isinstance(device.samples(Quantity.POWER), Unavailable)
