"""A GPU that is there and says nothing: lost, asleep, or out of reach."""

from __future__ import annotations

from collections.abc import Mapping

from joulewise.data import DeviceInfo, Knob, KnobInfo, Quantity, SensorInfo, Unavailable
from joulewise.devices.nvidia.faults import Fault

_KNOBS = (Knob.POWER_LIMIT, Knob.SM_CLOCK, Knob.MEMORY_CLOCK)


class SilentGpu:
    """It is listed, so that nobody counts without it unawares, and gives one reason for all."""

    def __init__(self, info: DeviceInfo, fault: Fault) -> None:
        self.info = info
        self._fault = fault
        self._why = fault.unavailable()
        self.sensors: Mapping[Quantity, SensorInfo | Unavailable] = {
            quantity: self._why for quantity in Quantity if quantity is not Quantity.LOAD
        }
        self.knobs: Mapping[Knob, KnobInfo | Unavailable] = dict.fromkeys(_KNOBS, self._why)

    def read(self, _quantity: Quantity) -> Unavailable:
        return self._why

    def samples(self, _quantity: Quantity, _since_us: int = 0) -> Unavailable:
        return self._why

    def processes(self) -> Unavailable:
        return self._why

    def get(self, _knob: Knob) -> Unavailable:
        return self._why

    def set(self, knob: Knob, value: float) -> None:
        raise self._fault.exception(f"{self.info.key} was not set to {knob.value}={value:g}")

    def reset(self, knob: Knob) -> None:
        raise self._fault.exception(f"{self.info.key}'s {knob.value} was not reset")

    def close(self) -> None:
        """Nothing is held."""
