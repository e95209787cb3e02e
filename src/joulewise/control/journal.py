"""The journal of changes: on disk before they are made, so that whoever comes next can undo them.

Every guardian has a file of its own, and locks it for as long as it lives. A file without a lock
is a leftover: its guardian was killed, or the power went.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from joulewise.command.alive import boot_id
from joulewise.command.leftovers import ENDING, FOLDER
from joulewise.command.points import point
from joulewise.control.holds import Hold

_LOCK: Final = "lock"
_FORMAT: Final = 1
# Whoever only reads a file holds its lock for a moment, too.
_PATIENCE_S: Final = 0.2
_LOOK_S: Final = 0.01


class Journal:
    """The file of a guardian that lives. Each line is on disk when the call returns.

    To be made :func:`one_at_a_time`: until it is locked, it looks like a leftover.
    """

    def __init__(self, state: Path) -> None:
        folder = state / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{os.getpid()}-{secrets.token_hex(4)}{ENDING}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._descriptor = os.open(self.path, flags, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            header = {"format": _FORMAT, "boot_id": boot_id(), "pid": os.getpid()}
            self._append({**header, "began_s": time.time()})
            _sync_folder(folder)
        except OSError:
            self._remove()
            raise

    def begin(self, hold: Hold) -> None:
        self._append({"begin": hold.as_json()})
        point("after-journal")

    def end(self, hold_id: str) -> None:
        self._append({"end": hold_id})

    def close(self, *, leave: bool) -> None:
        """Let go of it; ``leave`` it where something could not be put back."""
        if leave:
            os.close(self._descriptor)
        else:
            self._remove()

    def _append(self, line: Mapping[str, Any]) -> None:
        data = json.dumps(line).encode() + b"\n"
        size_b = os.fstat(self._descriptor).st_size
        if os.write(self._descriptor, data) != len(data):  # the disk is full
            os.ftruncate(self._descriptor, size_b)
            raise OSError(28, os.strerror(28))
        os.fsync(self._descriptor)

    def _remove(self) -> None:
        with suppress(OSError):
            self.path.unlink()
        os.close(self._descriptor)


@dataclass(frozen=True)
class Kept:
    """A guardian's file, read by another. ``holds`` have not ended, in the order they began."""

    path: Path
    boot_id: str
    pid: int
    holds: tuple[Hold, ...]
    is_live: bool

    @property
    def is_of_this_boot(self) -> bool:
        return self.boot_id == boot_id()


def kept(state: Path) -> list[Kept]:
    """The files of all guardians, the oldest first, dead or alive."""
    found = []
    for path in sorted((state / FOLDER).glob(f"*{ENDING}"), key=_age):
        with suppress(OSError), path.open("rb") as file:
            is_live = not _lock(file.fileno(), fcntl.LOCK_SH)
            found.append(_read(path, file.read(), is_live=is_live))
    return found


def has_any(state: Path) -> bool:
    """Whether there is anything to look into."""
    try:
        with os.scandir(state / FOLDER) as entries:
            return any(entry.name.endswith(ENDING) for entry in entries)
    except OSError:
        return False


@contextmanager
def claimed(leftover: Kept) -> Iterator[Kept | None]:
    """A leftover for ourselves alone, as it is now; None where somebody else was quicker."""
    try:
        file = leftover.path.open("r+b")
    except FileNotFoundError:
        yield None
        return
    with file:
        if not _lock(file.fileno(), fcntl.LOCK_EX, _PATIENCE_S) or not leftover.path.exists():
            yield None
        else:
            yield _read(leftover.path, file.read(), is_live=False)


@contextmanager
def one_at_a_time(state: Path) -> Iterator[None]:
    """Nobody else begins a lease or undoes leftovers meanwhile."""
    folder = state / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read(path: Path, data: bytes, *, is_live: bool) -> Kept:
    """Half a line at the end is a change that was not made yet."""
    header: Mapping[str, Any] = {}
    holds: dict[str, Hold] = {}
    for line in data.split(b"\n")[:-1]:
        with suppress(ValueError, KeyError, TypeError):
            told = json.loads(line)
            if "format" in told:
                header = told
            elif "begin" in told:
                hold = Hold.from_json(told["begin"])
                holds[hold.id] = hold
            else:
                holds.pop(told["end"], None)
    return Kept(
        path, header.get("boot_id", ""), header.get("pid", 0), tuple(holds.values()), is_live
    )


def _lock(descriptor: int, kind: int, patience_s: float = 0.0) -> bool:
    deadline = time.monotonic() + patience_s
    while not _try_lock(descriptor, kind):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_S)
    return True


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
