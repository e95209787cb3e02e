"""Who uses a device, and which of them belong to the command."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import monotonic_ns, time_ns
from typing import Any, Final

from joulewise.data import Process, Unavailable
from joulewise.devices.device import Device
from joulewise.process.linux import parent
from joulewise.record.writer import PendingLines, RecorderNotes
from joulewise.store.layout import PROCESSES

RUN_VARIABLE: Final = "JOULEWISE_RUN"
# Set by `joulewise sim`: the process to which drivers ascribe the load that it makes by itself.
SIMULATION_VARIABLE: Final = "JOULEWISE_SIM_PID"
SIMULATION: Final = "the simulation itself"
ENDED: Final = "ended"
"""The kind of a process that was on a device and has ended, as the driver's accounting tells."""
# The kernel's number of the namespace that every other lies in (PROC_PID_INIT_INO).
_OUTERMOST: Final = "pid:[4026531836]"
_DEEPEST: Final = 64


class CommandProcesses:
    """Tells the command's processes from others.

    They have the run's id in their environment, or one of them among their ancestors.
    """

    def __init__(
        self,
        run_id: str,
        proc: Path = Path("/proc"),
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._mark = f"{RUN_VARIABLE}={run_id}".encode()
        self._proc = proc
        self._simulation = environ.get(SIMULATION_VARIABLE, "")
        self._known: set[int] = set()
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
        is_ours = self._marked(self._proc / str(pid)) or self._descends(pid)
        if is_ours:
            self._known.add(pid)
        return is_ours

    def had(self, pid: int) -> bool | None:
        """Whether a process that has ended was the command's; None where nobody saw it live."""
        return pid in self._known or pid in self.roots or None

    def sees(self, pid: int) -> bool:
        # In a container NVML tells the host's numbers. Elsewhere, who cannot be seen is not us.
        return not self._inside or (self._proc / str(pid)).exists()

    def exists(self, pid: int) -> bool:
        return (self._proc / str(pid)).exists()

    def name(self, pid: int) -> str:
        if str(pid) == self._simulation:
            return SIMULATION
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


class DeviceUsers:
    """Writes down a device's processes whenever they change."""

    def __init__(
        self, device: Device, family: CommandProcesses, journal: PendingLines, notes: RecorderNotes
    ) -> None:
        self.name = f"{device.info.key}.processes"
        self._device = device
        self._family = family
        self._journal = journal
        self._notes = notes
        self._began_us = time_ns() // 1000
        self._looked_ns: int | None = None
        self._lock = threading.Lock()
        self._state: tuple[object, ...] = ([], (), set(), set())
        self._unseen: set[int] = set()
        self._gone: set[int] = set()

    def serve(self, _deadline_ns: int) -> None:
        with self._lock:
            self._look()

    def poll_again(self) -> None:
        """A command has ended: who is there still, and who was since the recording began."""
        with self._lock:
            self._look()
            self._look_back()

    def _look_back(self) -> None:
        """What a driver whose accounting is on keeps of processes that have ended."""
        ended = getattr(self._device, "ended_processes", lambda _: ())(self._began_us)
        if isinstance(ended, Unavailable) or not ended:
            return
        described = [
            {
                "pid": process.pid,
                "memory_b": process.memory_b,
                "kind": ENDED,
                "name": "",
                "ours": self._family.had(process.pid),
            }
            for process in ended
        ]
        self._add(monotonic_ns(), ENDED, described)

    def _look(self) -> None:
        t_ns = monotonic_ns()
        told = self._device.processes()
        if isinstance(told, Unavailable):
            return
        since_ns, self._looked_ns = self._looked_ns, t_ns
        # Memory comes and goes in every step: half a gigabyte more or less is news.
        known = [(each.pid, each.kind, (each.memory_b or 0) >> 29) for each in told]
        unseen = self._look_for_unseen(told)
        # One that is not there now has just ended, whosever it was. One that is not there the next
        # time either is hidden from us, as /proc can hide the processes of other users.
        gone = {each.pid for each in told if not self._family.exists(each.pid)} - unseen
        just_ended, self._gone = gone - self._gone, gone
        state = (known, self._family.roots, unseen, just_ended)
        if state == self._state:
            return
        self._state = state
        self._add(t_ns, "processes", self._describe(told, just_ended), since_ns=since_ns)

    def _add(
        self, t_ns: int, name: str, processes: list[dict[str, Any]], since_ns: int | None = None
    ) -> None:
        """``since_ns`` is the look before, after which the processes may have come."""
        key = self._device.info.key
        line = {"t_ns": t_ns, "since_ns": since_ns, "device": key, name: processes}
        if not self._journal.add(json.dumps(line)):
            message = f"{PROCESSES} is full: who used the devices from here on is not known"
            self._notes.once("not_stored", message)

    def skip(self, missed: int) -> None:
        """Who used a device meanwhile is told at the next time."""

    def _look_for_unseen(self, told: Iterable[Process]) -> set[int]:
        unseen = {process.pid for process in told if not self._family.sees(process.pid)}
        if unseen & self._unseen:  # one that has just ended is still listed for a moment
            self._notes.once(
                "host_process_ids",
                "NVML tells process ids of the host, which this container does not know",
                self._device.info.key,
            )
        self._unseen = unseen
        return unseen

    def _describe(self, told: Iterable[Process], just_ended: set[int]) -> list[dict[str, Any]]:
        return [
            {
                "pid": process.pid,
                "memory_b": process.memory_b,
                "kind": process.kind,
                "name": self._family.name(process.pid),
                "ours": self._family.had(process.pid)
                if process.pid in just_ended
                else self._family.has(process.pid),
            }
            for process in sorted(told, key=lambda process: process.pid)
        ]
