"""The exact energy of every simulated GPU as a file, and NVML's accounting of processes.

:class:`Truth` writes the file, against which any meter can be checked. :class:`Accounting` keeps
what each process used of the GPUs, those that have ended too. As NVML documents it, accounting is
off at first and after the driver was unloaded; switching it off forgets everything; clearing
forgets the processes that have ended; of two with one pid only the later is known; when the buffer
is full, the oldest record is dropped. Assumed, since nothing says so: a process that was on the GPU
before accounting was switched on is not accounted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from errno import EINVAL
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from joulewise.errors import UsageError
from joulewise.simulate.nvml.shared_memory import CONSTANTS, AccountedProcess, SharedGpuMemory
from joulewise.simulate.realtime.gpu import HostChip, RealtimeGpu
from joulewise.simulate.timeline import Timeline
from joulewise.units import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

HEADER = "monotonic_ns,gpu,energy_j,sensed_j\n"
MODULE_HEADER = "monotonic_ns,gpu,energy_j,sensed_j,gpu_only_j\n"
"""Where one GPU is a superchip: its ``energy_j`` is its module's, CPU and memory included."""

STEP_NS = 10 * NS_PER_MS  # chosen: the longest time between two rows of a GPU


class Truth:
    """Writes CSV rows in order of time, at every change of power and at least every 10 ms.

    Between two rows of a GPU power is constant, so that energy is linear. Where the disk is full
    the file ends with a whole row, and the command goes on undisturbed.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = _open_for_writing(path)
        except OSError as error:
            raise UsageError(
                f"cannot write {path}: {error.strerror}",
                "name a file in a folder that you may write to",
            ) from error
        self._whole_b = 0
        self._since_ns = 0
        self._gains: Sequence[float] = ()
        self._hosts: Sequence[HostChip | None] = ()

    def start(
        self, gains: Sequence[float], start_ns: int, hosts: Sequence[HostChip | None] = ()
    ) -> None:
        """Begin at ``start_ns`` with no energy drawn; ``gains`` are of each GPU's sensor.

        ``hosts`` are the CPUs that share a module with each GPU, None for a GPU of its own.
        """
        self._gains = gains
        self._hosts = [*hosts] or [None] * len(gains)
        self._since_ns = start_ns
        columns = 3 if any(self._hosts) else 2
        none = ",0.000000" * columns
        self._append(MODULE_HEADER if any(self._hosts) else HEADER)
        self._append("".join(f"{start_ns},{gpu}{none}\n" for gpu in range(len(gains))))

    def write(self, timelines: Sequence[Timeline], until_ns: int, *, last: bool = False) -> None:
        """Add what each GPU drew since the last call; ``last`` adds a row at the very end."""
        parts = [
            energy_rows(
                timeline,
                self._since_ns,
                until_ns,
                last=last,
                changes_ns=host.changes_ns() if host else (),
            )
            for timeline, host in zip(timelines, self._hosts, strict=True)
        ]
        gpu = np.repeat(np.arange(len(parts)), [len(t_ns) for t_ns, _ in parts])
        t_ns = np.concatenate([t_ns for t_ns, _ in parts])
        gpu_only_j = np.concatenate([energy_j for _, energy_j in parts])
        host_j = np.concatenate(
            [
                host.energy_at(t_ns) if host else np.zeros(len(t_ns))
                for host, (t_ns, _) in zip(self._hosts, parts, strict=True)
            ]
        )
        energy_j = gpu_only_j + host_j
        joules = [energy_j, energy_j * np.asarray(self._gains)[gpu]]
        joules += [gpu_only_j] if any(self._hosts) else []
        order = np.argsort(t_ns, kind="stable")
        columns = [column[order].tolist() for column in (t_ns, gpu, *joules)]
        form = "{},{}" + ",{:.6f}" * len(joules) + "\n"
        self._append("".join([form.format(*row) for row in zip(*columns, strict=True)]))
        self._since_ns = until_ns

    def close(self) -> None:
        self._file.close()

    def _append(self, text: str) -> None:
        if self._file.closed:
            return
        rest = text.encode()
        size_b = self._whole_b + len(rest)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file.fileno(), self._whole_b)
            self._file.close()
            if sys.stderr is not None:
                sys.stderr.write(
                    f"joulewise: {self._file.name} ends early: {error.strerror}\n"
                    "  free some space and run it again; the command is not affected\n"
                )
        self._whole_b = size_b


def _open_for_writing(path: Path) -> FileIO:
    """Open a file, not a pipe or a terminal: a slow reader would stop the simulation."""
    if path.exists() and not (path.is_file() or path.is_char_device()):
        raise OSError(EINVAL, "it is not a file")
    file = path.open("wb", buffering=0)
    if file.isatty():
        file.close()
        raise OSError(EINVAL, "it is a terminal")
    return file


def energy_rows(
    timeline: Timeline,
    since_ns: int,
    until_ns: int,
    *,
    last: bool = False,
    changes_ns: Sequence[int] | NDArray[np.int64] = (),
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The times (ns) of the rows in ``(since_ns, until_ns]``, and the energy (J) at each.

    ``changes_ns`` are moments that have a row besides those at which the timeline changes.
    """
    changes = np.concatenate([timeline.pieces["t_ns"], np.asarray(changes_ns, np.int64)])
    changes = changes[(changes > since_ns) & (changes <= until_ns)]
    steps = np.arange(since_ns // STEP_NS + 1, until_ns // STEP_NS + 1) * STEP_NS
    end = [until_ns] if last else []
    t_ns = np.unique(np.concatenate([changes, steps, np.array(end, np.int64)]))
    return t_ns, timeline.energy_at(t_ns)


_MAX_RECORDS = CONSTANTS["ACCOUNTED"]


@dataclass(eq=False)
class _ProcessRecord:
    """A process on one GPU; ``owners`` are its open connections to the engine."""

    pid: int
    start_ns: int
    end_ns: int = 0
    memory_b: int = 0
    busy_s: float = 0.0
    memory_busy_s: float = 0.0
    owners: set[object] = field(default_factory=set)


class Accounting:
    """The accounting records of all GPUs, written to the memory where clients read them."""

    def __init__(self, shared: SharedGpuMemory, gpus: Sequence[RealtimeGpu]) -> None:
        self._shared = shared
        self._gpus = gpus
        self._records: list[list[_ProcessRecord]] = [[] for _ in gpus]

    def begin(self, gpu: int, owner: object, pid: int, now_ns: int) -> None:
        """A process has attached to the GPU."""
        if not self._shared.accounting(gpu):
            return
        records = self._records[gpu]
        record = next((r for r in records if r.pid == pid and r.owners), None)
        if record is None:
            record = _ProcessRecord(pid, now_ns)
            self._records[gpu] = [*(r for r in records if r.pid != pid), record][-_MAX_RECORDS:]
        record.owners.add(owner)
        self._gpus[gpu].account(owner)
        self.write(gpu, now_ns)

    def end(self, gpu: int, owner: object, memory_b: int, now_ns: int) -> None:
        """One connection of a process has closed."""
        for record in self._records[gpu]:
            if owner in record.owners:
                record.owners.discard(owner)
                record.end_ns = now_ns
                record.memory_b = max(record.memory_b, memory_b)
                busy_s, memory_busy_s = self._gpus[gpu].accounted_s(owner, now_ns)
                record.busy_s += busy_s
                record.memory_busy_s += memory_busy_s
                self.write(gpu, now_ns)
        self._gpus[gpu].stop_account(owner)

    def note_memory(self, gpu: int, owner: object, memory_b: int) -> None:
        """A process uses that much memory."""
        for record in self._records[gpu]:
            if owner in record.owners:
                record.memory_b = max(record.memory_b, memory_b)

    def apply_requests(self, gpu: int, now_ns: int) -> None:
        """Do what clients have requested since the last call."""
        records = self._records[gpu]
        if records and not self._shared.accounting(gpu):
            for record in records:
                for owner in record.owners:
                    self._gpus[gpu].stop_account(owner)
            self._records[gpu] = []
            self.write(gpu, now_ns)
        if self._shared.take_accounting_clear(gpu):
            self._records[gpu] = [record for record in self._records[gpu] if record.owners]
            self.write(gpu, now_ns)

    def refresh(self, gpu: int, now_ns: int) -> None:
        """Update what changes while a process runs."""
        if any(record.owners for record in self._records[gpu]):
            self.write(gpu, now_ns)

    def write(self, gpu: int, now_ns: int) -> None:
        rows = [_accounted(self._gpus[gpu], record, now_ns) for record in self._records[gpu]]
        self._shared.set_accounted(gpu, rows)


def _accounted(gpu: RealtimeGpu, record: _ProcessRecord, now_ns: int) -> AccountedProcess:
    busy_s, memory_busy_s = record.busy_s, record.memory_busy_s
    for owner in record.owners:
        more_s, more_memory_s = gpu.accounted_s(owner, now_ns)
        busy_s, memory_busy_s = busy_s + more_s, memory_busy_s + more_memory_s
    until_ns = now_ns if record.owners else record.end_ns
    lived_s = max(until_ns - record.start_ns, 1) / NS_PER_S
    return AccountedProcess(
        pid=record.pid,
        running=bool(record.owners),
        busy_pct=round(100 * min(1.0, busy_s / lived_s)),
        memory_pct=round(100 * min(1.0, memory_busy_s / lived_s)),
        memory_b=record.memory_b,
        start_ns=record.start_ns,
        time_ns=0 if record.owners else until_ns - record.start_ns,
    )
