"""Which device is read by which loop, how often, and into which stream."""

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
from joulewise.record.driver_samples import DriverSamples, OtherSamples, PowerSamples
from joulewise.record.inventory import InventoryEntry
from joulewise.record.processes import CommandProcesses, DeviceUsers
from joulewise.record.readings import (
    FAST,
    DeviceReader,
    ReopenPoller,
    fast_quantities,
    slow_quantities,
)
from joulewise.record.sampling_loop import Channel, SamplingLoop
from joulewise.record.schedule import (
    MIN_COUNTER_RATE_HZ,
    NO_EDGE,
    Deadlines,
    EdgeTiming,
    edge_timing,
)
from joulewise.record.sensor_profiles import sensor_profile_for
from joulewise.record.statistics import RunningTotal, StreamStatistics
from joulewise.record.writer import PendingLines, RecorderNotes, Writer
from joulewise.store.arrow_stream import Stream
from joulewise.store.files import GrowingFile
from joulewise.store.layout import (
    BUFFERED_QUANTITIES,
    MISSES,
    PROCESSES,
    STREAM,
    StreamKind,
    buffer_stream_kind,
    stream_path,
)
from joulewise.units import NS_PER_S

# Rates in readings a second (all chosen; doubled, they cost twice the CPU time).
# A model counts on by itself between two readings. Beside measured devices it is the least exact
# part of a total, and need not cost the most.
_MODELLED_HZ: Final = 10.0
# Where the driver buffers power itself, the counter is read only for its total: 20 readings a
# second of all GPUs together are within 1 % of a core (benchmarks/recorder.py), of one GPU no fewer
# than MIN_COUNTER_RATE_HZ and no more than the default.
_DEFAULT_HZ: Final = 10.0
_BESIDE_BUFFER_HZ: Final = 20.0
_REGULAR_HZ: Final = 1.0
# A GPU that did not answer may be back at any moment, and what it draws until then is lost.
_SILENT_HZ: Final = 1.0
# Polling a device that is still being opened does not disturb it.
_LATE_HZ: Final = 5.0
# Processes are polled more often in the first two seconds: a short command is over by then.
_EARLY_HZ: Final = 5.0
_EARLY_TICKS: Final = 10
# Loops whose channels are read at the start and at the end of a run, however short it is.
_ENERGY: Final = ("fast", "regular", "samples")
# Loops whose first reading a command waits for. The driver buffers utilisation and clocks
# meanwhile, and six buffers of a slow driver take a second.
_AWAITED: Final = ("fast", "regular")
# Lines of a file at most (chosen), so that a recorder that is always late does not fill the disk.
_MOST_MISSES: Final = 10_000
_MOST_PROCESSES: Final = 100_000
_Stored = TypeVar("_Stored", DeviceReader, PowerSamples, OtherSamples)
_OnReopened = Callable[[Device, "int | None"], None]


class StreamLoops:
    """Makes the loops that fill a run's streams, and has the statistics of each stream."""

    def __init__(
        self,
        run: Path,
        rate_hz: float,
        family: CommandProcesses,
        notes: RecorderNotes,
        writer: Writer,
        *,
        environ: Mapping[str, str],
        dithered: bool = False,
    ) -> None:
        """``dithered``: fast streams are read a little unevenly, to meet all phases of a counter.

        ``open_streams`` makes the files.
        """
        self._run = run
        self._rate_hz = rate_hz
        self._environ = environ
        self._dithered = dithered
        self._family = family
        self._notes = notes
        self._writer = writer
        self._lock = threading.Lock()
        self.running_totals: dict[str, RunningTotal] = {}
        self._since_ns = 0
        self._users_by_key: dict[str, DeviceUsers] = {}
        self._slow_keys: set[str] = set()
        self._stored: list[DeviceReader | DriverSamples] = []
        self._unopened: list[tuple[DeviceReader | DriverSamples, Device, StreamKind]] = []
        self._misses = PendingLines(_MOST_MISSES)
        self._processes = PendingLines(_MOST_PROCESSES)
        writer.add_journal(self._misses, GrowingFile(run / MISSES))
        writer.add_journal(self._processes, GrowingFile(run / PROCESSES))

    def energy_loops(self, entries: Iterable[InventoryEntry]) -> list[SamplingLoop]:
        """The loops that read what energy comes from; a command waits for these."""
        entries = list(entries)
        is_measured = bool(_measured(entries))
        regular_hz = _REGULAR_HZ if is_measured else min(self._rate_hz, _MODELLED_HZ)
        loops = [
            loop for group in _groups(entries) for loop in self._reading_energy(group, regular_hz)
        ]
        return [loop for loop in loops if loop.channels]

    def other_loops(
        self, entries: Iterable[InventoryEntry], on_reopened: _OnReopened
    ) -> list[SamplingLoop]:
        """The loops that read the rest, and poll processes and devices that do not answer."""
        loops = [
            loop
            for group in _groups(entries)
            for loop in (*self._reading_others(group), *self._opening(group, on_reopened))
        ]
        return [loop for loop in loops if loop.channels]

    def completed_loops(self, entry: InventoryEntry) -> list[SamplingLoop]:
        """The loop that reads the rest of a device that has just been completed, if none does."""
        slow = self._slow([entry.device])
        return [self._loop("slow", slow, _REGULAR_HZ)] if slow else []

    def _reading_energy(
        self, entries: Sequence[InventoryEntry], regular_hz: float
    ) -> Iterator[SamplingLoop]:
        measured, buffering = _measured(entries), _with_driver_buffer(entries)
        modelled = [
            each.device
            for each in entries
            if fast_quantities(each.device) and each.device not in measured
        ]
        fast = [self._fast(device, self._rate_hz) for device in measured]
        regular: list[Channel] = [
            *(self._buffered(device) for device in buffering),
            *(self._fast(device, regular_hz) for device in modelled),
        ]
        yield self._loop("fast", fast, self._rate_hz, dither_ns=self._dither_ns(measured))
        yield self._loop("regular", regular, regular_hz)

    def _reading_others(self, entries: Sequence[InventoryEntry]) -> Iterator[SamplingLoop]:
        measured = _measured(entries)
        sampled = [
            self._sampled(device, each)
            for device in _with_driver_buffer(entries)
            for each in BUFFERED_QUANTITIES
        ]
        slow = self._slow([each.device for each in entries])
        yield self._loop("slow", [*self._users(measured), *slow], _REGULAR_HZ)
        yield self._loop("early", self._users(measured), _EARLY_HZ, ticks=_EARLY_TICKS)
        yield self._loop("samples", sampled, _REGULAR_HZ)

    def _opening(
        self, entries: Sequence[InventoryEntry], on_reopened: _OnReopened
    ) -> Iterator[SamplingLoop]:
        """The loops that try to open devices that do not answer."""
        unopened = [each.device for each in entries if hasattr(each.device, "reopened")]
        silent = [
            ReopenPoller(d, on_reopened) for d in unopened if not getattr(d, "is_late", False)
        ]
        late = [ReopenPoller(d, on_reopened) for d in unopened if getattr(d, "is_late", False)]
        yield self._loop("silent", silent, _SILENT_HZ)
        yield self._loop("late", late, _LATE_HZ)

    def count_from(self, t_ns: int) -> None:
        """A command begins: count the energy so far from here."""
        self._since_ns = t_ns
        for running_total in list(self.running_totals.values()):
            running_total.begin(t_ns)

    def summary(self) -> dict[str, Any]:
        """The statistics of each stream, by its file's name without the ending."""
        with self._lock:
            return {channel.name: channel.statistics.summary() for channel in self._stored}

    def poll_again(self) -> list[threading.Thread]:
        """A command has ended: poll the processes of all GPUs, each in a thread of its own."""
        with self._lock:
            users = list(self._users_by_key.values())
        polls = [threading.Thread(target=each.poll_again, daemon=True) for each in users]
        for poll in polls:
            poll.start()
        return polls

    def _users(self, devices: Iterable[Device]) -> list[DeviceUsers]:
        users = []
        for device in devices:
            new = DeviceUsers(device, self._family, self._processes, self._notes)
            with self._lock:
                users.append(self._users_by_key.setdefault(device.info.key, new))
        return users

    def _fast(self, device: Device, rate_hz: float) -> DeviceReader:
        return self._readings(device, StreamKind.FAST, fast_quantities(device), rate_hz)

    def _slow(self, devices: Iterable[Device]) -> list[DeviceReader]:
        """Channels for the rest of the devices that are complete, once for each."""
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
        self, device: Device, kind: StreamKind, quantities: Sequence[Quantity], rate_hz: float
    ) -> DeviceReader:
        name, period_ns = f"{device.info.key}{kind.value}", round(NS_PER_S / rate_hz)
        edge = self._edge(device) if kind is StreamKind.FAST else NO_EDGE
        channel = DeviceReader(
            name, device, quantities, self._notes, period_ns=period_ns, edge=edge
        )
        return self._store(channel, device, kind)

    def _buffered(self, device: Device) -> PowerSamples:
        # The driver has buffered what was before: nothing is read early.
        name = f"{device.info.key}{StreamKind.BUFFER.value}"
        edge = replace(self._edge(device), lead_ns=0)
        return self._store(
            PowerSamples(name, device, self._notes, edge=edge), device, StreamKind.BUFFER
        )

    def _sampled(self, device: Device, quantity: Quantity) -> OtherSamples:
        kind = buffer_stream_kind(quantity)
        name, period_ns = f"{device.info.key}{kind.value}", round(NS_PER_S / _REGULAR_HZ)
        channel = OtherSamples(name, device, quantity, period_ns=period_ns)
        return self._store(channel, device, kind)

    def _edge(self, device: Device) -> EdgeTiming:
        return (
            NO_EDGE
            if _is_modelled(device)
            else edge_timing(sensor_profile_for(device, self._environ))
        )

    def _store(self, channel: _Stored, device: Device, kind: StreamKind) -> _Stored:
        if kind is StreamKind.FAST:
            self.running_totals.setdefault(device.info.key, RunningTotal(self._since_ns))
        with self._lock:
            self._stored.append(channel)
            self._unopened.append((channel, device, kind))
        return channel

    def open_streams(self) -> None:
        """Make the files. That loads pyarrow, which is slow: reading has begun before."""
        with self._lock:
            unopened, self._unopened = self._unopened, []
        for channel, device, kind in unopened:
            stream = Stream(
                stream_path(self._run, device.info.key, kind, STREAM), channel.rows.columns
            )
            consumers: list[StreamStatistics | RunningTotal] = [channel.statistics]
            if kind is StreamKind.FAST:
                consumers.append(self.running_totals[device.info.key])
            is_urgent = kind is StreamKind.FAST and not _is_modelled(device)
            self._writer.add_stream(channel.rows, stream, *consumers, is_urgent=is_urgent)

    def _dither_ns(self, devices: Sequence[Device]) -> int:
        """The longest update period of a counter, but no more than the period of reading it."""
        if not self._dithered or not devices:
            return 0
        profiles = [sensor_profile_for(device, self._environ) for device in devices]
        longest_s = max(one.counter_period_s or one.update_period_s or 0.0 for one in profiles)
        return min(round(longest_s * NS_PER_S), round(NS_PER_S / self._rate_hz))

    def _loop(
        self,
        name: str,
        channels: Sequence[Channel],
        rate_hz: float,
        ticks: int | None = None,
        dither_ns: int = 0,
    ) -> SamplingLoop:
        return SamplingLoop(
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
    """Whether a reading after the end can still show that a GPU was used just before it.

    A module's power rises with its CPU's load, too, and the GPU's part is averaged over a quarter
    of the time. The clock of a GPU stays high for a while after its last kernel.
    """
    return isinstance(channel, DeviceReader) and channel.is_of_module


def default_rate_hz(entries: Sequence[InventoryEntry]) -> float:
    """How often these devices are read, in Hz, where the user does not say."""
    measured = _measured(entries)
    all_buffered = measured and all(each.has_buffer for each in entries if each.device in measured)
    if not all_buffered:
        return _DEFAULT_HZ
    return min(_DEFAULT_HZ, max(_BESIDE_BUFFER_HZ / len(measured), MIN_COUNTER_RATE_HZ))


def _groups(entries: Iterable[InventoryEntry]) -> list[list[InventoryEntry]]:
    """The devices that share threads: all together, but each slow one alone.

    Few threads, because one that wakes up finds its caches cold, which costs more than the reading.
    """
    entries = list(entries)
    together = [each for each in entries if not each.is_slow]
    return [together, *([each] for each in entries if each.is_slow)]


def _with_driver_buffer(entries: Sequence[InventoryEntry]) -> list[Device]:
    """The measured devices whose driver buffers samples."""
    measured = _measured(entries)
    return [each.device for each in entries if each.has_buffer and each.device in measured]


def _measured(entries: Iterable[InventoryEntry]) -> list[Device]:
    devices = [each.device for each in entries]
    return [each for each in devices if fast_quantities(each) and not _is_modelled(each)]


def _is_modelled(device: Device) -> bool:
    sensors = [device.sensors.get(quantity) for quantity in FAST]
    return not any(s.source.is_sensor for s in sensors if isinstance(s, SensorInfo))
