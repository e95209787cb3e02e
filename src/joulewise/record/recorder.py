"""The recorder: samples every device into a run directory, and writes run.json meanwhile."""

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
from joulewise.record.sampling_loop import LoopWatchdog
from joulewise.record.statistics import RunningTotal
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
    write_final_manifest,
    write_manifest,
)
from joulewise.store.redact import mask
from joulewise.units import NS_PER_S

# Times that the end of a run waits at most (chosen; doubled, such an end takes that much longer):
# for loops to end, whose driver may hang,
_PATIENCE_S: Final = 2.0
# for the last poll of processes, which takes a fraction of this for all GPUs in parallel,
_LAST_POLL_S: Final = 0.5
# and for devices to report their limits and clocks, which takes a fraction of this for a GPU. A
# command that ends sooner than a slow driver answers goes without them, and without the check of
# what a module's counter covers, which takes two seconds.
_COMPLETION_S: Final = 0.5
# After how long Python switches threads (chosen): a thread that computes must not delay one with a
# deadline by the default 5 ms. Shorter costs CPU time.
_SWITCH_S: Final = 0.0005
_SAVE_NS: Final = 30 * NS_PER_S  # run.json is written at least so often, as a sign of life (chosen)


@dataclass(frozen=True)
class RecorderOptions:
    """What a recorder needs besides devices; ``options`` goes into run.json as it is.

    Without a ``rate_hz`` the default for the devices is taken. ``hidden`` are the keys of GPUs that
    no command sees so far: they are read, but not part of the run unless a command joins that sees
    them (:meth:`Recorder.reveal`).
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
    """Samples from ``start`` to ``stop``; nobody else writes run.json meanwhile."""

    def __init__(self, run: Path, discovery: Discovery, options: RecorderOptions) -> None:
        self._run = run
        self._options = options
        self._notes = RecorderNotes()
        self._watchdog = LoopWatchdog()
        self._command = CommandProcesses(run.name, environ=options.environ)
        self._writer = Writer(self._notes, self._after_round)
        self._checksums = RecordingChecksums(run)
        self._inventory = take_inventory(
            discovery.devices, options.environ, options.options.get("settings")
        )
        rate_hz = options.rate_hz or default_rate_hz(self._inventory)
        self._loops = StreamLoops(
            run,
            rate_hz,
            self._command,
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
        self._last_polls: list[threading.Thread] = []
        self._environment = threading.Thread(
            target=self._read_environment, name="environment", daemon=True
        )
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
        """The manifest as of now: with every note, and devices as they were last opened."""
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
        """All devices that are read, also those that no command sees."""
        with self._lock:
            return tuple(device.info for device in self._manifest.devices)

    def reveal(self, keys: Collection[str]) -> None:
        """Make GPUs that a command sees part of the run, and devices that contain them."""
        with self._lock:
            self._hidden -= set(keys)
            self._hidden -= {
                device.info.key
                for device in self._manifest.devices
                if any(part not in self._hidden for part in device.info.contains)
            }
            self._changed = True

    def add_missing(self, device: RecordedDevice) -> None:
        """Make a device part of the run that a command may use but that cannot be read here."""
        with self._lock:
            keys = {known.info.key for known in self._manifest.devices}
            if device.info.key not in keys:
                devices = (*self._manifest.devices, device)
                self._manifest = replace(self._manifest, devices=devices)
                self._changed = True

    @property
    def running_totals(self) -> Mapping[str, RunningTotal]:
        """The energy of each device so far, up to what was written last."""
        return self._loops.running_totals

    def count_from(self, t_ns: int) -> None:
        """A command begins: count the energy so far from here (CLOCK_MONOTONIC)."""
        self._watchdog.end_lead()
        self._loops.count_from(t_ns)

    def write(self) -> None:
        """Write what was read so far, without waiting for the next round."""
        self._writer.write()

    def start(self) -> None:
        """Begin to sample.

        When this returns, run.json is there, and every sensor was read densely for about one update
        (0.12 s at most): a command may start.
        """
        sys.setswitchinterval(_SWITCH_S)
        loops = self._loops.energy_loops(self._inventory)
        # Preparing the files takes longer than the dense readings: nothing else is read meanwhile.
        self._watchdog.start([loop for loop in loops if loop.leads])
        self._completion.begin(self._inventory)
        self._loops.open_streams()
        self._save()
        reserve_last(self._run)
        self._watchdog.add([loop for loop in loops if not loop.leads])
        self._start_others(self._inventory)
        self._watchdog.wait_for_first()
        self._watchdog.wait_for_lead()
        self._writer.start()
        self._environment.start()

    def tell(self, command: CommandRecord) -> None:
        """A command began or ended; process id and start identify it. Secrets are masked."""
        self._command.adopt(command.pid)
        command = replace(command, arguments=mask(command.arguments))
        with self._lock:
            commands = with_command(self._manifest.commands, command)
            is_new = len(commands) > len(self._manifest.commands)
            self._manifest = replace(self._manifest, commands=commands)
            self._changed = True
        if command.end_ns is not None:  # if possible before the driver forgets its processes
            self._last_polls += self._loops.poll_again()
        if is_new:  # so that a kill within the next second leaves what was run
            self._writer.wake()

    def note(self, code: str, message: str, device: str = "", **more: str) -> None:
        """Add something that readers of the run must know."""
        self._notes.add(code, message, device, **more)

    def stop(
        self, state: str = "complete", exit_code: int | None = None, end_ns: int | None = None
    ) -> Manifest:
        """Read on until sensors have shown all up to ``end_ns``, and write the final run.json.

        ``end_ns`` is when the last command ended (CLOCK_MONOTONIC); now, where there was none.
        """
        for name in self._watchdog.end(_PATIENCE_S, end_ns):
            self._notes.add("device_unavailable", "its driver hangs", name.partition(".")[0])
        self._environment.join(_PATIENCE_S)
        end_s = monotonic() + _LAST_POLL_S
        for poll in self._last_polls:
            poll.join(max(0.0, end_s - monotonic()))
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
        self._save(write_final_manifest)
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
            self._replace_device(
                device.info.key, lambda old: replace(recorded, unavailable=old.unavailable)
            )
        self._notes.add("device_back", "it answers, and is read from here on", device.info.key)
        self._note_fault(entries[0])
        self._watchdog.add(self._loops.energy_loops(entries))
        self._completion.begin(entries)
        self._start_others(entries)

    def _start_others(self, entries: Iterable[InventoryEntry]) -> None:
        """Read the other quantities, too; of a device that is not complete yet, once it is."""
        with self._lock:  # first, so that a device that completes meanwhile is not missed
            self._others_started |= {entry.device.info.key for entry in entries}
        self._watchdog.add(self._loops.other_loops(entries, self._on_reopened))
        self._loops.open_streams()

    def _on_complete(self, entry: InventoryEntry) -> None:
        """A device has reported all that it has: its limits and settings go into run.json."""
        settings = self._options.options.get("settings")
        complete = recorded_device(entry.device, self._options.environ, settings)
        complete = with_settings(complete, entry.device)
        with self._lock:
            self._replace_device(
                complete.info.key,
                lambda old: replace(
                    complete,
                    unavailable=old.unavailable,
                    awake_ns=old.awake_ns,
                    asleep_ns=old.asleep_ns,
                ),
            )
            has_started = complete.info.key in self._others_started
        if has_started:
            self._watchdog.add(self._loops.completed_loops(entry))
            self._loops.open_streams()

    def _replace_device(self, key: str, change: Callable[[RecordedDevice], RecordedDevice]) -> None:
        """Change the record of one device in the manifest. The lock must be held."""
        devices = tuple(
            change(device) if device.info.key == key else device
            for device in self._manifest.devices
        )
        self._manifest = replace(self._manifest, devices=devices)
        self._changed = True

    def _on_incomplete(self, entry: InventoryEntry, error: Exception) -> None:
        message = f"unexpected {type(error).__name__}: {error}"
        self._notes.add("device_unavailable", message, entry.device.info.key, quantity="settings")

    def _note_fault(self, entry: InventoryEntry) -> None:
        if entry.fault:
            message = f"its driver's samples of power are not read: {entry.fault}"
            hint = "its energy comes from its counter and from polled power; see the driver's log"
            self._notes.add("gap", message, entry.device.info.key, hint=hint)

    def _read_environment(self) -> None:
        cwd = Path(self._options.cwd) if self._options.cwd else None
        environment = read_run_environment(cwd, self._options.environ)
        with self._lock:
            # Its fields have the names that they have in the manifest.
            self._manifest = replace(self._manifest, **vars(environment))
            self._changed = True

    def _after_round(self) -> None:
        """After each round of writing: log checksums, compare clocks, and save run.json if due."""
        with suppress(OSError):  # a full disk, which the writer notes
            self._checksums.append(self._visible_prefixes())
        for code, message in self._clocks.events():
            self._notes.add(code.value, message)
        has_new_notes = len(self._notes.all()) != len(self._manifest.notes)
        if self._changed or has_new_notes or monotonic_ns() - self._saved_ns > _SAVE_NS:
            self._save()

    def _save(self, write: Callable[[Path, Manifest], None] = write_manifest) -> None:
        with self._lock:
            recorder = RecorderRecord.of_this_process(_cpu_s(), self._loops.summary())
            self._manifest = replace(self._manifest, recorder=recorder, notes=self._notes.all())
            manifest, self._changed = self._without_hidden(), False
        self._saved_ns = monotonic_ns()
        try:
            write(self._run, manifest)
        except OSError as error:
            self._notes.once("not_stored", f"run.json: {error.strerror}")
        with suppress(OSError):  # without them damage is found less often; nothing else is lost
            self._checksums.save(self._visible_prefixes())

    def _visible_prefixes(self) -> dict[Path, list[Prefix]]:
        """Checksums of all files but those of GPUs that no command has seen so far."""
        prefixes = self._writer.prefixes
        return {path: prefixes[path] for path in prefixes if not self._is_hidden(path)}

    def _is_hidden(self, trace: Path) -> bool:
        return trace.parent.name == TRACE and trace.name.partition(".")[0] in self._hidden

    def _remove_hidden(self) -> None:
        """Delete what was read of GPUs that no command has seen."""
        for file in (self._run / TRACE).glob("*"):
            if self._is_hidden(file):
                with suppress(OSError):
                    file.unlink()


def _cpu_s() -> float:
    """CPU time of this process, to the millisecond."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return round(usage.ru_utime + usage.ru_stime, 3)
