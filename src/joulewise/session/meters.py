"""Joules so far, from what the recorder reads anyway."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

from joulewise.data import Card, Energy, Quantity, Reading, SensorInfo, Unavailable
from joulewise.devices import Device
from joulewise.units import NS_PER_S

_Z: Final = 1.96
# A counter has counted meanwhile: who reads it a hundred times a second need not add as often.
_COUNTER_NS: Final = NS_PER_S // 2


class Meter:
    """A device that adds up what it tells: its counter's steps, or else its power over time."""

    def __init__(self, device: Device) -> None:
        self._take(device)
        self._lock = threading.Lock()
        self._last: Reading | None = None
        self._newest: Reading | None = None
        self._due_ns = 0
        self._interval_s = 0.0
        self._sum_j: float | None = None
        self._since_j = 0.0
        self._since_ns = 0

    def _take(self, device: Device) -> None:
        self._device = device
        sensors = device.sensors
        found = [q for q in (Quantity.ENERGY, Quantity.POWER) if _is_there(sensors.get(q))]
        self._counts_by = found[0] if found else None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._device, name)
        return partial(self._reopened, found) if name == "reopened" else found

    def _reopened(self, reopened: Callable[[], Device | None]) -> Meter | None:
        """A device that slept: once it is open it is read through us, too."""
        device = reopened()
        if device is None:
            return None
        self._take(device)
        return self

    def read(self, quantity: Quantity) -> Reading | Unavailable:
        reading = self._device.read(quantity)
        if quantity is self._counts_by and type(reading) is Reading:
            self._newest = reading
            if reading.t_ns >= self._due_ns:
                self._catch_up()
        return reading

    def begin(self, t_ns: int) -> None:
        """Count from here."""
        self._catch_up()
        with self._lock:
            self._since_j, self._since_ns = self._sum_j or 0.0, t_ns

    def energy(self, card: Card) -> Energy | None:
        """What was drawn since then; None where it could not be read."""
        self._catch_up()
        with self._lock:
            if self._sum_j is None or self._last is None or self._counts_by is None:
                return None
            energy_j = self._sum_j - self._since_j
            time_s = max((self._last.t_ns - self._since_ns) / NS_PER_S, self._interval_s)
            interval_s = self._interval_s
        sensor = cast("SensorInfo", self._device.sensors[self._counts_by])
        # The readings at both ends may be off by as much as the time between two.
        edges_j = energy_j * interval_s / time_s if time_s > 0 else 0.0
        return Energy(energy_j, edges_j, _Z * card.gain_sigma * energy_j, sensor.source)

    def _catch_up(self) -> None:
        with self._lock:
            if self._newest is not None and self._newest is not self._last:
                self._add(self._newest)

    def _add(self, reading: Reading) -> None:
        last, self._last = self._last, reading
        if self._counts_by is Quantity.ENERGY:
            self._due_ns = reading.t_ns + _COUNTER_NS
        if last is None:
            return
        self._interval_s = (reading.t_ns - last.t_ns) / NS_PER_S
        if self._counts_by is Quantity.ENERGY:
            drawn_j = max(reading.value - last.value, 0.0)  # less after a reset: that step is lost
        else:
            drawn_j = last.value * self._interval_s
        self._sum_j = (self._sum_j or 0.0) + drawn_j


def _is_there(sensor: SensorInfo | Unavailable | None) -> bool:
    return isinstance(sensor, SensorInfo)
