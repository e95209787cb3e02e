"""A GPU that is there and says nothing: lost, asleep, or out of reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from joulewise.data import DeviceInfo, Knob, Quantity, Unavailable
from joulewise.devices.base import BaseDevice
from joulewise.devices.nvidia.faults import Fault
from joulewise.devices.protocol import Device

_KNOBS = (Knob.POWER_LIMIT, Knob.SM_CLOCK, Knob.MEMORY_CLOCK)


class SilentGpu(BaseDevice):
    """It is listed, so that nobody counts without it unawares, and gives one reason for all.

    ``reopened`` looks again, without waking it: the GPU itself once it answers, else None.
    """

    def __init__(
        self, info: DeviceInfo, fault: Fault, reopened: Callable[[], Device | None]
    ) -> None:
        self.info = info
        self.reopened = reopened
        self._fault = fault
        self._why = fault.unavailable()
        self.sensors = {q: self._why for q in Quantity if q is not Quantity.LOAD}
        self.knobs = dict.fromkeys(_KNOBS, self._why)

    def _samples(self, _quantity: Quantity, _since_us: int) -> Unavailable:
        return self._why

    def _processes(self) -> Unavailable:
        return self._why

    def _turnable(self, knob: Knob) -> NoReturn:
        raise self._fault.exception(f"{self.info.key}'s {knob.value} cannot be turned")
