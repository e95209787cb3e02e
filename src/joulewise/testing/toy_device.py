"""The smallest device that follows the whole protocol, in a time of its own; an example."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from joulewise.data import (
    ControlInfo,
    ControlKind,
    DeviceInfo,
    DriverSample,
    Kind,
    Process,
    Quantity,
    Reading,
    SensorInfo,
    Source,
    Unavailable,
)
from joulewise.devices.device import BaseDevice
from joulewise.units import NS_PER_S

_START_NS: Final = NS_PER_S


@dataclass
class ToyClock:
    """Time that passes only by :meth:`elapse`."""

    now_ns: int = _START_NS

    def elapse(self, seconds: float) -> None:
        self.now_ns += round(seconds * NS_PER_S)


class ToyDevice(BaseDevice):
    """A GPU that draws half of its power limit; its clocks can be locked, but not read back."""

    def __init__(self, clock: ToyClock, key: str = "gpu0") -> None:
        self.info = DeviceInfo(key, Kind.GPU, "Toy 100", f"TOY-{key}", "toy", driver="1.0")
        self.sensors = {
            Quantity.POWER: SensorInfo(Quantity.POWER, Source.MEASURED, 0.02, 0.01),
            Quantity.ENERGY: SensorInfo(Quantity.ENERGY, Source.MEASURED, 0.02),
            Quantity.GPU_UTILISATION: SensorInfo(Quantity.GPU_UTILISATION, Source.MEASURED, 0.2),
            Quantity.FAN: Unavailable("a toy has no fan"),
        }
        self.controls = {
            ControlKind.POWER_LIMIT: ControlInfo(ControlKind.POWER_LIMIT, 50, 100, 80),
            ControlKind.SM_CLOCK: ControlInfo(
                ControlKind.SM_CLOCK, 500, 1500, None, choices=(500, 1000, 1500), readable=False
            ),
            ControlKind.MEMORY_CLOCK: Unavailable("a toy's memory has one clock"),
        }
        self._clock = clock
        self._limit_w = 80.0
        self._energy_j = 0.0
        self._counted_ns = clock.now_ns

    def _read(self, quantity: Quantity) -> Reading:
        values: dict[Quantity, Callable[[], float]] = {
            Quantity.POWER: lambda: self._limit_w / 2,
            Quantity.ENERGY: self._count,
            Quantity.GPU_UTILISATION: lambda: 50.0,
        }
        return Reading(values[quantity](), self._clock.now_ns)

    def _samples(self, quantity: Quantity, since_us: int) -> Sequence[DriverSample] | Unavailable:
        if quantity is not Quantity.POWER:
            return super()._samples(quantity, since_us)
        now_us = self._clock.now_ns // 1000
        times = range(max(_START_NS // 1000, now_us - 200_000), now_us + 1, 20_000)
        return [DriverSample(t_us, self._limit_w / 2) for t_us in times if t_us > since_us]

    def _processes(self) -> Sequence[Process]:
        return [Process(pid=1, memory_b=None, kind="compute")]

    def _get(self, control: ControlKind) -> float | Unavailable:
        if control is ControlKind.POWER_LIMIT:
            return self._limit_w
        return Unavailable(f"a toy does not tell its {control.value}")

    def _set(self, info: ControlInfo, value: float) -> None:
        self._count()
        if info.control is ControlKind.POWER_LIMIT:
            self._limit_w = value

    def _reset(self, info: ControlInfo) -> None:
        if info.default is not None:
            self._set(info, info.default)

    def _count(self) -> float:
        passed_s = (self._clock.now_ns - self._counted_ns) / NS_PER_S
        self._energy_j += self._limit_w / 2 * passed_s
        self._counted_ns = self._clock.now_ns
        return math.floor(self._energy_j * 1000) / 1000
