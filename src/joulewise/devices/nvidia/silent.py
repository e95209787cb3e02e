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

    ``asleep`` is whether the kernel had it suspended when it was last looked at.
    """

    def __init__(
        self,
        info: DeviceInfo,
        fault: Fault,
        look: Callable[[], Device | None],
        *,
        asleep: bool = False,
    ) -> None:
        self.info = info
        self.asleep = asleep
        self._look = look
        self._fault = fault
        self._why = fault.unavailable()
        self.sensors = {q: self._why for q in Quantity if q is not Quantity.LOAD}
        self.knobs = dict.fromkeys(_KNOBS, self._why)

    def reopened(self) -> Device | None:
        """Look again, without waking it: the GPU itself once it answers, else None."""
        found = self._look()
        if isinstance(found, SilentGpu):
            self.asleep = found.asleep
            return None
        self.asleep = False
        return found

    def _samples(self, _quantity: Quantity, _since_us: int) -> Unavailable:
        return self._why

    def _processes(self) -> Unavailable:
        return self._why

    def _ended_processes(self, _since_us: int) -> Unavailable:
        return self._why

    def _turnable(self, knob: Knob) -> NoReturn:
        raise self._fault.exception(f"{self.info.key}'s {knob.value} cannot be turned")
