"""Which processes use a device, and which of them belong to the measured command."""

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
from joulewise.process.linux import parent_pid
from joulewise.record.writer import PendingLines, RecorderNotes
from joulewise.store.layout import ENDED, PROCESSES, SIMULATION

RUN_VARIABLE: Final = "JOULEWISE_RUN"
# Set by `joulewise sim`: the process to which its driver attributes the load that it makes itself.
SIMULATION_VARIABLE: Final = "JOULEWISE_SIM_PID"

# The kernel's number of the outermost namespace of process ids (PROC_PID_INIT_INO).
_OUTERMOST: Final = "pid:[4026531836]"
_MOST_ANCESTORS: Final = 64  # checked of a process (chosen); a deeper one counts as somebody else's
# Memory of a process comes and goes in every step: a change by half a gigabyte is written down
# (chosen). Doubled, fewer lines are written, and memory is known to 1 GB.
_MEMORY_STEP_B: Final = 1 << 29


class CommandProcesses:
    """Distinguishes the command's processes from others.

    They have the run's id in their environment, or the command's process among their ancestors.
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
            self._in_container = str((proc / "self/ns/pid").readlink()) != _OUTERMOST
        except OSError:
            self._in_container = False

    def adopt(self, pid: int) -> None:
        """Add a command's process; its descendants belong to it."""
        if pid not in self.roots:
            self.roots = (*self.roots, pid)

    def has(self, pid: int) -> bool | None:
        """Whether a process is the command's; None where its id here is another one."""
        if not self.sees(pid):
            return None
        is_ours = self._has_run_id(self._proc / str(pid)) or self._descends(pid)
        if is_ours:
            self._known.add(pid)
        return is_ours

    def had(self, pid: int) -> bool | None:
        """Whether a process that has ended was the command's; None where it was never seen."""
        return pid in self._known or pid in self.roots or None

    def sees(self, pid: int) -> bool:
        """Whether the driver's process id is valid here: in a container NVML has the host's ids."""
        return not self._in_container or self.exists(pid)

    def exists(self, pid: int) -> bool:
        return (self._proc / str(pid)).exists()

    def name(self, pid: int) -> str:
        """The name of a process; empty where it cannot be read."""
        if str(pid) == self._simulation:
            return SIMULATION
        try:
            return (self._proc / str(pid) / "comm").read_text(errors="replace").strip()
        except OSError:
            return ""

    def _has_run_id(self, folder: Path) -> bool:
        try:
            return self._mark in (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            return False

    def _descends(self, pid: int) -> bool:
        for _ in range(_MOST_ANCESTORS):
            if pid in self.roots:
                return True
            if pid <= 1:
                return False
            pid = parent_pid(pid, self._proc)
        return False


class DeviceUsers:
    """A channel that polls a device's processes and writes a line whenever they change."""

    def __init__(
        self, device: Device, command: CommandProcesses, journal: PendingLines, notes: RecorderNotes
    ) -> None:
        self.name = f"{device.info.key}.processes"
        self._device = device
        self._command = command
        self._journal = journal
        self._notes = notes
        self._began_us = time_ns() // 1000
        self._polled_ns: int | None = None
        self._lock = threading.Lock()
        self._state: tuple[object, ...] = ([], (), set(), set())
        self._unseen: set[int] = set()
        self._gone: set[int] = set()

    def serve(self, _deadline_ns: int) -> None:
        with self._lock:
            self._poll()

    def poll_again(self) -> None:
        """Poll after a command's end: current processes, and those since the recording began."""
        with self._lock:
            self._poll()
            self._add_ended()

    def _add_ended(self) -> None:
        """Write down ended processes, which a driver knows where its accounting is on."""
        ended = getattr(self._device, "ended_processes", lambda _: ())(self._began_us)
        if isinstance(ended, Unavailable) or not ended:
            return
        described = [
            _describe(process, ENDED, "", self._command.had(process.pid)) for process in ended
        ]
        self._add(monotonic_ns(), ENDED, described)

    def _poll(self) -> None:
        t_ns = monotonic_ns()
        users = self._device.processes()
        if isinstance(users, Unavailable):
            return
        since_ns, self._polled_ns = self._polled_ns, t_ns
        known = [(user.pid, user.kind, (user.memory_b or 0) // _MEMORY_STEP_B) for user in users]
        unseen = self._find_unseen(users)
        # A process that does not exist now has just ended, whosever it was. One that does not exist
        # at the next poll either is hidden from us, as /proc can hide processes of other users.
        gone = {user.pid for user in users if not self._command.exists(user.pid)} - unseen
        just_ended, self._gone = gone - self._gone, gone
        state = (known, self._command.roots, unseen, just_ended)
        if state == self._state:
            return
        self._state = state
        described = []
        for user in sorted(users, key=lambda user: user.pid):
            is_ours = self._command.had if user.pid in just_ended else self._command.has
            name = self._command.name(user.pid)
            described.append(_describe(user, user.kind, name, is_ours(user.pid)))
        self._add(t_ns, "processes", described, since_ns=since_ns)

    def _add(
        self, t_ns: int, name: str, processes: list[dict[str, Any]], since_ns: int | None = None
    ) -> None:
        """``since_ns`` is the poll before, after which the processes may have started."""
        key = self._device.info.key
        line = {"t_ns": t_ns, "since_ns": since_ns, "device": key, name: processes}
        if not self._journal.add(json.dumps(line)):
            message = f"{PROCESSES} is full: later processes on the devices are not known"
            self._notes.once("not_stored", message)

    def skip(self, missed: int) -> None:
        """Nothing is counted: the next poll shows the processes."""

    def _find_unseen(self, users: Iterable[Process]) -> set[int]:
        """The process ids that are not valid here; a warning where they stay."""
        unseen = {user.pid for user in users if not self._command.sees(user.pid)}
        if unseen & self._unseen:  # a process that has just ended is listed for a moment longer
            self._notes.once(
                "host_process_ids",
                "NVML reports process ids of the host, which this container does not know",
                self._device.info.key,
            )
        self._unseen = unseen
        return unseen


def _describe(process: Process, kind: str, name: str, is_ours: bool | None) -> dict[str, Any]:
    """A process as ``processes.jsonl`` has it; None is where it is not known whose it is."""
    return {
        "pid": process.pid,
        "memory_b": process.memory_b,
        "kind": kind,
        "name": name,
        "ours": is_ours,
    }
