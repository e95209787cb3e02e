"""Recording every device into a run directory until it is told to stop."""

from __future__ import annotations

import os
import platform
import resource
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic, monotonic_ns, time_ns
from typing import Any, Final

from joulewise.data import DeviceInfo
from joulewise.devices import Device, Discovery
from joulewise.process.linux import boot_id
from joulewise.record.channels import StreamLoops, default_rate_hz
from joulewise.record.clocks import ClockComparison
from joulewise.record.environment import read_run_environment, with_frameworks
from joulewise.record.inventory import (
    DeviceCompletion,
    InventoryEntry,
    recorded_device,
    take_inventory,
    unanswered_devices,
    with_settings,
)
from joulewise.record.processes import CommandProcesses
from joulewise.record.running_total import Tally
from joulewise.record.sampling_loop import LoopWatchdog
from joulewise.record.writer import RecorderNotes, Writer
from joulewise.store.checksums import RecordingChecksums
from joulewise.store.files import Prefix
from joulewise.store.layout import TRACE
from joulewise.store.manifest import (
    CommandRecord,
    Manifest,
    RecordedDevice,
    RecorderRecord,
    reserve_last,
    with_command,
    working_directory,
    write_last,
    write_manifest,
)
from joulewise.store.redact import mask
from joulewise.units import NS_PER_S

_PATIENCE_S: Final = 2.0
# A driver that hangs has been waited for above. Chosen: several times a look at the processes of
# all GPUs, which are looked at beside each other.
_LOOK_S: Final = 0.5
# Chosen: several times what the limits and clocks of a GPU take to be told. A command that is over
# sooner than a slow driver has told them goes without, and without a look at whose energy a
# module's counter has, which takes two seconds.
_COMPLETION_S: Final = 0.5
_SWITCH_S: Final = 0.0005
_SAVE_NS: Final = 30 * NS_PER_S


@dataclass(frozen=True)
class RecorderOptions:
    """What a run is told besides its devices; ``options`` goes into run.json as it is.

    ``hidden`` are the keys of GPUs that no command sees so far: they are read, and are no part of
    the run unless a command joins that sees them (:meth:`Recorder.reveal`).
    """

    rate_hz: float | None = None
    name: str = ""
    tags: tuple[str, ...] = ()
    group: str = ""
    cwd: str = field(default_factory=working_directory)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    hidden: frozenset[str] = frozenset()
    options: Mapping[str, Any] = field(default_factory=dict)


class Recorder:
    """Samples until ``stop``; the only one that writes run.json meanwhile."""

    def __init__(self, run: Path, discovery: Discovery, options: RecorderOptions) -> None:
        self._run = run
        self._options = options
        self._notes = RecorderNotes()
        self._watch = LoopWatchdog()
        self._family = CommandProcesses(run.name, environ=options.environ)
        self._writer = Writer(self._notes, self._each_time)
        self._checksums = RecordingChecksums(run)
        self._inventory = take_inventory(
            discovery.devices, options.environ, options.options.get("settings")
        )
        rate_hz = options.rate_hz or default_rate_hz(self._inventory)
        self._lanes = StreamLoops(
            run,
            rate_hz,
            self._family,
            self._notes,
            self._writer,
            environ=options.environ,
            dithered=options.rate_hz is None,
        )
        for entry in self._inventory:
            self._note_fault(entry)
        self._completion = DeviceCompletion(self._on_complete, self._on_incomplete)
        self._hidden = set(options.hidden)
        self._others_started: set[str] = set()
        self._reopened: list[Device] = []
        self._looks: list[threading.Thread] = []
        self._looking = threading.Thread(target=self._look_around, name="looking", daemon=True)
        self._lock = threading.Lock()
        self._changed = False
        self._saved_ns = 0
        self._clocks = ClockComparison()
        self._manifest = Manifest(
            id=run.name,
            commands=(),
            cwd=options.cwd,
            rate_hz=rate_hz,
            wall_start_ns=time_ns(),
            monotonic_start_ns=monotonic_ns(),
            boot_id=boot_id(),
            devices=(
                *(entry.recorded for entry in self._inventory),
                *unanswered_devices(discovery),
            ),
            missing=discovery.missing,
            recorder=RecorderRecord.of_this_process(),
            name=options.name,
            tags=options.tags,
            group=options.group,
            host={"name": platform.node()},
            options=options.options,
        )
        self.reveal(set())

    @property
    def manifest(self) -> Manifest:
        """The run as it is known now: with every note, and devices as they were last opened."""
        with self._lock:
            return self._without_hidden()

    def _without_hidden(self) -> Manifest:
        """The manifest with the notes so far, and without the GPUs that no command sees."""
        return replace(
            self._manifest,
            devices=tuple(d for d in self._manifest.devices if d.info.key not in self._hidden),
            notes=tuple(n for n in self._notes.all() if n.get("device") not in self._hidden),
        )

    @property
    def all_devices(self) -> tuple[DeviceInfo, ...]:
        """All that are read, also those that no command sees."""
        with self._lock:
            return tuple(each.info for each in self._manifest.devices)

    def reveal(self, keys: Collection[str]) -> None:
        """Make GPUs part of the run that a command sees, and others that report for them."""
        with self._lock:
            self._hidden -= set(keys)
            self._hidden -= {
                device.info.key
                for device in self._manifest.devices
                if any(part not in self._hidden for part in device.info.contains)
            }
            self._changed = True

    def add_missing(self, device: RecordedDevice) -> None:
        """Make a device part of the run that a command may use, and that cannot be read here."""
        with self._lock:
            keys = {each.info.key for each in self._manifest.devices}
            if device.info.key not in keys:
                devices = (*self._manifest.devices, device)
                self._manifest = replace(self._manifest, devices=devices)
                self._changed = True

    @property
    def tallies(self) -> Mapping[str, Tally]:
        """What each device has drawn so far, up to what was written last."""
        return self._lanes.tallies

    def count_from(self, t_ns: int) -> None:
        """A command begins: joules so far are counted from here."""
        self._watch.end_lead()
        self._lanes.count_from(t_ns)

    def write(self) -> None:
        """Write what has been read until now, without waiting for its time."""
        self._writer.write()

    def start(self) -> None:
        """Begin to sample.

        When this returns, run.json is there, and every sensor was read densely for about one update
        (0.12 s at most): a command may start.
        """
        # A thread that computes must not keep the one with a deadline waiting for 5 ms.
        sys.setswitchinterval(_SWITCH_S)
        loops = self._lanes.energy_loops(self._inventory)
        # While files are made ready, which takes longer than a lead, nothing else is read.
        self._watch.start([loop for loop in loops if loop.leads])
        self._completion.begin(self._inventory)
        self._lanes.open_streams()
        self._save()
        reserve_last(self._run)
        self._watch.add([loop for loop in loops if not loop.leads])
        self._start_others(self._inventory)
        self._watch.wait_for_first()
        self._watch.wait_for_lead()
        self._writer.start()
        self._looking.start()

    def tell(self, command: CommandRecord) -> None:
        """A command began or ended: known by process id and start, secrets in it masked."""
        self._family.adopt(command.pid)
        command = replace(command, arguments=mask(command.arguments))
        with self._lock:
            commands = with_command(self._manifest.commands, command)
            is_new = len(commands) > len(self._manifest.commands)
            self._manifest = replace(self._manifest, commands=commands)
            self._changed = True
        if command.end_ns is not None:  # before its processes are gone from the list, if we can
            self._looks += self._lanes.poll_again()
        if is_new:  # what was run is known though we be killed within the second
            self._writer.wake()

    def note(self, code: str, message: str, device: str = "", **more: str) -> None:
        """Something that whoever reads the run must know."""
        self._notes.add(code, message, device, **more)

    def stop(
        self, state: str = "complete", exit_code: int | None = None, end_ns: int | None = None
    ) -> Manifest:
        """Read on until sensors have shown all up to ``end_ns``, and say how the run ended.

        ``end_ns`` is when the last command ended; now, where there was none.
        """
        for name in self._watch.end(_PATIENCE_S, end_ns):
            self._notes.add("device_unavailable", "its driver hangs", name.partition(".")[0])
        self._looking.join(_PATIENCE_S)
        end_s = monotonic() + _LOOK_S
        for look in self._looks:
            look.join(max(0.0, end_s - monotonic()))
        self._completion.join(_COMPLETION_S)
        self._writer.end()
        with self._lock:
            self._manifest = replace(
                with_frameworks(self._run, self._manifest),
                state=state,
                exit_code=exit_code,
                wall_end_ns=time_ns(),
                monotonic_end_ns=monotonic_ns(),
            )
        self._save(write_last)
        self._checksums.close()
        self._remove_hidden()
        for device in self._reopened:
            device.close()
        return self.manifest

    def _on_reopened(self, device: Device, asleep_ns: int | None) -> None:
        """A device that slept or was lost answers: it is recorded from now on."""
        entries = take_inventory([device], self._options.environ)
        recorded = replace(entries[0].recorded, awake_ns=monotonic_ns(), asleep_ns=asleep_ns)
        with self._lock:
            self._reopened.append(device)
            self._manifest = replace(
                self._manifest,
                devices=tuple(
                    replace(recorded, unavailable=each.unavailable)
                    if each.info.key == device.info.key
                    else each
                    for each in self._manifest.devices
                ),
            )
            self._changed = True
        self._notes.add("device_back", "it answers, and is read from here on", device.info.key)
        self._note_fault(entries[0])
        self._watch.add(self._lanes.energy_loops(entries))
        self._completion.begin(entries)
        self._start_others(entries)

    def _start_others(self, entries: Iterable[InventoryEntry]) -> None:
        """Read the rest, too; of devices that are not complete yet, when they are."""
        with self._lock:  # first: what is complete from here on is not missed
            self._others_started |= {entry.device.info.key for entry in entries}
        self._watch.add(self._lanes.other_loops(entries, self._on_reopened))
        self._lanes.open_streams()

    def _on_complete(self, entry: InventoryEntry) -> None:
        """A device has told what it has: its limits and settings go into run.json."""
        settings = self._options.options.get("settings")
        whole = recorded_device(entry.device, self._options.environ, settings)
        whole = with_settings(whole, entry.device)
        with self._lock:
            self._manifest = replace(
                self._manifest,
                devices=tuple(
                    replace(
                        whole,
                        unavailable=each.unavailable,
                        awake_ns=each.awake_ns,
                        asleep_ns=each.asleep_ns,
                    )
                    if each.info.key == whole.info.key
                    else each
                    for each in self._manifest.devices
                ),
            )
            self._changed = True
            has_started = whole.info.key in self._others_started
        if has_started:
            self._watch.add(self._lanes.completed_loops(entry))
            self._lanes.open_streams()

    def _on_incomplete(self, entry: InventoryEntry, error: Exception) -> None:
        what = f"unexpected {type(error).__name__}: {error}"
        self._notes.add("device_unavailable", what, entry.device.info.key, quantity="settings")

    def _note_fault(self, entry: InventoryEntry) -> None:
        if entry.fault:
            what = f"its driver's samples of power are not read: {entry.fault}"
            hint = "its joules rest on its counter and on power as polled; see the driver's log"
            self._notes.add("gap", what, entry.device.info.key, hint=hint)

    def _look_around(self) -> None:
        cwd = Path(self._options.cwd) if self._options.cwd else None
        found = read_run_environment(cwd, self._options.environ)
        with self._lock:
            self._manifest = replace(
                self._manifest,
                host=found.host,
                git=found.git,
                environ=found.environ,
                versions=found.versions,
                machine=found.machine,
                container=found.container,
            )
            self._changed = True

    def _each_time(self) -> None:
        with suppress(OSError):  # a full disk, of which the writer tells
            self._checksums.append(self._visible_prefixes())
        for code, message in self._clocks.news():
            self._notes.add(code.value, message)
        news = len(self._notes.all()) != len(self._manifest.notes)
        if self._changed or news or monotonic_ns() - self._saved_ns > _SAVE_NS:
            self._save()

    def _save(self, write: Callable[[Path, Manifest], None] = write_manifest) -> None:
        with self._lock:
            recorder = RecorderRecord.of_this_process(_cpu_s(), self._lanes.summary())
            self._manifest = replace(self._manifest, recorder=recorder, notes=self._notes.all())
            manifest, self._changed = self._without_hidden(), False
        self._saved_ns = monotonic_ns()
        try:
            write(self._run, manifest)
        except OSError as error:
            self._notes.once("not_stored", f"run.json: {error.strerror}")
        with suppress(OSError):  # without them damage is found less often, and nothing else
            self._checksums.save(self._visible_prefixes())

    def _visible_prefixes(self) -> dict[Path, list[Prefix]]:
        """Checksums of the files that stay: not of GPUs that no command has seen so far."""
        every = self._writer.prefixes.items()
        return {path: prefixes for path, prefixes in every if not self._is_hidden(path)}

    def _is_hidden(self, trace: Path) -> bool:
        return trace.parent.name == TRACE and trace.name.partition(".")[0] in self._hidden

    def _remove_hidden(self) -> None:
        """Delete what was read of GPUs that no command has seen."""
        for file in (self._run / TRACE).glob("*"):
            if self._is_hidden(file):
                with suppress(OSError):
                    file.unlink()


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return round(used.ru_utime + used.ru_stime, 3)
