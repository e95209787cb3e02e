"""Recording every device into a run directory until it is told to stop."""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic_ns, time_ns
from typing import Any, Final, TypeVar

from joulewise.data import Quantity, SensorInfo, Source
from joulewise.devices import Device, Discovery
from joulewise.record.alive import boot_id, started_ticks
from joulewise.record.buffered import Buffered, has_buffer
from joulewise.record.deadlines import Channel, Deadlines, Loop
from joulewise.record.driver_clock import STEP_NS, wall_lag_ns
from joulewise.record.files import GrowingFile
from joulewise.record.found import recorded_device
from joulewise.record.journal import Journal
from joulewise.record.layout import MISSES, PROCESSES, STREAM, Lane, lane_path
from joulewise.record.manifest import CommandRecord, Manifest, RecorderRecord, write_manifest
from joulewise.record.notes import Notes
from joulewise.record.processes import Family, Users
from joulewise.record.readings import FAST, Readings, fast_quantities, slow_quantities
from joulewise.record.secrets import mask
from joulewise.record.streams import Stream
from joulewise.record.watch import Watch
from joulewise.record.writer import Writer
from joulewise.units import NS_PER_S

RATE_HZ: Final = 10.0
# Between what is modelled there is nothing to see: the model counts on by itself.
_MODELLED_HZ: Final = 2.0
_BUFFER_HZ: Final = 1.0
_SLOW_HZ: Final = 1.0
_PROCESSES_HZ: Final = 2.0
_PATIENCE_S: Final = 2.0
_SWITCH_S: Final = 0.0005
_SAVE_NS: Final = 30 * NS_PER_S
_MOST_MISSES: Final = 10_000
_MOST_PROCESSES: Final = 100_000


_Stored = TypeVar("_Stored", Readings, Buffered)


@dataclass(frozen=True)
class RecorderOptions:
    """What a run is told besides its devices; ``options`` goes into run.json as it is."""

    rate_hz: float = RATE_HZ
    name: str = ""
    tags: tuple[str, ...] = ()
    group: str = ""
    cwd: str = field(default_factory=os.getcwd)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    options: Mapping[str, Any] = field(default_factory=dict)


class Recorder:
    """Samples until ``stop``; the only one that writes run.json meanwhile."""

    def __init__(self, run: Path, discovery: Discovery, options: RecorderOptions) -> None:
        self._run = run
        self._options = options
        self._notes = Notes()
        self._writer = Writer(self._notes, self._each_time)
        self._watch = Watch()
        self._family = Family(run.name)
        self._misses = Journal(_MOST_MISSES)
        self._processes = Journal(_MOST_PROCESSES)
        self._channels: list[Readings | Buffered] = []
        self._lock = threading.Lock()
        self._changed = False
        self._saved_ns = 0
        self._devices = discovery.devices
        self._wall_lag_ns = wall_lag_ns(monotonic_ns, time_ns)
        self._manifest = Manifest(
            id=run.name,
            commands=(),
            cwd=options.cwd,
            rate_hz=options.rate_hz,
            wall_start_ns=time_ns(),
            monotonic_start_ns=monotonic_ns(),
            boot_id=boot_id(),
            devices=tuple(recorded_device(d, options.environ) for d in discovery.devices),
            missing=discovery.missing,
            recorder=RecorderRecord(os.getpid(), started_ticks(os.getpid())),
            name=options.name,
            tags=options.tags,
            group=options.group,
            options=options.options,
        )

    def start(self) -> None:
        """Begin to sample; run.json is there when this returns."""
        # A thread that computes must not keep the one with a deadline waiting for 5 ms.
        sys.setswitchinterval(_SWITCH_S)
        loops = self._loops()
        self._save()
        self._writer.start()
        self._watch.start(loops)

    def tell(self, command: CommandRecord) -> None:
        """A command began or ended: known by its process id, secrets in its arguments masked."""
        self._family.adopt(command.pid)
        command = replace(command, arguments=mask(command.arguments))
        with self._lock:
            others = [each for each in self._manifest.commands if each.pid != command.pid]
            commands = sorted([*others, command], key=lambda each: each.start_ns)
            self._manifest = replace(self._manifest, commands=tuple(commands))
            self._changed = True

    def note(self, code: str, message: str, device: str = "") -> None:
        """Something that whoever reads the run must know."""
        self._notes.add(code, message, device)

    def stop(self, state: str = "complete", exit_code: int | None = None) -> Manifest:
        """End sampling, write what is left, and say in run.json how the run ended."""
        for loop in self._watch.end(_PATIENCE_S):
            for channel in loop.channels:
                self._notes.add("device_unavailable", "its driver hangs", channel.name)
        self._writer.end()
        with self._lock:
            self._manifest = replace(
                self._manifest,
                state=state,
                exit_code=exit_code,
                wall_end_ns=time_ns(),
                monotonic_end_ns=monotonic_ns(),
            )
        self._save()
        return self._manifest

    def _loops(self) -> list[Loop]:
        measured = [d for d in self._devices if not _estimated(d)]
        estimated = [d for d in self._devices if _estimated(d)]
        rate_hz = self._options.rate_hz
        modelled_hz = min(rate_hz, _MODELLED_HZ)
        self._writer.add_journal(self._misses, GrowingFile(self._run / MISSES))
        self._writer.add_journal(self._processes, GrowingFile(self._run / PROCESSES))
        loops = [
            self._loop("fast", [self._fast(d, rate_hz) for d in measured], rate_hz),
            self._loop("modelled", [self._fast(d, modelled_hz) for d in estimated], modelled_hz),
            self._loop("buffer", [self._buffer(d) for d in measured if has_buffer(d)], _BUFFER_HZ),
            self._loop("slow", [self._slow(d) for d in self._devices], _SLOW_HZ),
            self._loop("processes", [self._users(d) for d in measured], _PROCESSES_HZ),
        ]
        return [loop for loop in loops if loop.channels]

    def _loop(self, name: str, channels: Sequence[Channel | None], rate_hz: float) -> Loop:
        found = [channel for channel in channels if channel is not None]
        return Loop(name, found, Deadlines(0, round(NS_PER_S / rate_hz)), self._missed)

    def _fast(self, device: Device, rate_hz: float) -> Readings | None:
        quantities = fast_quantities(device)
        for quantity in quantities:  # the first power of a CPU takes two readings and a wait
            device.read(quantity)
        return self._readings(device, Lane.FAST, quantities, rate_hz) if quantities else None

    def _slow(self, device: Device) -> Readings | None:
        quantities = slow_quantities(device)
        return self._readings(device, Lane.SLOW, quantities, _SLOW_HZ) if quantities else None

    def _readings(
        self, device: Device, lane: Lane, quantities: Sequence[Quantity], rate_hz: float
    ) -> Readings:
        channel = Readings(
            f"{device.info.key}{lane.value}",
            device,
            quantities,
            self._notes,
            period_ns=round(NS_PER_S / rate_hz),
        )
        return self._keep(channel, device, lane)

    def _buffer(self, device: Device) -> Buffered:
        name = f"{device.info.key}{Lane.BUFFER.value}"
        return self._keep(Buffered(name, device, self._notes), device, Lane.BUFFER)

    def _users(self, device: Device) -> Users | None:
        return Users(device, self._family, self._processes, self._notes)

    def _keep(self, channel: _Stored, device: Device, lane: Lane) -> _Stored:
        path = lane_path(self._run, device.info.key, lane, STREAM)
        stream = Stream(path, channel.rows.columns)
        self._writer.add_stream(channel.rows, channel.statistics, stream)
        self._channels.append(channel)
        return channel

    def _missed(
        self, loop: str, channels: Sequence[Channel], deadline_ns: int, missed: int
    ) -> None:
        names = [channel.name for channel in channels]
        line = {"loop": loop, "until_ns": deadline_ns, "missed": missed, "channels": names}
        self._misses.add(json.dumps(line))

    def _each_time(self) -> None:
        lag_ns = wall_lag_ns(monotonic_ns, time_ns)
        if abs(lag_ns - self._wall_lag_ns) > STEP_NS:
            by_s = (self._wall_lag_ns - lag_ns) / NS_PER_S
            self._notes.add("wall_clock_set", f"the wall clock was set by {by_s:+.3f} s")
            self._wall_lag_ns = lag_ns
        news = len(self._notes.all()) != len(self._manifest.notes)
        if self._changed or news or monotonic_ns() - self._saved_ns > _SAVE_NS:
            self._save()

    def _save(self) -> None:
        with self._lock:
            recorder = RecorderRecord(
                os.getpid(),
                started_ticks(os.getpid()),
                _cpu_s(),
                {channel.name: channel.statistics.summary() for channel in self._channels},
            )
            self._manifest = replace(self._manifest, recorder=recorder, notes=self._notes.all())
            manifest, self._changed = self._manifest, False
        self._saved_ns = monotonic_ns()
        try:
            write_manifest(self._run, manifest)
        except OSError as error:
            self._notes.once("not_stored", f"run.json: {error.strerror}")


def _estimated(device: Device) -> bool:
    sensors = [device.sensors.get(quantity) for quantity in FAST]
    sources = [sensor.source for sensor in sensors if isinstance(sensor, SensorInfo)]
    return bool(sources) and Source.MEASURED not in sources


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return round(used.ru_utime + used.ru_stime, 3)
