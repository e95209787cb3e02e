"""The smallest device that keeps every promise of the protocol, in a time of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from joulewise.data import (
    DeviceInfo,
    Kind,
    Knob,
    KnobInfo,
    Process,
    Quantity,
    Reading,
    Sample,
    SensorInfo,
    Source,
    Unavailable,
)
from joulewise.devices.ranges import check_in_range
from joulewise.errors import DeviceLostError, NotSupportedError
from joulewise.units import NS_PER_S

_CLOSED: Final = Unavailable("the device was closed")
_NO_SENSOR: Final = Unavailable("a toy has no such sensor")
_START_NS: Final = NS_PER_S


@dataclass
class ToyClock:
    """Time that passes when it is told to."""

    now_ns: int = _START_NS

    def elapse(self, seconds: float) -> None:
        self.now_ns += round(seconds * NS_PER_S)


class ToyDevice:
    """A GPU that draws half of its power limit; its clocks can be locked but not asked for."""

    def __init__(self, clock: ToyClock, key: str = "gpu0") -> None:
        self.info = DeviceInfo(key, Kind.GPU, "Toy 100", f"TOY-{key}", "toy", driver="1.0")
        self.sensors: Mapping[Quantity, SensorInfo | Unavailable] = {
            Quantity.POWER: SensorInfo(Quantity.POWER, Source.MEASURED, 0.02, 0.01),
            Quantity.ENERGY: SensorInfo(Quantity.ENERGY, Source.MEASURED, 0.02),
            Quantity.GPU_UTILISATION: SensorInfo(Quantity.GPU_UTILISATION, Source.MEASURED, 0.2),
            Quantity.FAN: Unavailable("a toy has no fan"),
        }
        self.knobs: Mapping[Knob, KnobInfo | Unavailable] = {
            Knob.POWER_LIMIT: KnobInfo(Knob.POWER_LIMIT, 50, 100, 80),
            Knob.SM_CLOCK: KnobInfo(
                Knob.SM_CLOCK, 500, 1500, None, choices=(500, 1000, 1500), readable=False
            ),
            Knob.MEMORY_CLOCK: Unavailable("a toy's memory has one clock"),
        }
        self._clock = clock
        self._limit_w = 80.0
        self._closed = False
        self._energy_j = 0.0
        self._counted_ns = clock.now_ns

    def read(self, quantity: Quantity) -> Reading | Unavailable:
        if self._closed:
            return _CLOSED
        sensor = self.sensors.get(quantity, _NO_SENSOR)
        if isinstance(sensor, Unavailable):
            return sensor
        values: dict[Quantity, Callable[[], float]] = {
            Quantity.POWER: lambda: self._limit_w / 2,
            Quantity.ENERGY: self._count,
            Quantity.GPU_UTILISATION: lambda: 50.0,
        }
        return Reading(values[quantity](), self._clock.now_ns)

    def samples(self, quantity: Quantity, since_us: int = 0) -> Sequence[Sample] | Unavailable:
        if self._closed:
            return _CLOSED
        if quantity is not Quantity.POWER:
            return Unavailable("a toy buffers its power only")
        now_us = self._clock.now_ns // 1000
        times = range(max(_START_NS // 1000, now_us - 200_000), now_us + 1, 20_000)
        return [Sample(t_us, self._limit_w / 2) for t_us in times if t_us > since_us]

    def processes(self) -> Sequence[Process] | Unavailable:
        return _CLOSED if self._closed else [Process(pid=1, memory_b=None, kind="compute")]

    def get(self, knob: Knob) -> float | Unavailable:
        if self._closed:
            return _CLOSED
        if knob is Knob.POWER_LIMIT:
            return self._limit_w
        return Unavailable(f"a toy does not tell its {knob.value}")

    def set(self, knob: Knob, value: float) -> None:
        check_in_range(self.info.key, self._turnable(knob), value)
        self._count()
        if knob is Knob.POWER_LIMIT:
            self._limit_w = value

    def reset(self, knob: Knob) -> None:
        default = self._turnable(knob).default
        if default is not None:
            self.set(knob, default)

    def close(self) -> None:
        self._closed = True

    def _turnable(self, knob: Knob) -> KnobInfo:
        if self._closed:
            raise DeviceLostError(_CLOSED.reason, "open it again")
        info = self.knobs.get(knob, Unavailable("a toy has no such knob"))
        if isinstance(info, Unavailable):
            raise NotSupportedError(info.reason, "turn another knob")
        return info

    def _count(self) -> float:
        passed_s = (self._clock.now_ns - self._counted_ns) / NS_PER_S
        self._energy_j += self._limit_w / 2 * passed_s
        self._counted_ns = self._clock.now_ns
        return math.floor(self._energy_j * 1000) / 1000
