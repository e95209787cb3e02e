"""Joules so far of each device, added up from the rows on their way to the disk."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Final

from joulewise.data import Quantity
from joulewise.store.arrow_stream import Batch
from joulewise.units import NS_PER_S

_ENOUGH: Final = 30  # batches, of about 1 s each, that are added at once (chosen)
# The newest power is extrapolated for no longer than this. Chosen: models are read once a second
# beside sensors, and the writer may be a little late.
_HELD_S: Final = 1.1


@dataclass(frozen=True)
class EnergySoFar:
    """Energy and time since the start of counting; ``interval_s`` is between the last readings."""

    energy_j: float
    time_s: float
    interval_s: float
    quantity: Quantity


class RunningTotal:
    """Adds up the energy of one device: steps of its counter, else power times time.

    ``since_ns`` is from when on it counts (CLOCK_MONOTONIC).
    """

    def __init__(self, since_ns: int = 0) -> None:
        self._lock = threading.Lock()
        self._since_ns = since_ns
        self._waiting: list[Batch] = []
        self._last: tuple[int, float] | None = None
        self._sum: EnergySoFar | None = None
        self._power_w: float | None = None

    def begin(self, t_ns: int) -> None:
        """Count from this time on."""
        with self._lock:
            self._add_all()
            self._since_ns, self._sum = t_ns, None

    @property
    def since_ns(self) -> int:
        """From when on it counts (CLOCK_MONOTONIC)."""
        return self._since_ns

    @property
    def sum(self) -> EnergySoFar | None:
        """The energy so far; None where the device was not read twice yet."""
        with self._lock:
            self._add_all()
            return self._sum

    @property
    def power_w(self) -> float | None:
        """The newest power; None where it was not read yet."""
        with self._lock:
            self._add_all()
            return self._power_w

    def energy_at(self, now_ns: int) -> float | None:
        """Joules up to now, with the newest power extrapolated since the last reading.

        For no longer than two readings are usually apart: after that nothing is known.
        """
        with self._lock:
            self._add_all()
            if self._power_w is None or self._last is None:
                return None
            since_s = (now_ns - max(self._last[0], self._since_ns)) / NS_PER_S
            limit_s = max(self._sum.interval_s, _HELD_S) if self._sum else _HELD_S
            energy_j = self._sum.energy_j if self._sum else 0.0
            return energy_j + self._power_w * min(max(0.0, since_s), limit_s)

    def add(self, batch: Batch) -> None:
        """Add rows; they are added up when the total is needed, or there are many."""
        with self._lock:
            self._waiting.append(batch)
            if len(self._waiting) >= _ENOUGH:
                self._add_all()

    def _add_all(self) -> None:
        for batch in self._waiting:
            self._add(batch)
        self._waiting.clear()

    def _add(self, batch: Batch) -> None:
        quantity = Quantity.ENERGY if Quantity.ENERGY.value in batch.columns else Quantity.POWER
        values = batch.values[batch.columns.index(quantity.value)]
        energy_j, interval_s, last = 0.0, 0.0, self._last
        power_w = self._power_w
        for t_ns, value in zip(batch.values[0], values, strict=True):
            if math.isnan(value):
                continue
            if last is not None and t_ns >= self._since_ns:
                interval_s = (t_ns - last[0]) / NS_PER_S
                # After a reset a counter shows less than before: that step is lost.
                grown_j = max(value - last[1], 0.0)
                step_j = grown_j if quantity is Quantity.ENERGY else last[1] * interval_s
                energy_j += step_j
                power_w = step_j / interval_s if interval_s else power_w
            last = (t_ns, value)
        self._last = last
        sensor_w = _newest_power_w(batch)
        self._power_w = power_w if sensor_w is None else sensor_w
        if last is not None and interval_s:
            before_j = self._sum.energy_j if self._sum else 0.0
            time_s = (last[0] - self._since_ns) / NS_PER_S
            self._sum = EnergySoFar(before_j + energy_j, time_s, interval_s, quantity)


def _newest_power_w(batch: Batch) -> float | None:
    """The last reading of power in a batch; None where there is none."""
    if Quantity.POWER.value not in batch.columns:
        return None
    newest_first_w = reversed(batch.values[batch.columns.index(Quantity.POWER.value)])
    return next((power_w for power_w in newest_first_w if not math.isnan(power_w)), None)
