"""run.json: everything needed to understand a run, and to repeat it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import time_ns
from typing import Any, Final

from joulewise.data import DeviceInfo, SensorProfile, Source, Unavailable
from joulewise.data.codec import decode, encode, name_simulated_manifest
from joulewise.data.runs import Container, MachineResources
from joulewise.errors import JoulewiseError
from joulewise.process.linux import pid_namespace, started_ticks
from joulewise.store.checksums import read_json_of, with_checksum
from joulewise.store.files import replace_by_reserve, replace_file
from joulewise.store.layout import FORMAT, MANIFEST, RESERVE

# Disk space kept for the final run.json, which has 28 KiB on a node with eight GPUs. Chosen; twice
# as much takes twice the space while a run is recorded. A long command line makes it longer.
_RESERVE_B: Final = 64 << 10
_GROWTH: Final = 4  # times the first run.json, which lacks statistics and notes (chosen)
_MOST_NS: Final = 1 << 63  # what 64 bits hold, which is the year 2262


@dataclass(frozen=True)
class RecordedDevice:
    """A device as the recorder found it.

    - ``sources``: where ``power_w`` and ``energy_j`` come from; empty where it cannot be read
    - ``card``: what is known of its power sensor
    - ``settings``: the values of its controls at the start
    - ``maximum_w``: the most that it can draw; None where that is unknown
    - ``unavailable``: why it cannot be read, or could not at first
    - ``awake_ns``: when a device that slept, or did not answer, was opened after all
      (CLOCK_MONOTONIC); None where it could be read from the start, or never
    - ``asleep_ns``: until when the kernel had it suspended; None where it did not sleep
    - ``default_limit_w``: the power limit that it was delivered with
    """

    info: DeviceInfo
    sources: Mapping[str, Source] = field(default_factory=dict)
    card: SensorProfile = field(default_factory=SensorProfile)
    settings: Mapping[str, float] = field(default_factory=dict)
    maximum_w: float | None = None
    unavailable: Unavailable | None = None
    awake_ns: int | None = None
    asleep_ns: int | None = None
    default_limit_w: float | None = None

    @property
    def has_sensor(self) -> bool:
        """Whether a sensor, real or simulated, measures its power or energy; else a model does."""
        return any(source.is_sensor for source in self.sources.values())

    @property
    def is_simulated(self) -> bool:
        return self.info.is_simulated or Source.SIMULATED in self.sources.values()


@dataclass(frozen=True)
class CommandRecord:
    """One command that the run measured; there are several where ranks share a recorder."""

    pid: int
    arguments: tuple[str, ...]
    start_ns: int
    end_ns: int | None = None
    exit_code: int | None = None
    cpu_s: float | None = None


@dataclass(frozen=True)
class RecorderRecord:
    """The recorder's process and how well it kept up.

    ``lanes`` has the statistics of each stream: rows, new values and lateness. ``saved_wall_ns`` is
    when it last wrote this, at least twice a minute: a sign of life for those who cannot see its
    process, such as from another ``pid_namespace``.
    """

    pid: int
    started_ticks: int
    cpu_s: float | None = None
    lanes: Mapping[str, Any] = field(default_factory=dict)
    saved_wall_ns: int = 0
    pid_namespace: str = ""

    @classmethod
    def of_this_process(
        cls, cpu_s: float | None = None, lanes: Mapping[str, Any] | None = None
    ) -> RecorderRecord:
        pid = os.getpid()
        return cls(pid, started_ticks(pid), cpu_s, lanes or {}, time_ns(), pid_namespace())


@dataclass(frozen=True)
class Manifest:
    """The content of run.json.

    ``state`` is recording, complete (command and recorder ended in order), stopped by budget (the
    same, where a budget ended the command) or stopped. ``frameworks`` is what the measured program
    used, by its own account: of each the ``version``, and where it has them ``cuda``, ``cudnn`` and
    ``hip``. ``machine`` and ``container`` are None in runs of older versions, ``container`` also
    where there is none.
    """

    id: str
    commands: tuple[CommandRecord, ...]
    cwd: str
    rate_hz: float
    wall_start_ns: int
    monotonic_start_ns: int
    boot_id: str
    devices: tuple[RecordedDevice, ...] = ()
    missing: Mapping[str, Unavailable] = field(default_factory=dict)
    recorder: RecorderRecord | None = None
    name: str = ""
    tags: tuple[str, ...] = ()
    group: str = ""
    host: Mapping[str, str] = field(default_factory=dict)
    git: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: MachineResources | None = None
    container: Container | None = None
    frameworks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    state: str = "recording"
    wall_end_ns: int | None = None
    monotonic_end_ns: int | None = None
    exit_code: int | None = None
    notes: tuple[Mapping[str, str], ...] = ()
    format: int = FORMAT


def with_command(
    commands: Iterable[CommandRecord], command: CommandRecord
) -> tuple[CommandRecord, ...]:
    """All commands in the order of their starts, this one in place of its earlier record.

    A command is identified by process id and start, because process ids are used again.
    """
    by_process = {(each.pid, each.start_ns): each for each in (*commands, command)}
    return tuple(sorted(by_process.values(), key=lambda each: each.start_ns))


def working_directory() -> str:
    """The current directory as run.json has it; empty where it was deleted."""
    try:
        return os.getcwd()  # noqa: PTH109  # as text, like all of run.json
    except OSError:
        return ""


def read_manifest(run: Path) -> Manifest:
    """Read run.json; a JoulewiseError says why that cannot be done. Unknown keys are ignored."""
    payload = read_json_of(run / MANIFEST, partial(_unreadable, run))
    if not isinstance(payload, dict) or not isinstance(payload.get("format"), int):
        raise _unreadable(run, f"{MANIFEST} is not one of joulewise's")
    if payload["format"] > FORMAT:
        raise JoulewiseError(
            f"{run.name} was recorded by a newer joulewise (format {payload['format']}, this one "
            f"reads up to {FORMAT})",
            "update it: pip install -U joulewise",
        )
    name_simulated_manifest(payload)
    try:
        manifest = decode(Manifest, payload)
    except ValueError as error:
        raise _unreadable(run, f"{MANIFEST} is damaged ({error})") from None
    if not 0 <= manifest.wall_start_ns < _MOST_NS:
        raise _unreadable(run, f"{MANIFEST} is damaged (wall_start_ns is no time)")
    return manifest


def write_manifest(run: Path, manifest: Manifest, *, durable: bool = True) -> None:
    """Replace run.json as a whole, so that it is readable at every moment."""
    replace_file(run / MANIFEST, _text(manifest), durable=durable)


def reserve_last(run: Path) -> None:
    """Reserve disk space for the final run.json, in case the disk is full by then."""
    try:
        size_b = max(_RESERVE_B, _GROWTH * (run / MANIFEST).stat().st_size)
        # Random bytes, because a file system that compresses would not store zeros.
        (run / RESERVE).write_bytes(os.urandom(size_b))
    except OSError:
        (run / RESERVE).unlink(missing_ok=True)


def write_final_manifest(run: Path, manifest: Manifest) -> None:
    """Write the final run.json, in the space that was reserved for it."""
    try:
        replace_by_reserve(run / MANIFEST, _text(manifest), run / RESERVE)
    except OSError:  # there is no reserve, or not enough of it
        (run / RESERVE).unlink(missing_ok=True)
        write_manifest(run, manifest)


def _text(manifest: Manifest) -> str:
    return with_checksum(json.dumps(encode(manifest), indent=1, allow_nan=False))


def _unreadable(run: Path, reason: str) -> JoulewiseError:
    return JoulewiseError(
        f"{run} is not a run that can be read: {reason}",
        f"joulewise ls lists those that can; put {MANIFEST} back from a copy, or joulewise rm it",
    )
