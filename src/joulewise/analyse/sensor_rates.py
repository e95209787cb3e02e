"""How often sensors had a new value: over the run, and apart while the GPU was idle and busy.

A sensor is read more often than it updates, and then repeats itself: a laptop's GPU that was
polled at 25 Hz gave 6 new values a second. Some update less often while the GPU is idle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from joulewise.analyse.arrays import Array
from joulewise.analyse.chunks import (
    Columns,
    OpenStream,
    SensorStream,
    last_reading,
    mark_new_values,
    sensor_streams,
)
from joulewise.analyse.curves.downsample import show
from joulewise.analyse.sensor_summary import is_working
from joulewise.analyse.time_intervals import Stretch, TimeSet
from joulewise.data import Quantity
from joulewise.store.manifest import RecordedDevice
from joulewise.units import NS_PER_S

Rates = dict[str, "dict[str, float] | None"]
"""Of the ``run``, and of the recording while the GPU was ``idle`` and under ``load``.

Each has ``time_s``, the time between readings that it rests on, ``read_hz``, readings a second,
and ``new_hz``, new values a second. None where there were no two readings.
"""


def sensor_rates(
    open_stream: OpenStream, device: RecordedDevice, slow: Mapping[str, Array], run: Stretch
) -> dict[str, dict[str, Rates]]:
    """The rates by quantity and by stream; ``slow`` has the polls of whether the GPU worked."""
    idle, load = activity_times(slow, device.info.vendor)
    whole = TimeSet(np.array([run.start_ns]), np.array([run.end_ns]))
    rates: dict[str, dict[str, Rates]] = {}
    for stream in _streams(open_stream, device.info.key):
        updates = _Updates(stream.quantity, {"run": whole, "idle": idle, "load": load})
        show(stream.rows, updates)
        rates.setdefault(stream.quantity.value, {})[stream.name] = updates.rates()
    return rates


def activity_times(slow: Mapping[str, Array], vendor: str) -> tuple[TimeSet, TimeSet]:
    """When the GPU was idle, and when it worked; the rest of the time is not known.

    A poll tells of a short time before it. Between two polls that agree, it stayed as it was.
    """
    if "t_ns" not in slow:
        nothing = TimeSet(np.empty(0, np.int64), np.empty(0, np.int64))
        return nothing, nothing
    t_ns, works = slow["t_ns"], is_working(slow, vendor)
    is_alike = works[1:] == works[:-1]  # NaN is like nothing
    idle, load = (is_alike & (works[1:] == kind) for kind in (0.0, 1.0))
    return (
        TimeSet.union(t_ns[:-1][idle], t_ns[1:][idle]),
        TimeSet.union(t_ns[:-1][load], t_ns[1:][load]),
    )


def _streams(open_stream: OpenStream, key: str) -> Iterator[SensorStream]:
    """Power in each stream, or the counter where nobody reads power, and the GPU's utilisation.

    Of what the driver samples itself, everything.
    """
    streams = list(sensor_streams(open_stream, key))
    has_power = any(stream.quantity is Quantity.POWER for stream in streams)
    wanted = {Quantity.POWER if has_power else Quantity.ENERGY, Quantity.GPU_UTILISATION}
    driver = f"{key}.buffer"
    for stream in streams:
        if stream.quantity in wanted or stream.name.startswith(driver):
            yield stream


class _Updates:
    """Counts readings and new values of one column in each set of times, chunk by chunk.

    They are counted from reading to reading within an interval, so that there are as many steps
    as readings that could have been new.
    """

    def __init__(self, quantity: Quantity, times: Mapping[str, TimeSet]) -> None:
        self.columns = (quantity.value,)
        self._times = times
        self._counts = {name: _Counts() for name in times}
        self._last_ns = np.empty(0, np.int64)
        self._last = math.nan

    def take(self, chunk: Columns) -> None:
        t_ns, values = chunk["t_ns"], chunk[self.columns[0]]
        is_read = ~np.isnan(values)
        if not is_read.all():
            t_ns, values = t_ns[is_read], values[is_read]
        if not len(t_ns):
            return
        # The last reading of the chunk before begins the first interval of this one.
        is_new = np.append(np.zeros(len(self._last_ns), bool), mark_new_values(values, self._last))
        t_ns = np.append(self._last_ns, t_ns)
        new_before = np.append(0, np.cumsum(is_new))
        for name, within in self._times.items():
            first = np.searchsorted(t_ns, within.start_ns)
            end = np.searchsorted(t_ns, within.end_ns, side="right")
            first, end = first[end - first > 1], end[end - first > 1]
            counts = self._counts[name]
            counts.intervals += int((end - first - 1).sum())
            counts.time_ns += int((t_ns[end - 1] - t_ns[first]).sum())
            counts.new += int((new_before[end] - new_before[first + 1]).sum())
        self._last_ns, self._last = t_ns[-1:], last_reading(values, self._last)

    def rates(self) -> Rates:
        return {name: counts.rates() for name, counts in self._counts.items()}


@dataclass
class _Counts:
    """Intervals between readings, how long they were, and at how many ends a new value stood."""

    time_ns: int = 0
    intervals: int = 0
    new: int = 0

    def rates(self) -> dict[str, float] | None:
        time_s = self.time_ns / NS_PER_S
        if not time_s:
            return None
        return {"time_s": time_s, "read_hz": self.intervals / time_s, "new_hz": self.new / time_s}
