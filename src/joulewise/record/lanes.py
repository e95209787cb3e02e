"""Which device is read in which way, and how often."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from joulewise.data import Quantity, SensorInfo, Source
from joulewise.devices import Device
from joulewise.record.buffered import Buffered, has_buffer
from joulewise.record.deadlines import Deadlines
from joulewise.record.files import GrowingFile
from joulewise.record.journal import Journal
from joulewise.record.layout import MISSES, PROCESSES, STREAM, Lane, lane_path
from joulewise.record.loops import Channel, Loop
from joulewise.record.notes import Notes
from joulewise.record.processes import Family, Users
from joulewise.record.readings import FAST, Readings, fast_quantities, slow_quantities
from joulewise.record.silent import Silent
from joulewise.record.statistics import Statistics
from joulewise.record.streams import Stream
from joulewise.record.tally import Tally
from joulewise.record.writer import Writer
from joulewise.units import NS_PER_S

# Between two readings of a model there is nothing to see: it counts on by itself. Beside devices
# that are measured it is the least exact part of a total, and need not cost the most.
_MODELLED_HZ: Final = 10.0
# Where the driver tells the course of power itself, counters need not be read as often for it.
_USUAL_HZ: Final = 10.0
USUAL_BESIDE_BUFFER_HZ: Final = 2.5
_REGULAR_HZ: Final = 1.0
_SILENT_HZ: Final = 0.2
# Who uses a device is asked more often in the first seconds: a short command is over by then.
_EARLY_HZ: Final = 5.0
_EARLY_TICKS: Final = 10
# What joules come from is read when a run begins and when it ends, however short it is.
_ENERGY: Final = ("fast", "regular")
_MOST_MISSES: Final = 10_000
_MOST_PROCESSES: Final = 100_000
_Stored = TypeVar("_Stored", Readings, Buffered)


class Lanes:
    """Makes the loops that fill a run's files, and knows how each file did."""

    def __init__(
        self, run: Path, rate_hz: float, family: Family, notes: Notes, writer: Writer
    ) -> None:
        self._run = run
        self._rate_hz = rate_hz
        self._family = family
        self._notes = notes
        self._writer = writer
        self._lock = threading.Lock()
        self.tallies: dict[str, Tally] = {}
        self._since_ns = 0
        self._stored: list[Readings | Buffered] = []
        self._misses = Journal(_MOST_MISSES)
        self._processes = Journal(_MOST_PROCESSES)
        writer.add_journal(self._misses, GrowingFile(run / MISSES))
        writer.add_journal(self._processes, GrowingFile(run / PROCESSES))

    def loops(
        self, devices: Iterable[Device], on_reopened: Callable[[Device, int | None], None]
    ) -> list[Loop]:
        devices = list(devices)
        measured = _measured(devices)
        modelled = [d for d in devices if fast_quantities(d) and d not in measured]
        regular_hz = _REGULAR_HZ if measured else min(self._rate_hz, _MODELLED_HZ)
        # Few threads with much to do: each that wakes up finds its caches cold, which costs more
        # than the reading.
        fast = [self._fast(device, self._rate_hz) for device in measured]
        buffered = [self._buffered(device) for device in measured if has_buffer(device)]
        regular: list[Channel] = [
            *buffered,
            *(self._fast(device, regular_hz) for device in modelled),
        ]
        slow: list[Channel] = [self._slow(d) for d in devices if slow_quantities(d)]
        silent = [Silent(d, on_reopened) for d in devices if hasattr(d, "reopened")]
        loops = (
            self._loop("fast", fast, self._rate_hz),
            self._loop("regular", regular, regular_hz),
            self._loop("slow", [*self._users(measured), *slow], _REGULAR_HZ),
            self._loop("early", self._users(measured), _EARLY_HZ, ticks=_EARLY_TICKS),
            self._loop("silent", silent, _SILENT_HZ),
        )
        return [loop for loop in loops if loop.channels]

    def count_from(self, t_ns: int) -> None:
        """A command begins: joules so far are counted from here."""
        self._since_ns = t_ns
        for tally in list(self.tallies.values()):
            tally.begin(t_ns)

    def summary(self) -> dict[str, Any]:
        """How each file did, by its name without the ending."""
        with self._lock:
            return {channel.name: channel.statistics.summary() for channel in self._stored}

    def _users(self, devices: Iterable[Device]) -> list[Users]:
        return [Users(d, self._family, self._processes, self._notes) for d in devices]

    def _fast(self, device: Device, rate_hz: float) -> Readings:
        return self._readings(device, Lane.FAST, fast_quantities(device), rate_hz)

    def _slow(self, device: Device) -> Readings:
        return self._readings(device, Lane.SLOW, slow_quantities(device), _REGULAR_HZ)

    def _readings(
        self, device: Device, lane: Lane, quantities: Sequence[Quantity], rate_hz: float
    ) -> Readings:
        name, period_ns = f"{device.info.key}{lane.value}", round(NS_PER_S / rate_hz)
        channel = Readings(name, device, quantities, self._notes, period_ns=period_ns)
        return self._store(channel, device, lane)

    def _buffered(self, device: Device) -> Buffered:
        name = f"{device.info.key}{Lane.BUFFER.value}"
        return self._store(Buffered(name, device, self._notes), device, Lane.BUFFER)

    def _store(self, channel: _Stored, device: Device, lane: Lane) -> _Stored:
        path = lane_path(self._run, device.info.key, lane, STREAM)
        stream = Stream(path, channel.rows.columns)
        told: list[Statistics | Tally] = [channel.statistics]
        if lane is Lane.FAST:
            told.append(self.tallies.setdefault(device.info.key, Tally(self._since_ns)))
        hurry = lane is Lane.FAST and not _is_modelled(device)
        self._writer.add_stream(channel.rows, stream, *told, hurry=hurry)
        with self._lock:
            self._stored.append(channel)
        return channel

    def _loop(
        self, name: str, channels: Sequence[Channel], rate_hz: float, ticks: int | None = None
    ) -> Loop:
        return Loop(
            name,
            channels,
            Deadlines(0, round(NS_PER_S / rate_hz)),
            self,
            once_more=name in _ENERGY,
            ticks=ticks,
        )

    def on_failed(self, channel: Channel, error: Exception) -> None:
        key = channel.name.partition(".")[0]
        what = f"{channel.name}: unexpected {type(error).__name__}: {error}"
        self._notes.once("device_unavailable", what, key)

    def on_missed(
        self, loop: str, channels: Sequence[Channel], deadline_ns: int, missed: int
    ) -> None:
        names = [channel.name for channel in channels]
        line = {"loop": loop, "until_ns": deadline_ns, "missed": missed, "channels": names}
        self._misses.add(json.dumps(line))


def usual_rate_hz(devices: Iterable[Device]) -> float:
    """How often to read these devices where nobody has said."""
    measured = _measured(devices)
    spared = measured and all(map(has_buffer, measured))
    return USUAL_BESIDE_BUFFER_HZ if spared else _USUAL_HZ


def _measured(devices: Iterable[Device]) -> list[Device]:
    return [each for each in devices if fast_quantities(each) and not _is_modelled(each)]


def _is_modelled(device: Device) -> bool:
    sensors = [device.sensors.get(quantity) for quantity in FAST]
    return all(s.source is not Source.MEASURED for s in sensors if isinstance(s, SensorInfo))
