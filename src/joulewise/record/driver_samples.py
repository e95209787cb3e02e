"""Draining the samples that a driver buffers itself, before it overwrites them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic_ns, time_ns
from typing import Final

from joulewise.data import DriverSample, Quantity, Unavailable
from joulewise.devices.device import Device
from joulewise.record.clocks import DriverClock
from joulewise.record.schedule import NO_EDGE, EdgeTiming
from joulewise.record.statistics import StreamStatistics
from joulewise.record.writer import RecorderNotes
from joulewise.store.arrow_stream import EXTRA_NS, ColumnBuffer
from joulewise.units import NS_PER_S, NS_PER_US

# Chosen: a driver's buffer of utilisation lasts for 20 s (120 samples at 6 Hz), and a clock that
# was set, or a machine that was suspended, is noticed within this.
_LONGEST_PAUSE_NS: Final = 10 * NS_PER_S


class DriverSamples:
    """A channel that adds what is new in a driver's buffer to rows: no sample twice, none lost."""

    def __init__(
        self,
        name: str,
        device: Device,
        quantity: Quantity,
        *,
        edge: EdgeTiming,
        now_ns: Callable[[], int],
        wall_ns: Callable[[], int],
    ) -> None:
        self.name = name
        self.edge = edge
        self.rows = ColumnBuffer([quantity.value])
        self.statistics = StreamStatistics(0, quantity.value)
        self._device = device
        self._quantity = quantity
        self._clock = DriverClock(now_ns, wall_ns)
        self._now_ns = now_ns
        self._newest_ns = 0

    def serve(self, deadline_ns: int) -> None:
        self._drain(self._now_ns() - deadline_ns)

    def serve_extra(self) -> None:
        self._drain(EXTRA_NS)

    def is_settled(self, end_ns: int) -> bool:
        """Whether a sample was taken late enough to show all that was drawn until ``end_ns``."""
        return not self.edge.tail_ns or self._newest_ns >= end_ns + self.edge.lag_ns

    def skip(self, missed: int) -> None:
        """Count deadlines that were missed."""
        self.statistics.missed += missed

    def _drain(self, late_ns: int) -> Sequence[DriverSample] | Unavailable:
        """Add new samples to the rows; the driver's answer."""
        samples = self._device.samples(self._quantity, self._clock.since_us())
        if not isinstance(samples, Unavailable):
            times_ns, values = self._clock.place(samples)
            self._newest_ns = times_ns[-1] if times_ns else self._newest_ns
            self.rows.add(late_ns, times_ns, values)
        return samples


class PowerSamples(DriverSamples):
    """Samples of power, drained at every deadline. A fault of the driver is noted."""

    def __init__(
        self,
        name: str,
        device: Device,
        notes: RecorderNotes,
        *,
        edge: EdgeTiming = NO_EDGE,
        now_ns: Callable[[], int] = monotonic_ns,
        wall_ns: Callable[[], int] = time_ns,
    ) -> None:
        super().__init__(name, device, Quantity.POWER, edge=edge, now_ns=now_ns, wall_ns=wall_ns)
        self._notes = notes
        self._fault = ""

    def _drain(self, late_ns: int) -> Sequence[DriverSample] | Unavailable:
        samples = super()._drain(late_ns)
        fault = samples.reason if isinstance(samples, Unavailable) else ""
        if fault and fault != self._fault:
            key = self._device.info.key
            self._notes.add("device_unavailable", fault, key, quantity="samples")
        self._fault = fault
        return samples


class OtherSamples(DriverSamples):
    """Samples of another quantity, drained when half of the driver's buffer is new.

    Where the driver does not buffer the quantity, the stream's statistics say why, and it is not
    requested again. Nothing is waited for at the end of a run, since no energy depends on it.
    """

    def __init__(
        self,
        name: str,
        device: Device,
        quantity: Quantity,
        *,
        period_ns: int,
        now_ns: Callable[[], int] = monotonic_ns,
        wall_ns: Callable[[], int] = time_ns,
    ) -> None:
        super().__init__(name, device, quantity, edge=NO_EDGE, now_ns=now_ns, wall_ns=wall_ns)
        self._period_ns = period_ns
        self._pause_ns = 0
        self._due_ns = 0
        self._has_answered = False

    def serve(self, deadline_ns: int) -> None:
        if deadline_ns >= self._due_ns:
            super().serve(deadline_ns)
            self._due_ns = deadline_ns + self._pause_ns

    def _drain(self, late_ns: int) -> Sequence[DriverSample] | Unavailable:
        if self.statistics.unavailable and not self._has_answered:
            return Unavailable(self.statistics.unavailable)
        samples = super()._drain(late_ns)
        if isinstance(samples, Unavailable):
            self.statistics.unavailable = samples.reason
        else:
            self.statistics.unavailable, self._has_answered = "", True
            self._pause_ns = self._pause_ns or self._half_full_ns(samples)
        return samples

    def _half_full_ns(self, samples: Sequence[DriverSample]) -> int:
        """How long the buffer takes to fill by half, in whole periods; 0 while that is unknown.

        The first answer is the whole buffer. If that was not full, this is too short, which costs
        calls and no samples.
        """
        if len(samples) < 2:
            return 0
        half_ns = (samples[-1].t_us - samples[0].t_us) * NS_PER_US // 2
        return min(half_ns, _LONGEST_PAUSE_NS) // self._period_ns * self._period_ns


def has_buffer(device: Device) -> bool:
    """Whether the driver of a device buffers samples of power."""
    return not isinstance(device.samples(Quantity.POWER), Unavailable)
