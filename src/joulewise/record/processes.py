"""Who uses a device, and which of them belong to the command."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from time import monotonic_ns
from typing import Any, Final

from joulewise.command.alive import parent
from joulewise.data import Process, Unavailable
from joulewise.devices.protocol import Device
from joulewise.record.journal import Journal
from joulewise.record.layout import PROCESSES
from joulewise.record.notes import Notes

RUN_VARIABLE: Final = "JOULEWISE_RUN"
# The kernel's number of the namespace that every other lies in (PROC_PID_INIT_INO).
_OUTERMOST: Final = "pid:[4026531836]"
_DEEPEST: Final = 64


class Family:
    """Tells the command's processes from others.

    They have the run's id in their environment, or one of them among their ancestors.
    """

    def __init__(self, run_id: str, proc: Path = Path("/proc")) -> None:
        self._mark = f"{RUN_VARIABLE}={run_id}".encode()
        self._proc = proc
        self.roots: tuple[int, ...] = ()
        try:
            self._inside = str((proc / "self/ns/pid").readlink()) != _OUTERMOST
        except OSError:
            self._inside = False

    def adopt(self, pid: int) -> None:
        """A command's process, whose descendants belong to it."""
        if pid not in self.roots:
            self.roots = (*self.roots, pid)

    def has(self, pid: int) -> bool | None:
        """Whether the process is the command's; None where it is known by another number here."""
        if not self.sees(pid):
            return None
        return self._marked(self._proc / str(pid)) or self._descends(pid)

    def sees(self, pid: int) -> bool:
        # In a container NVML tells the host's numbers. Elsewhere, who cannot be seen is not us.
        return not self._inside or (self._proc / str(pid)).exists()

    def name(self, pid: int) -> str:
        try:
            return (self._proc / str(pid) / "comm").read_text(errors="replace").strip()
        except OSError:
            return ""

    def _marked(self, folder: Path) -> bool:
        try:
            return self._mark in (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            return False

    def _descends(self, pid: int) -> bool:
        for _ in range(_DEEPEST):
            if pid in self.roots:
                return True
            if pid <= 1:
                return False
            pid = parent(pid, self._proc)
        return False


class Users:
    """Writes down a device's processes whenever they change."""

    def __init__(self, device: Device, family: Family, journal: Journal, notes: Notes) -> None:
        self.name = f"{device.info.key}.processes"
        self._device = device
        self._family = family
        self._journal = journal
        self._notes = notes
        self._state: tuple[list[Any], tuple[int, ...], set[int]] = ([], (), set())

    def serve(self, _deadline_ns: int) -> None:
        t_ns = monotonic_ns()
        told = self._device.processes()
        if isinstance(told, Unavailable):
            return
        # Memory comes and goes in every step: half a gigabyte more or less is news.
        known = [(each.pid, each.kind, (each.memory_b or 0) >> 29) for each in told]
        unseen = self._look_for_unseen(told)
        state = (known, self._family.roots, unseen)
        if state == self._state:
            return
        self._state = state
        line = {
            "t_ns": t_ns,
            "device": self._device.info.key,
            "processes": self._describe(told),
        }
        if not self._journal.add(json.dumps(line)):
            message = f"{PROCESSES} is full: who used the devices from here on is not known"
            self._notes.once("not_stored", message)

    def skip(self, missed: int) -> None:
        """Who used a device meanwhile is told at the next time."""

    def _look_for_unseen(self, told: Iterable[Process]) -> set[int]:
        unseen = {process.pid for process in told if not self._family.sees(process.pid)}
        if unseen & self._state[2]:  # one that has just ended is still listed for a moment
            self._notes.once(
                "host_process_ids",
                "NVML tells process ids of the host, which this container does not know",
                self._device.info.key,
            )
        return unseen

    def _describe(self, told: Iterable[Process]) -> list[dict[str, Any]]:
        return [
            {
                "pid": process.pid,
                "memory_b": process.memory_b,
                "kind": process.kind,
                "name": self._family.name(process.pid),
                "ours": self._family.has(process.pid),
            }
            for process in sorted(told, key=lambda process: process.pid)
        ]
