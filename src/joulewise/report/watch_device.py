"""One device of a run in progress: its watts over the last minutes, and what it tells besides."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from joulewise.data import Quantity
from joulewise.record.follow import LaneFollower
from joulewise.record.layout import STREAM, Lane, lane_path
from joulewise.record.manifest import Manifest, RecordedDevice
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

WINDOW_S: Final = 300
"""So much of the past is kept."""

_STALE_S: Final = 5
_SPARE: Final = 1.25


class Second(NamedTuple):
    """The power in one second of the run, counted from when its recording began."""

    at_s: int
    mean_w: float
    low_w: float
    high_w: float


@dataclass(frozen=True)
class DeviceNow:
    """None is what the device does not tell, or no longer does."""

    key: str
    name: str
    power_w: float | None
    limit_w: float | None
    utilisation_pct: float | None
    clock_mhz: float | None
    temperature_c: float | None
    course: tuple[Second, ...]


class DeviceWatch:
    """Follows a device's lanes. The driver's own samples are its course where there are any."""

    def __init__(self, run: Path, device: RecordedDevice, manifest: Manifest) -> None:
        self._run = run
        self._device = device
        self._key = device.info.key
        self._start_ns = manifest.monotonic_start_ns
        self._started_s = manifest.wall_start_ns / NS_PER_S
        self._lane = Lane.FAST
        self._power = self._follow(Lane.FAST)
        self._others = self._follow(Lane.SLOW)
        self._course = Course(self._start_ns)
        self._told: dict[str, float] = {}
        self.last_ns = 0

    def poll(self) -> None:
        self._prefer_buffer()
        for rows in self._power.poll():
            self._course.add(rows)
            self.last_ns = max(self.last_ns, int(rows["t_ns"][-1]))
        for rows in self._others.poll():
            self._told = {name: float(values[-1]) for name, values in rows.items()}

    def now(self, last_ns: int) -> DeviceNow:
        """As of ``last_ns``, when any device of the run was last heard of."""
        course = self._course.seconds()
        is_stale = last_ns - self.last_ns > _STALE_S * NS_PER_S
        limit_w = self._value(Quantity.ENFORCED_LIMIT)
        if limit_w is None:
            limit_w = self._device.settings.get("power_limit_w")
        return DeviceNow(
            self._key,
            self._device.info.name,
            None if is_stale or not course else course[-1].mean_w,
            limit_w,
            self._value(Quantity.GPU_UTILISATION, Quantity.LOAD),
            self._value(Quantity.SM_CLOCK),
            self._value(Quantity.TEMPERATURE),
            course,
        )

    def _prefer_buffer(self) -> None:
        if (
            self._lane is Lane.FAST
            and lane_path(self._run, self._key, Lane.BUFFER, STREAM).exists()
        ):
            self._lane = Lane.BUFFER
            self._power = self._follow(Lane.BUFFER)
            self._course = Course(self._start_ns)

    def _follow(self, lane: Lane) -> LaneFollower:
        """From where the window begins, by how fast the file has grown so far."""
        path = lane_path(self._run, self._key, lane, STREAM)
        share = min(1.0, _SPARE * WINDOW_S / max(time.time() - self._started_s, 1.0))
        size_b = path.stat().st_size if path.exists() else 0
        return LaneFollower(path, math.ceil(share * size_b))

    def _value(self, *quantities: Quantity) -> float | None:
        values = (self._told.get(quantity.value, math.nan) for quantity in quantities)
        return next((value for value in values if not math.isnan(value)), None)


class Course:
    """Power by the second, of which the last minutes are kept."""

    def __init__(self, start_ns: int) -> None:
        self._start_ns = start_ns
        self._seconds: deque[tuple[int, float, int, float, float]] = deque(maxlen=WINDOW_S)
        self._counted: tuple[int, float] | None = None

    def add(self, rows: dict[str, NDArray[Any]]) -> None:
        t_ns, power_w = rows["t_ns"], self._watts(rows)
        # A driver's own samples begin before the run; those of other devices do not.
        readable = ~np.isnan(power_w) & (t_ns >= self._start_ns)
        t_ns, power_w = t_ns[readable], power_w[readable]
        if not len(t_ns):
            return
        at_s = (t_ns - self._start_ns) // NS_PER_S
        firsts = np.flatnonzero(np.diff(at_s, prepend=at_s[0] - 1))
        sums = np.add.reduceat(power_w, firsts)
        lows, highs = np.minimum.reduceat(power_w, firsts), np.maximum.reduceat(power_w, firsts)
        counts = np.diff(firsts, append=len(at_s))
        for each in zip(at_s[firsts], sums, counts, lows, highs, strict=True):
            self._add_second(int(each[0]), float(each[1]), int(each[2]), *map(float, each[3:]))

    def seconds(self) -> tuple[Second, ...]:
        return tuple(Second(at, total / n, low, high) for at, total, n, low, high in self._seconds)

    def _add_second(self, at_s: int, total: float, count: int, low: float, high: float) -> None:
        if self._seconds and self._seconds[-1][0] == at_s:
            _, total_before, count_before, low_before, high_before = self._seconds.pop()
            total, count = total + total_before, count + count_before
            low, high = min(low, low_before), max(high, high_before)
        self._seconds.append((at_s, total, count, low, high))

    def _watts(self, rows: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
        """As read, or from one reading of the counter to the next."""
        if Quantity.POWER.value in rows:
            return rows[Quantity.POWER.value].astype(float)
        t_ns, energy_j = rows["t_ns"], rows[Quantity.ENERGY.value]
        t_before, energy_before = self._counted or (t_ns[0], math.nan)
        self._counted = int(t_ns[-1]), float(energy_j[-1])
        with np.errstate(invalid="ignore", divide="ignore"):
            spent_s = np.diff(t_ns, prepend=t_before) / NS_PER_S
            watts = np.diff(energy_j, prepend=energy_before) / spent_s
        return np.where(watts >= 0, watts, np.nan)
