"""The thread that writes, so that a slow or full disk holds up nothing but itself.

Lines of JSON that wait to be written.

What the recorder has to say besides its rows, in words that go into run.json.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import Final

from joulewise.process.failpoints import point
from joulewise.record.running_total import Tally
from joulewise.record.statistics import StreamStatistics
from joulewise.store.arrow_stream import ColumnBuffer, RowBuffer, Stream
from joulewise.store.files import GrowingFile


class PendingLines:
    """Added to by any thread and taken by the one that writes; there is an end to how many."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._lock = threading.Lock()
        self._lines: list[str] = []

    def add(self, line: str) -> bool:
        """Whether there was room for it."""
        with self._lock:
            if self._left <= 0:
                return False
            self._left -= 1
            self._lines.append(line + "\n")
            return True

    def take(self) -> bytes:
        with self._lock:
            lines, self._lines = self._lines, []
        return "".join(lines).encode()


_MOST: Final = 500


class RecorderNotes:
    """Things to know, each said once, from whichever thread. There is an end to how many."""

    def __init__(self, now_ns: Callable[[], int] = monotonic_ns) -> None:
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._all: list[dict[str, str]] = []
        self._once: set[tuple[str, str]] = set()

    def add(self, code: str, message: str, device: str = "", **more: str) -> None:
        with self._lock:
            if len(self._all) < _MOST:
                note = {"code": code, "message": message, "t_ns": str(self._now_ns()), **more}
                self._all.append(note | ({"device": device} if device else {}))

    def once(self, code: str, message: str, device: str = "") -> None:
        """Add it unless such a one has been added of this device."""
        with self._lock:
            known = (code, device) in self._once
            self._once.add((code, device))
        if not known:
            self.add(code, message, device)

    def all(self) -> tuple[dict[str, str], ...]:
        with self._lock:
            return tuple(self._all)


EVERY_S: Final = 1.0
# Right after what is read once a second, when the caches are still warm.
_FIRST_S: Final = 0.05
_SYNC_ALL: Final = 5
_ROOM_B: Final = 64 << 20


class Writer:
    """Takes rows and lines about every second and appends them to their files.

    What a full disk does not take waits in memory and is tried again; beyond ``room_b`` the
    oldest is given up. Making the files durable is a thread of its own: a disk may take its time
    for that, and what was handed to the kernel survives a kill of this process already.
    """

    def __init__(
        self, notes: RecorderNotes, each_time: Callable[[], None], *, room_b: int = _ROOM_B
    ) -> None:
        self._notes = notes
        self._each_time = each_time
        self._room_b = room_b
        self._streams: list[
            tuple[RowBuffer | ColumnBuffer, Stream, tuple[StreamStatistics | Tally, ...]]
        ] = []
        self._journals: list[tuple[PendingLines, GrowingFile]] = []
        self._urgent: list[GrowingFile] = []
        self._rounds = 0
        self._lock = threading.Lock()
        self._over = False
        self._awaited = threading.Event()
        self._written = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._syncer = threading.Thread(target=self._sync, name="sync", daemon=True)

    def add_stream(
        self,
        rows: RowBuffer | ColumnBuffer,
        stream: Stream,
        *told: StreamStatistics | Tally,
        hurry: bool = False,
    ) -> None:
        """``told`` of what is written; in a ``hurry`` where a power cut must cost 1 s at most."""
        self._streams.append((rows, stream, told))
        if hurry:
            self._urgent.append(stream.file)

    def add_journal(self, journal: PendingLines, file: GrowingFile) -> None:
        self._journals.append((journal, file))

    def start(self) -> None:
        self._thread.start()
        self._syncer.start()

    def end(self) -> None:
        """Write what is left and make it last, as far as the disk lets us."""
        self._over = True
        self._awaited.set()
        self._thread.join()
        self._written.set()
        self._syncer.join()
        self._try(GrowingFile.sync, self._files())
        for file in self._files():
            file.close()

    @property
    def prefixes(self) -> dict[Path, list[tuple[int, int]]]:
        """Of each file the checksums of what has been written of it."""
        return {file.path: file.prefixes for file in self._files() if file.prefixes}

    def wake(self) -> None:
        """Do now what is done each time; rows are written when it is their time."""
        self._awaited.set()

    def write(self) -> None:
        """One round. Never raises: what fails is noted, and tried again the next time."""
        with self._lock:
            self._take()
            self._try(GrowingFile.flush, self._files())
            self._make_room()
        point("after-batch")
        self._written.set()

    def _take(self) -> None:
        for rows, stream, told in self._streams:
            batch = rows.take()
            if batch is not None:
                stream.add(batch)
                for each in told:
                    each.add(batch)
        for journal, file in self._journals:
            lines = journal.take()
            if lines:
                file.add(lines)

    def _run(self) -> None:
        next_s = monotonic() + _FIRST_S
        while not self._over:
            if not self._awaited.wait(max(0.0, next_s - monotonic())):
                next_s = max(next_s + EVERY_S, monotonic())
                self.write()
            self._awaited.clear()
            self._each_time()
        self.write()
        self._each_time()

    def _sync(self) -> None:
        while not self._over:
            self._written.wait()
            self._written.clear()
            self._rounds += 1
            self._try(GrowingFile.sync, self._urgent if self._rounds % _SYNC_ALL else self._files())

    def _try(self, action: Callable[[GrowingFile], None], files: list[GrowingFile]) -> None:
        for file in files:
            try:
                action(file)
            except OSError as error:  # noqa: PERF203  # one file's trouble is not another's
                self._notes.once("not_stored", f"{file.path.name}: {error.strerror}")

    def _make_room(self) -> None:
        files = self._files()
        waiting_b = sum(len(piece) for file in files for piece in file.backlog)
        while waiting_b > self._room_b:
            waiting_b -= max(files, key=lambda file: len(file.backlog)).drop_oldest()

    def _files(self) -> list[GrowingFile]:
        return [stream.file for _, stream, _ in self._streams] + [f for _, f in self._journals]
