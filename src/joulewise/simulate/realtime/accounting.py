"""Accounting mode of the simulated GPUs: what each process used of them, those that ended too.

As NVML documents it: off at first and after the driver was unloaded; switching it off forgets
everything; clearing forgets those that have ended; of two processes with one pid only the later is
known; when the buffer is full, the oldest goes. Assumed, since nothing says so: who was on the GPU
when it was switched on is not accounted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from joulewise.simulate.nvml.layout import CONSTANTS
from joulewise.simulate.nvml.shared import AccountedProcess, Shared
from joulewise.simulate.realtime.card import Card
from joulewise.units import NS_PER_S

_MOST = CONSTANTS["ACCOUNTED"]


@dataclass(eq=False)
class _Record:
    """A process on one GPU; ``owners`` are its lines to the engine that are still open."""

    pid: int
    start_ns: int
    end_ns: int = 0
    memory_b: int = 0
    busy_s: float = 0.0
    memory_busy_s: float = 0.0
    owners: set[object] = field(default_factory=set)


class Accounting:
    """Keeps the records of all GPUs, and writes them to where clients read them."""

    def __init__(self, shared: Shared, cards: Sequence[Card]) -> None:
        self._shared = shared
        self._cards = cards
        self._records: list[list[_Record]] = [[] for _ in cards]

    def begin(self, gpu: int, owner: object, pid: int, now_ns: int) -> None:
        """A process has come."""
        if not self._shared.accounting(gpu):
            return
        records = self._records[gpu]
        record = next((r for r in records if r.pid == pid and r.owners), None)
        if record is None:
            record = _Record(pid, now_ns)
            self._records[gpu] = [*(r for r in records if r.pid != pid), record][-_MOST:]
        record.owners.add(owner)
        self._cards[gpu].account(owner)
        self.write(gpu, now_ns)

    def end(self, gpu: int, owner: object, memory_b: int, now_ns: int) -> None:
        """It has gone, or one of its lines has."""
        for record in self._records[gpu]:
            if owner in record.owners:
                record.owners.discard(owner)
                record.end_ns = now_ns
                record.memory_b = max(record.memory_b, memory_b)
                busy_s, memory_busy_s = self._cards[gpu].accounted_s(owner, now_ns)
                record.busy_s += busy_s
                record.memory_busy_s += memory_busy_s
                self.write(gpu, now_ns)
        self._cards[gpu].discount(owner)

    def note_memory(self, gpu: int, owner: object, memory_b: int) -> None:
        """It has taken so much memory."""
        for record in self._records[gpu]:
            if owner in record.owners:
                record.memory_b = max(record.memory_b, memory_b)

    def obey(self, gpu: int, now_ns: int) -> None:
        """Do what clients have asked for since the last time."""
        records = self._records[gpu]
        if records and not self._shared.accounting(gpu):
            for record in records:
                for owner in record.owners:
                    self._cards[gpu].discount(owner)
            self._records[gpu] = []
            self.write(gpu, now_ns)
        if self._shared.take_accounting_clear(gpu):
            self._records[gpu] = [record for record in self._records[gpu] if record.owners]
            self.write(gpu, now_ns)

    def refresh(self, gpu: int, now_ns: int) -> None:
        """Write anew what changes while a process runs."""
        if any(record.owners for record in self._records[gpu]):
            self.write(gpu, now_ns)

    def write(self, gpu: int, now_ns: int) -> None:
        rows = [self._row(self._cards[gpu], record, now_ns) for record in self._records[gpu]]
        self._shared.set_accounted(gpu, rows)

    def _row(self, card: Card, record: _Record, now_ns: int) -> AccountedProcess:
        busy_s, memory_busy_s = record.busy_s, record.memory_busy_s
        for owner in record.owners:
            more_s, more_memory_s = card.accounted_s(owner, now_ns)
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
