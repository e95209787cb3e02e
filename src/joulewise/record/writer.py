"""The thread that writes, so that a slow or full disk delays nothing else.

It writes rows of streams, lines of JSON (``PendingLines``) and, through its callback, run.json with
the recorder's notes (``RecorderNotes``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import Final

from joulewise.process.failpoints import failpoint
from joulewise.record.statistics import RunningTotal, StreamStatistics
from joulewise.store.arrow_stream import ColumnBuffer, RowBuffer, Stream
from joulewise.store.files import GrowingFile

_MOST_NOTES: Final = 500  # in run.json (chosen): a fault that repeats must not fill it
_ROUND_S: Final = 1.0  # between two rounds of writing (chosen): what a kill loses of the rows
# The first round is right after the readings of once a second, when the caches are still warm.
_FIRST_S: Final = 0.05
_SYNC_ALL: Final = (
    5  # rounds (chosen): what a power cut may cost of the streams that are not urgent
)
_BACKLOG_B: Final = 64 << 20  # that a full disk does not take (chosen): a day and more of one GPU


class PendingLines:
    """Lines of JSON that any thread adds and the writer takes; at most ``limit`` in all."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._lock = threading.Lock()
        self._lines: list[str] = []

    def add(self, line: str) -> bool:
        """Add a line; False where the limit is reached."""
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


class RecorderNotes:
    """What readers of the run must know, added by any thread; they go into run.json."""

    def __init__(self, now_ns: Callable[[], int] = monotonic_ns) -> None:
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._all: list[dict[str, str]] = []
        self._once: set[tuple[str, str]] = set()

    def add(self, code: str, message: str, device: str = "", **more: str) -> None:
        with self._lock:
            if len(self._all) < _MOST_NOTES:
                note = {"code": code, "message": message, "t_ns": str(self._now_ns()), **more}
                self._all.append(note | ({"device": device} if device else {}))

    def once(self, code: str, message: str, device: str = "") -> None:
        """Add a note unless there is one with this code for this device."""
        with self._lock:
            is_known = (code, device) in self._once
            self._once.add((code, device))
        if not is_known:
            self.add(code, message, device)

    def all(self) -> tuple[dict[str, str], ...]:
        with self._lock:
            return tuple(self._all)


class Writer:
    """Takes rows and lines about every second and appends them to their files.

    What a full disk does not take waits in memory and is tried again; beyond ``backlog_b`` bytes
    the oldest is given up. ``after_round`` is called after each round. Making the files durable is
    a thread of its own, because a disk may be slow at that: what the kernel has already survives a
    kill of this process.
    """

    def __init__(
        self, notes: RecorderNotes, after_round: Callable[[], None], *, backlog_b: int = _BACKLOG_B
    ) -> None:
        self._notes = notes
        self._after_round = after_round
        self._backlog_b = backlog_b
        self._streams: list[
            tuple[RowBuffer | ColumnBuffer, Stream, tuple[StreamStatistics | RunningTotal, ...]]
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
        *consumers: StreamStatistics | RunningTotal,
        is_urgent: bool = False,
    ) -> None:
        """Write these rows to a stream, and hand them to ``consumers``.

        ``is_urgent``: a power cut must cost 1 s at most.
        """
        self._streams.append((rows, stream, consumers))
        if is_urgent:
            self._urgent.append(stream.file)

    def add_journal(self, journal: PendingLines, file: GrowingFile) -> None:
        """Write these lines to a file."""
        self._journals.append((journal, file))

    def start(self) -> None:
        self._thread.start()
        self._syncer.start()

    def end(self) -> None:
        """Write what is left and make it durable, as far as the disk allows."""
        self._over = True
        self._awaited.set()
        self._thread.join()
        self._written.set()
        self._syncer.join()
        self._for_each(GrowingFile.sync, self._files())
        for file in self._files():
            file.close()

    @property
    def prefixes(self) -> dict[Path, list[tuple[int, int]]]:
        """The checksums of what was written so far, by file."""
        return {file.path: file.prefixes for file in self._files() if file.prefixes}

    def wake(self) -> None:
        """Call ``after_round`` now; rows are written at the next round."""
        self._awaited.set()

    def write(self) -> None:
        """Write all that waits. Never raises: what fails is noted, and tried again next time."""
        with self._lock:
            self._take()
            self._for_each(GrowingFile.flush, self._files())
            self._drop_oldest()
        failpoint("after-batch")
        self._written.set()

    def _take(self) -> None:
        for rows, stream, consumers in self._streams:
            batch = rows.take()
            if batch is not None:
                stream.add(batch)
                for consumer in consumers:
                    consumer.add(batch)
        for journal, file in self._journals:
            lines = journal.take()
            if lines:
                file.add(lines)

    def _run(self) -> None:
        next_s = monotonic() + _FIRST_S
        while not self._over:
            if not self._awaited.wait(max(0.0, next_s - monotonic())):
                next_s = max(next_s + _ROUND_S, monotonic())
                self.write()
            self._awaited.clear()
            self._after_round()
        self.write()
        self._after_round()

    def _sync(self) -> None:
        while not self._over:
            self._written.wait()
            self._written.clear()
            self._rounds += 1
            self._for_each(
                GrowingFile.sync, self._urgent if self._rounds % _SYNC_ALL else self._files()
            )

    def _for_each(self, action: Callable[[GrowingFile], None], files: list[GrowingFile]) -> None:
        for file in files:
            try:
                action(file)
            except OSError as error:  # noqa: PERF203  # other files may still be written
                self._notes.once("not_stored", f"{file.path.name}: {error.strerror}")

    def _drop_oldest(self) -> None:
        """Give up the oldest pieces of the longest backlog while there is too much."""
        files = self._files()
        waiting_b = sum(len(piece) for file in files for piece in file.backlog)
        while waiting_b > self._backlog_b:
            waiting_b -= max(files, key=lambda file: len(file.backlog)).drop_oldest()

    def _files(self) -> list[GrowingFile]:
        return [stream.file for _, stream, _ in self._streams] + [f for _, f in self._journals]
