"""What every device answers alike: once it is closed, and for what it has not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from joulewise.data import (
    DeviceInfo,
    Knob,
    KnobInfo,
    Process,
    Quantity,
    Reading,
    Sample,
    SensorInfo,
    Unavailable,
)
from joulewise.devices.ranges import check_in_range
from joulewise.errors import DeviceLostError, NotSupportedError

CLOSED: Final = Unavailable("the device was closed", "open it again")


class BaseDevice:
    """The protocol's methods, around what a subclass does in those with an underscore.

    The latter are called only while the device is open, for what it lists, with values in range or
    that were found before.
    """

    info: DeviceInfo
    sensors: Mapping[Quantity, SensorInfo | Unavailable]
    knobs: Mapping[Knob, KnobInfo | Unavailable]
    _closed = False

    def read(self, quantity: Quantity) -> Reading | Unavailable:
        sensor = CLOSED if self._closed else self.sensors.get(quantity) or self._lacks(quantity)
        return sensor if isinstance(sensor, Unavailable) else self._read(quantity)

    def samples(self, quantity: Quantity, since_us: int = 0) -> Sequence[Sample] | Unavailable:
        return CLOSED if self._closed else self._samples(quantity, since_us)

    def processes(self) -> Sequence[Process] | Unavailable:
        return CLOSED if self._closed else self._processes()

    def ended_processes(self, since_us: int) -> Sequence[Process] | Unavailable:
        """Who used it and has ended since then (wall clock), where the driver keeps that."""
        return CLOSED if self._closed else self._ended_processes(since_us)

    def get(self, knob: Knob) -> float | Unavailable:
        info = self._knob(knob)
        return info if isinstance(info, Unavailable) else self._get(knob)

    def set(self, knob: Knob, value: float) -> None:
        info = self._turnable(knob)
        check_in_range(self.info.key, info, value)
        self._set(info, value)

    def put_back(self, knob: Knob, value: float) -> None:
        self._set(self._turnable(knob), value)

    def reset(self, knob: Knob) -> None:
        self._reset(self._turnable(knob))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._release()

    def _read(self, quantity: Quantity) -> Reading | Unavailable:
        raise NotImplementedError

    def _samples(self, quantity: Quantity, since_us: int) -> Sequence[Sample] | Unavailable:
        del since_us
        return Unavailable(f"{self.info.key} keeps no buffer of {quantity.value}")

    def _processes(self) -> Sequence[Process] | Unavailable:
        raise NotImplementedError

    def _ended_processes(self, since_us: int) -> Sequence[Process] | Unavailable:
        del since_us
        return Unavailable(f"{self.info.key} keeps no account of processes")

    def _get(self, knob: Knob) -> float | Unavailable:
        raise NotImplementedError

    def _set(self, info: KnobInfo, value: float) -> None:
        raise NotImplementedError

    def _reset(self, info: KnobInfo) -> None:
        raise NotImplementedError

    def _release(self) -> None:
        """Let go of what is held."""

    def _lacks(self, what: Quantity | Knob) -> Unavailable:
        return Unavailable(f"{self.info.key} has no {what.value}")

    def _knob(self, knob: Knob) -> KnobInfo | Unavailable:
        return CLOSED if self._closed else self.knobs.get(knob) or self._lacks(knob)

    def _turnable(self, knob: Knob) -> KnobInfo:
        info = self._knob(knob)
        if isinstance(info, KnobInfo):
            return info
        error = DeviceLostError if self._closed else NotSupportedError
        raise error(
            f"{self.info.key}'s {knob.value} cannot be turned: {info.reason}",
            info.fix or "joulewise doctor lists what can be turned",
        )
