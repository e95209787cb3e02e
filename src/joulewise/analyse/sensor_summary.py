"""Summaries of what a device's sensors read: over the run, and over the spans of each name.

`under_load` has the clock and the temperature of a GPU while it worked, and how often its power
limit held it back. `sensor_rates` says how often sensors had a new value: over the run, and apart
while the GPU was idle and busy. A sensor that is read more often than it updates repeats itself: a
laptop's GPU that was polled at 25 Hz gave 6 new values a second. Some update less often while idle.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

import numpy as np

from joulewise.analyse.chunks import (
    Array,
    Columns,
    Floats,
    Ints,
    OpenStream,
    SensorStream,
    last_reading,
    mark_new_values,
    sensor_streams,
    show,
)
from joulewise.analyse.time_intervals import TimeInterval, TimeSet
from joulewise.data import Kind, Quantity
from joulewise.data.devices import throttle_names
from joulewise.devices.nvidia.throttling import CAPPED, IDLE, MIN_LOADED_SAMPLES
from joulewise.store.manifest import RecordedDevice
from joulewise.store.spans import SpanTable
from joulewise.units import NS_PER_S

Figures = dict[str, float]
"""Mean, min and max; of performance states and reasons for lower clocks, the share of each."""

Summary = dict[str, "Figures | None"]
"""By the name of the quantity, which has its unit; None is what was never read."""

NAMES_SUMMARISED: Final = 20
"""So many names of spans have figures of their own, in the order in which they appear.

Chosen: epochs, steps, validations and a program's own phases are fewer. Twice as many would make
the result of an eight-GPU run with that many names larger by about 300 kB.
"""

# Energy has its own place in a result, with its error.
_ELSEWHERE: Final = {Quantity.ENERGY, Quantity.POWER}
_EXPECTED: Final[Mapping[Kind, Sequence[Quantity]]] = {
    Kind.GPU: (
        Quantity.GPU_UTILISATION,
        Quantity.MEMORY_UTILISATION,
        Quantity.SM_CLOCK,
        Quantity.MEMORY_CLOCK,
        Quantity.PERFORMANCE_STATE,
        Quantity.THROTTLE,
        Quantity.TEMPERATURE,
        Quantity.FAN,
        Quantity.MEMORY_USED,
        Quantity.PCIE_TX,
        Quantity.PCIE_RX,
        Quantity.ENFORCED_LIMIT,
    ),
    Kind.CPU: (Quantity.LOAD,),
}


def sensor_details(
    devices: Sequence[RecordedDevice],
    open_stream: OpenStream,
    run: TimeInterval,
    by_name: Mapping[str, TimeSet],
) -> dict[str, dict[str, Any]]:
    """Each device's summary of the ``run``, and of its ``spans`` by name.

    Of spans that are so short or few that no reading lies in them, nothing was read.
    """
    whole = TimeSet(np.array([run.start_ns]), np.array([run.end_ns]))
    details = {}
    for device in devices:
        of_run, *of_names = summarise_sensors(open_stream, device, [whole, *by_name.values()])
        spans = dict(zip(by_name, of_names, strict=True))
        details[device.info.key] = {"run": of_run, "spans": spans if of_run else {}}
    return details


def summarise_sensors(
    open_stream: OpenStream, device: RecordedDevice, times: Sequence[TimeSet]
) -> list[Summary]:
    """One summary for each of ``times``, in one pass over each stream.

    A quantity that devices of its kind have and that was never read of this one is None. Where
    several streams have a quantity, the driver's own samples are taken, as far as there are any.
    """
    streams = [
        stream
        for stream in sensor_streams(open_stream, device.info.key)
        if stream.quantity not in _ELSEWHERE
    ]
    views = [_StreamStatistics(within, device.info.vendor) for within in times]
    for _, columns in groupby(streams, key=attrgetter("name")):
        together = list(columns)
        names = tuple(stream.quantity.value for stream in together)
        show(together[0].rows, *(view.viewer(names) for view in views))
    quantities = dict.fromkeys(
        (*_EXPECTED.get(device.info.kind, ()), *(stream.quantity for stream in streams))
    )
    return [{each.value: view.figures(each) for each in quantities} for view in views]


def times_by_name(spans: SpanTable, codes: Ints) -> dict[str, TimeSet]:
    """When any span of each name was, for the first names."""
    return {
        spans.names[code]: TimeSet.union(spans.start_ns[selected], spans.end_ns[selected])
        for code in codes[:NAMES_SUMMARISED].tolist()
        if (selected := spans.name == code).any()
    }


class _StreamStatistics:
    """Statistics of every quantity within some times, of each stream that tells it."""

    def __init__(self, within: TimeSet, vendor: str) -> None:
        self._within = within
        self._vendor = vendor
        self._statistics: dict[str, list[_Range | _Shares]] = {}

    def viewer(self, columns: tuple[str, ...]) -> _Columns:
        """For a stream with these columns."""
        selected = {column: _statistics(column, self._vendor) for column in columns}
        for column, statistics in selected.items():
            self._statistics.setdefault(column, []).append(statistics)
        return _Columns(self._within, selected)

    def figures(self, quantity: Quantity) -> Figures | None:
        """Of the first stream that has a reading within the times."""
        by_stream = (each.figures() for each in self._statistics.get(quantity.value, ()))
        return next((figures for figures in by_stream if figures is not None), None)


class _Columns:
    """Sees a stream chunk by chunk, and tells each column's readings to its statistics."""

    def __init__(self, within: TimeSet, statistics: Mapping[str, _Range | _Shares]) -> None:
        self.columns = tuple(statistics)
        self._within = within
        self._statistics = statistics

    def take(self, chunk: Columns) -> None:
        is_within = self._within.holds(chunk["t_ns"])
        for column, statistics in self._statistics.items():
            values = chunk[column][is_within]
            values = values[~np.isnan(values)]
            if len(values):
                statistics.add(values)


class _Range:
    """The mean of some readings, their least and their most."""

    def __init__(self) -> None:
        self._count, self._sum = 0, 0.0
        self._low, self._high = np.inf, -np.inf

    def add(self, values: Array) -> None:
        self._count += len(values)
        self._sum += float(values.sum(dtype=np.float64))
        self._low = min(self._low, float(values.min()))
        self._high = max(self._high, float(values.max()))

    def figures(self) -> Figures | None:
        if not self._count:
            return None
        return {"mean": self._sum / self._count, "min": self._low, "max": self._high}


class _Shares:
    """The share of some readings that had each state.

    Readings come at even times, so that it is a share of the time in which there were readings.
    A reading has one performance state and any number of reasons for lower clocks.
    """

    def __init__(self, names: Callable[[int], Sequence[str]]) -> None:
        self._names = names
        self._counts: Counter[int] = Counter()

    def add(self, values: Array) -> None:
        states, counts = np.unique(values.astype(np.int64), return_counts=True)
        self._counts.update(dict(zip(states.tolist(), counts.tolist(), strict=True)))

    def figures(self) -> Figures | None:
        readings = self._counts.total()
        if not readings:
            return None
        shares: dict[str, float] = {}
        for state, count in sorted(self._counts.items()):
            for name in self._names(state):
                shares[name] = shares.get(name, 0.0) + count / readings
        return shares


def _statistics(column: str, vendor: str) -> _Range | _Shares:
    if column == Quantity.PERFORMANCE_STATE.value:
        return _Shares(lambda state: (f"P{state}",))
    if column == Quantity.THROTTLE.value:
        return _Shares(throttle_names if vendor == "nvidia" else lambda bits: (hex(bits),))
    return _Range()


# Where the driver gives no reasons for its clocks, a GPU works above this utilisation (chosen; NVML
# has whole percents, so that doubled a GPU with rare kernels would pass for idle).
_BUSY_PCT: Final = 1.0


def under_load(
    slow: Mapping[str, Array], run: TimeInterval, vendor: str
) -> dict[str, float | None]:
    """Means over the polls at which it was not idle; None where there were too few.

    ``capped`` is the share of them at which the power limit held the clocks down.
    """
    if "t_ns" not in slow:
        return dict.fromkeys(("capped", "sm_clock_mhz", "temperature_c"))
    reasons = _reasons(slow, vendor)
    is_known = np.isfinite(reasons)
    bits = np.where(is_known, reasons, 0.0).astype(np.int64)
    polls = run.holds(slow["t_ns"]) & (is_working(slow, vendor) == 1.0)
    capped = np.where(is_known, bits & CAPPED != 0, np.nan)
    return {
        "capped": _mean(capped[polls]),
        "sm_clock_mhz": _mean(_column(slow, Quantity.SM_CLOCK)[polls]),
        "temperature_c": _mean(_column(slow, Quantity.TEMPERATURE)[polls]),
    }


def is_working(slow: Mapping[str, Array], vendor: str) -> Floats:
    """Of each poll whether the GPU worked (1) or was idle (0); NaN where not known."""
    reasons, utilisation = _reasons(slow, vendor), _column(slow, Quantity.GPU_UTILISATION)
    is_known = np.isfinite(reasons)
    bits = np.where(is_known, reasons, 0.0).astype(np.int64)
    # A driver that gives no reasons may still say how busy the GPU was.
    by_use = np.where(np.isnan(utilisation), np.nan, utilisation > _BUSY_PCT)
    return np.asarray(np.where(is_known, bits & IDLE == 0, by_use))


def _reasons(slow: Mapping[str, Array], vendor: str) -> Floats:
    """NVML's reasons for lower clocks; NaN of other makers, who do not say why."""
    reasons = _column(slow, Quantity.THROTTLE)
    return reasons if vendor == "nvidia" else np.full(len(reasons), np.nan)


def _column(slow: Mapping[str, Array], quantity: Quantity) -> Floats:
    column = slow.get(quantity.value)
    return np.full(len(slow["t_ns"]), np.nan) if column is None else np.array(column, np.float64)


def _mean(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) >= MIN_LOADED_SAMPLES else None


Rates = dict[str, "dict[str, float] | None"]
"""Of the ``run``, and of the recording while the GPU was ``idle`` and under ``load``.

Each has ``time_s``, the time between readings that it rests on, ``read_hz``, readings a second,
and ``new_hz``, new values a second. None where there were no two readings.
"""


def sensor_rates(
    open_stream: OpenStream, device: RecordedDevice, slow: Mapping[str, Array], run: TimeInterval
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
