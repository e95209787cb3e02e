"""Which device is read in which way, and how often."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from joulewise.data import Quantity, SensorInfo
from joulewise.devices import Device
from joulewise.devices.device import PartlyOpened
from joulewise.record.driver_samples import Buffered, BufferedSeldom, DriverSamples
from joulewise.record.inventory import InventoryEntry
from joulewise.record.processes import Family, Users
from joulewise.record.readings import FAST, DeviceReader, Silent, fast_quantities, slow_quantities
from joulewise.record.running_total import Tally
from joulewise.record.sampling_loop import Channel, Loop
from joulewise.record.schedule import NO_EDGE, Deadlines, EdgeTiming, edge_timing
from joulewise.record.sensor_profiles import card_for
from joulewise.record.statistics import Statistics
from joulewise.record.writer import PendingLines, RecorderNotes, Writer
from joulewise.store.arrow_stream import Stream
from joulewise.store.files import GrowingFile
from joulewise.store.layout import (
    MISSES,
    PROCESSES,
    SAMPLED,
    STREAM,
    StreamKind,
    buffer_lane,
    lane_path,
)
from joulewise.units import NS_PER_S

# Between two readings of a model there is nothing to see: it counts on by itself. Beside devices
# that are measured it is the least exact part of a total, and need not cost the most.
_MODELLED_HZ: Final = 10.0
# Where the driver tells the course of power itself, the counter is read only to place its joules:
# so many readings a second of all GPUs together are within 1 % of a core (benchmarks/recorder.py),
# and of one GPU no fewer than the least, and no more than the usual rate.
_USUAL_HZ: Final = 10.0
_BESIDE_BUFFER_HZ: Final = 20.0
LEAST_BESIDE_BUFFER_HZ: Final = 2.5
_REGULAR_HZ: Final = 1.0
# A GPU that did not answer may be back any moment, and what it draws unseen is lost.
_SILENT_HZ: Final = 1.0
# One that is being opened is not disturbed by looking: what it draws unseen is lost meanwhile.
_LATE_HZ: Final = 5.0
# Who uses a device is asked more often in the first seconds: a short command is over by then.
_EARLY_HZ: Final = 5.0
_EARLY_TICKS: Final = 10
# What joules come from is read when a run begins and when it ends, however short it is.
_ENERGY: Final = ("fast", "regular", "samples")
# Of these a command waits for the first reading. Samples of utilisation and clocks are kept by the
# driver meanwhile, and six buffers of a slow driver take a second.
_AWAITED: Final = ("fast", "regular")
_MOST_MISSES: Final = 10_000
_MOST_PROCESSES: Final = 100_000
_Stored = TypeVar("_Stored", DeviceReader, Buffered, BufferedSeldom)
_OnReopened = Callable[[Device, "int | None"], None]


class Lanes:
    """Makes the loops that fill a run's files, and knows how each file did."""

    def __init__(
        self,
        run: Path,
        rate_hz: float,
        family: Family,
        notes: RecorderNotes,
        writer: Writer,
        *,
        environ: Mapping[str, str],
        dithered: bool = False,
    ) -> None:
        """``dithered``: the fast lane is read a little unevenly, to meet all phases of a counter.

        What ``loops`` are to fill becomes files with ``open_streams``.
        """
        self._run = run
        self._rate_hz = rate_hz
        self._environ = environ
        self._dithered = dithered
        self._family = family
        self._notes = notes
        self._writer = writer
        self._lock = threading.Lock()
        self.tallies: dict[str, Tally] = {}
        self._since_ns = 0
        self._users_by_key: dict[str, Users] = {}
        self._slow_keys: set[str] = set()
        self._stored: list[DeviceReader | DriverSamples] = []
        self._unopened: list[tuple[DeviceReader | DriverSamples, Device, StreamKind]] = []
        self._misses = PendingLines(_MOST_MISSES)
        self._processes = PendingLines(_MOST_PROCESSES)
        writer.add_journal(self._misses, GrowingFile(run / MISSES))
        writer.add_journal(self._processes, GrowingFile(run / PROCESSES))

    def energy_loops(self, entries: Iterable[InventoryEntry]) -> list[Loop]:
        """The loops that read what joules come from: a command waits for these."""
        entries = list(entries)
        is_measured = bool(_measured(entries))
        regular_hz = _REGULAR_HZ if is_measured else min(self._rate_hz, _MODELLED_HZ)
        loops = [
            loop for group in _groups(entries) for loop in self._reading_energy(group, regular_hz)
        ]
        return [loop for loop in loops if loop.channels]

    def other_loops(
        self, entries: Iterable[InventoryEntry], on_reopened: _OnReopened
    ) -> list[Loop]:
        """The loops that read the rest, and look for processes and for devices to be opened."""
        loops = [
            loop
            for group in _groups(entries)
            for loop in (*self._reading_others(group), *self._opening(group, on_reopened))
        ]
        return [loop for loop in loops if loop.channels]

    def completed_loops(self, entry: InventoryEntry) -> list[Loop]:
        """The loop that reads the rest of a device that is complete only now; none if one does."""
        slow = self._slow([entry.device])
        return [self._loop("slow", slow, _REGULAR_HZ)] if slow else []

    def _reading_energy(
        self, entries: Sequence[InventoryEntry], regular_hz: float
    ) -> Iterator[Loop]:
        measured, keeping = _measured(entries), _keeping(entries)
        modelled = [
            each.device
            for each in entries
            if fast_quantities(each.device) and each.device not in measured
        ]
        fast = [self._fast(device, self._rate_hz) for device in measured]
        regular: list[Channel] = [
            *(self._buffered(device) for device in keeping),
            *(self._fast(device, regular_hz) for device in modelled),
        ]
        yield self._loop("fast", fast, self._rate_hz, dither_ns=self._dither_ns(measured))
        yield self._loop("regular", regular, regular_hz)

    def _reading_others(self, entries: Sequence[InventoryEntry]) -> Iterator[Loop]:
        measured = _measured(entries)
        sampled = [self._sampled(device, each) for device in _keeping(entries) for each in SAMPLED]
        slow = self._slow([each.device for each in entries])
        yield self._loop("slow", [*self._users(measured), *slow], _REGULAR_HZ)
        yield self._loop("early", self._users(measured), _EARLY_HZ, ticks=_EARLY_TICKS)
        yield self._loop("samples", sampled, _REGULAR_HZ)

    def _opening(
        self, entries: Sequence[InventoryEntry], on_reopened: _OnReopened
    ) -> Iterator[Loop]:
        """The loops that look whether devices which do not answer can be opened by now."""
        unopened = [each.device for each in entries if hasattr(each.device, "reopened")]
        silent = [Silent(d, on_reopened) for d in unopened if not getattr(d, "is_late", False)]
        late = [Silent(d, on_reopened) for d in unopened if getattr(d, "is_late", False)]
        yield self._loop("silent", silent, _SILENT_HZ)
        yield self._loop("late", late, _LATE_HZ)

    def count_from(self, t_ns: int) -> None:
        """A command begins: joules so far are counted from here."""
        self._since_ns = t_ns
        for tally in list(self.tallies.values()):
            tally.begin(t_ns)

    def summary(self) -> dict[str, Any]:
        """How each file did, by its name without the ending."""
        with self._lock:
            return {channel.name: channel.statistics.summary() for channel in self._stored}

    def look_again(self) -> list[threading.Thread]:
        """A command has ended: have the processes of all GPUs looked at, each in its own time."""
        with self._lock:
            users = list(self._users_by_key.values())
        looks = [threading.Thread(target=each.look_again, daemon=True) for each in users]
        for look in looks:
            look.start()
        return looks

    def _users(self, devices: Iterable[Device]) -> list[Users]:
        users = []
        for device in devices:
            new = Users(device, self._family, self._processes, self._notes)
            with self._lock:
                users.append(self._users_by_key.setdefault(device.info.key, new))
        return users

    def _fast(self, device: Device, rate_hz: float) -> DeviceReader:
        return self._readings(device, StreamKind.FAST, fast_quantities(device), rate_hz)

    def _slow(self, devices: Iterable[Device]) -> list[DeviceReader]:
        """Of those that are complete, once: what is read follows from what they have."""
        channels = []
        for device in devices:
            is_complete = not isinstance(device, PartlyOpened) or device.is_complete
            if is_complete and (quantities := slow_quantities(device)):
                with self._lock:
                    is_new = device.info.key not in self._slow_keys
                    self._slow_keys.add(device.info.key)
                if is_new:
                    channels.append(
                        self._readings(device, StreamKind.SLOW, quantities, _REGULAR_HZ)
                    )
        return channels

    def _readings(
        self, device: Device, lane: StreamKind, quantities: Sequence[Quantity], rate_hz: float
    ) -> DeviceReader:
        name, period_ns = f"{device.info.key}{lane.value}", round(NS_PER_S / rate_hz)
        edge = self._edge(device) if lane is StreamKind.FAST else NO_EDGE
        channel = DeviceReader(
            name, device, quantities, self._notes, period_ns=period_ns, edge=edge
        )
        return self._store(channel, device, lane)

    def _buffered(self, device: Device) -> Buffered:
        # The driver has kept what it saw before: nothing is to be read early.
        name, edge = (
            f"{device.info.key}{StreamKind.BUFFER.value}",
            replace(self._edge(device), lead_ns=0),
        )
        return self._store(
            Buffered(name, device, self._notes, edge=edge), device, StreamKind.BUFFER
        )

    def _sampled(self, device: Device, quantity: Quantity) -> BufferedSeldom:
        lane = buffer_lane(quantity)
        name, period_ns = f"{device.info.key}{lane.value}", round(NS_PER_S / _REGULAR_HZ)
        channel = BufferedSeldom(name, device, quantity, period_ns=period_ns)
        return self._store(channel, device, lane)

    def _edge(self, device: Device) -> EdgeTiming:
        return NO_EDGE if _is_modelled(device) else edge_timing(card_for(device, self._environ))

    def _store(self, channel: _Stored, device: Device, lane: StreamKind) -> _Stored:
        if lane is StreamKind.FAST:
            self.tallies.setdefault(device.info.key, Tally(self._since_ns))
        with self._lock:
            self._stored.append(channel)
            self._unopened.append((channel, device, lane))
        return channel

    def open_streams(self) -> None:
        """Have files made of what is read: what loads for that is slow, and reading has begun."""
        with self._lock:
            unopened, self._unopened = self._unopened, []
        for channel, device, lane in unopened:
            stream = Stream(
                lane_path(self._run, device.info.key, lane, STREAM), channel.rows.columns
            )
            told: list[Statistics | Tally] = [channel.statistics]
            if lane is StreamKind.FAST:
                told.append(self.tallies[device.info.key])
            hurry = lane is StreamKind.FAST and not _is_modelled(device)
            self._writer.add_stream(channel.rows, stream, *told, hurry=hurry)

    def _dither_ns(self, devices: Sequence[Device]) -> int:
        """As long as the longest counter's period, within that of reading it."""
        if not self._dithered or not devices:
            return 0
        cards = [card_for(device, self._environ) for device in devices]
        longest_s = max(card.counter_period_s or card.update_period_s or 0.0 for card in cards)
        return min(round(longest_s * NS_PER_S), round(NS_PER_S / self._rate_hz))

    def _loop(
        self,
        name: str,
        channels: Sequence[Channel],
        rate_hz: float,
        ticks: int | None = None,
        dither_ns: int = 0,
    ) -> Loop:
        return Loop(
            name,
            channels,
            Deadlines(0, round(NS_PER_S / rate_hz), dither_ns),
            self,
            once_more=(lambda _: True) if name in _ENERGY else _shows_use_of_module,
            is_awaited=name in _AWAITED,
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


def _shows_use_of_module(channel: Channel) -> bool:
    """Whether a last reading of it tells of a GPU that was used just before the end.

    A module's power rises with its CPU's load, too, and the GPU's part is averaged over a quarter
    of the time. The clock of a GPU stays up for a while after its last kernel.
    """
    return isinstance(channel, DeviceReader) and channel.is_of_module


def usual_rate_hz(entries: Sequence[InventoryEntry]) -> float:
    """How often to read these devices where nobody has said."""
    measured = _measured(entries)
    spared = measured and all(each.has_buffer for each in entries if each.device in measured)
    if not spared:
        return _USUAL_HZ
    return min(_USUAL_HZ, max(_BESIDE_BUFFER_HZ / len(measured), LEAST_BESIDE_BUFFER_HZ))


def _groups(entries: Iterable[InventoryEntry]) -> list[list[InventoryEntry]]:
    """Few threads with much to do, and for each device that is slow some of its own.

    A thread that wakes up finds its caches cold, which costs more than the reading.
    """
    entries = list(entries)
    together = [each for each in entries if not each.is_slow]
    return [together, *([each] for each in entries if each.is_slow)]


def _keeping(entries: Sequence[InventoryEntry]) -> list[Device]:
    """The measured devices whose driver keeps samples."""
    measured = _measured(entries)
    return [each.device for each in entries if each.has_buffer and each.device in measured]


def _measured(entries: Iterable[InventoryEntry]) -> list[Device]:
    devices = [each.device for each in entries]
    return [each for each in devices if fast_quantities(each) and not _is_modelled(each)]


def _is_modelled(device: Device) -> bool:
    sensors = [device.sensors.get(quantity) for quantity in FAST]
    return not any(s.source.is_sensor for s in sensors if isinstance(s, SensorInfo))
