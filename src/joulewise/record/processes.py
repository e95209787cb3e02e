"""Who uses a device, and which of them belong to the command."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from time import monotonic_ns
from typing import Any, Final

from joulewise.data import Process, Unavailable
from joulewise.devices.protocol import Device
from joulewise.record.alive import parent
from joulewise.record.journal import Journal
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
        folder = self._proc / str(pid)
        if not folder.exists():
            # In a container NVML tells the host's numbers. Elsewhere, who cannot be seen is not us.
            return None if self._inside else False
        return self._marked(folder) or self._descends(pid)

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
        self._known: list[tuple[Any, ...]] = []
        self._family_then: tuple[int, ...] = ()
        self._unseen: set[int] = set()

    def serve(self, _deadline_ns: int) -> None:
        t_ns = monotonic_ns()
        told = self._device.processes()
        if isinstance(told, Unavailable):
            return
        # Memory comes and goes in every step: half a gigabyte more or less is news.
        known = [(each.pid, each.kind, (each.memory_b or 0) >> 29) for each in told]
        if known == self._known and self._family.roots == self._family_then and not self._unseen:
            return
        self._known, self._family_then = known, self._family.roots
        line = {
            "t_ns": t_ns,
            "device": self._device.info.key,
            "processes": self._describe(told),
        }
        self._journal.add(json.dumps(line))

    def skip(self, missed: int) -> None:
        """Who used a device meanwhile is told at the next time."""

    def _describe(self, told: Iterable[Process]) -> list[dict[str, Any]]:
        ours = {process.pid: self._family.has(process.pid) for process in told}
        unseen = {pid for pid, mine in ours.items() if mine is None}
        if unseen & self._unseen:  # one that has just ended is still listed for a moment
            self._notes.once(
                "host_process_ids",
                "NVML tells process ids of the host, which this container does not know",
                self._device.info.key,
            )
        self._unseen = unseen
        return [
            {
                "pid": process.pid,
                "memory_b": process.memory_b,
                "kind": process.kind,
                "name": self._family.name(process.pid),
                "ours": ours[process.pid],
            }
            for process in sorted(told, key=lambda process: process.pid)
        ]
