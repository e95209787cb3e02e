"""The journal of changes: on disk before they are made, so that whoever comes next can undo them.

Every guardian has a file of its own, and locks it for as long as it lives. A file without a lock
is a leftover: its guardian was killed, or the power went. A line that has begun and not ended is
no line: what it tells of was not done yet.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

from joulewise.command.alive import boot_id
from joulewise.command.leftovers import ENDING, FOLDER
from joulewise.command.points import point
from joulewise.command.state import made
from joulewise.control.holds import Hold

_ASIDE: Final = ".damaged"
_LOCK: Final = "lock"
_FORMAT: Final = 1
# Whoever only reads a file holds its lock for a moment, too.
_PATIENCE_S: Final = 0.2
_LOOK_S: Final = 0.01
_UNREADABLE: Final = (ValueError, KeyError, TypeError, OverflowError, RecursionError)


class Journal:
    """The file of a guardian that lives.

    To be made :func:`one_at_a_time`: until it is locked, it looks like a leftover.
    """

    def __init__(self, state: Path) -> None:
        folder = made(made(state) / FOLDER)
        self.path = folder / f"{os.getpid()}-{secrets.token_hex(4)}{ENDING}"
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        self._open: set[str] = set()
        self._owed = b""
        self._size_b = 0
        try:
            os.fchmod(self._descriptor, 0o644)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            self._append(_header())
            _sync_folder(folder)
        except OSError:
            self._remove()
            raise
        self._header_b = self._size_b

    def begin(self, hold: Hold) -> None:
        """It is on disk when this returns, or an OSError."""
        self._append(_line(begin=hold.as_json()))
        self._open.add(hold.id)
        point("after-journal")

    def again(self, hold: Hold) -> None:
        """What a hold has become. Where the disk is full, it is written as soon as it can be.

        Until then what is there tells of more than is left to undo, which does no harm.
        """
        self._owe(_line(begin=hold.as_json()))

    def end(self, hold_id: str) -> None:
        """Nothing is left of the hold; told as soon as it can be, as in ``again``."""
        self._open.discard(hold_id)
        self._owe(_line(end=hold_id))
        if not self._open:  # a service would fill the disk over the years
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._header_b)
                self._size_b, self._owed = self._header_b, b""
                os.fsync(self._descriptor)

    def catch_up(self) -> None:
        """Write what could not be written before."""
        with suppress(OSError):
            self._append(b"")

    def close(self, *, leave: bool) -> None:
        """Let go of it; ``leave`` it where something could not be put back."""
        if leave:
            self.catch_up()
            os.close(self._descriptor)
        else:
            self._remove()

    def _owe(self, line: bytes) -> None:
        self._owed += line
        self.catch_up()

    def _append(self, line: bytes) -> None:
        """All that is owed and this line, or nothing."""
        data = self._owed + line
        if not data:
            return
        try:
            if os.pwrite(self._descriptor, data, self._size_b) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301
            os.fsync(self._descriptor)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size_b)
            raise
        self._size_b += len(data)
        self._owed = b""

    def _remove(self) -> None:
        with suppress(OSError):
            self.path.unlink()
        os.close(self._descriptor)


@dataclass(frozen=True)
class Kept:
    """A guardian's file, read by another. ``holds`` have not ended, in the order they began.

    ``is_damaged`` where there are lines that nobody can read.
    """

    path: Path
    boot_id: str
    pid: int
    holds: tuple[Hold, ...]
    is_live: bool
    node: str = ""
    is_damaged: bool = False
    format: int = _FORMAT

    @property
    def is_of_this_boot(self) -> bool:
        return self.boot_id == boot_id()

    @property
    def is_of_another_machine(self) -> bool:
        """A state folder may be in a home that many machines share."""
        return self.node not in {"", os.uname().nodename} and not self.is_of_this_boot

    @property
    def is_of_another_version(self) -> bool:
        return self.format != _FORMAT


def kept(state: Path) -> list[Kept]:
    """The files of all guardians, the oldest first, dead or alive; only those we can trust."""
    found = []
    for path in sorted((state / FOLDER).glob(f"*{ENDING}"), key=_age):
        with suppress(OSError), _opened(path, "rb") as file:
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


class Claimed:
    """A leftover that is ours alone."""

    def __init__(self, found: Kept, file: BinaryIO, data: bytes) -> None:
        self.found = found
        self._file = file
        self._whole_b = data.rfind(b"\n") + 1

    def end(self, left: Sequence[Hold]) -> None:
        """Only these holds are left to undo; where there are none, neither is the file."""
        if not left:
            if self.found.is_damaged:  # for whoever wants to know what it was
                self.found.path.replace(self.found.path.with_suffix(_ASIDE))
            else:
                self.found.path.unlink(missing_ok=True)
            return
        ids = {hold.id for hold in left}
        lines = [_line(end=hold.id) for hold in self.found.holds if hold.id not in ids]
        lines += [_line(begin=hold.as_json()) for hold in left]
        with suppress(OSError):  # then it tells of more than is left, as it did
            self._file.truncate(self._whole_b)
            self._file.seek(self._whole_b)
            self._file.write(b"".join(lines))
            self._file.flush()
            os.fsync(self._file.fileno())


@contextmanager
def claimed(leftover: Kept) -> Iterator[Claimed | None]:
    """A leftover for ourselves alone, as it is now; None where that cannot be had."""
    try:
        file = _opened(leftover.path, "r+b")
    except OSError:  # somebody else was quicker, or it is not ours to change
        yield None
        return
    with file:
        if not _lock(file.fileno(), fcntl.LOCK_EX, _PATIENCE_S) or not leftover.path.exists():
            yield None
        else:
            data = file.read()
            yield Claimed(_read(leftover.path, data, is_live=False), file, data)


@contextmanager
def one_at_a_time(state: Path) -> Iterator[None]:
    """Nobody else begins a lease or undoes leftovers meanwhile."""
    folder = made(made(state) / FOLDER)
    # Not for others to read: who can read a file can lock it.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    descriptor = os.open(folder / _LOCK, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _header() -> bytes:
    where = {"boot_id": boot_id(), "node": os.uname().nodename}
    return _line(format=_FORMAT, **where, pid=os.getpid(), began_s=time.time())


def _line(**content: Any) -> bytes:
    return json.dumps(content).encode() + b"\n"


def _read(path: Path, data: bytes, *, is_live: bool) -> Kept:
    header: Mapping[str, Any] = {}
    holds: dict[str, Hold] = {}
    is_damaged = False
    for line in data.split(b"\n")[:-1]:
        try:
            told = json.loads(line)
            if not header:
                header = {"boot_id": str(told["boot_id"]), "pid": int(told["pid"])}
                header |= {"node": str(told["node"]), "format": told["format"]}
            elif "begin" in told:
                hold = Hold.from_json(told["begin"])
                holds[hold.id] = hold
            else:
                holds.pop(told["end"], None)
        except _UNREADABLE:  # noqa: PERF203  # each line is for itself
            is_damaged = True
    return Kept(
        path,
        header.get("boot_id", ""),
        header.get("pid", 0),
        tuple(holds.values()),
        is_live,
        header.get("node", ""),
        is_damaged,
        header.get("format", _FORMAT),
    )


def _opened(path: Path, mode: Literal["rb", "r+b"]) -> BinaryIO:
    """A file that nobody but us or root can have written, or an OSError."""
    flags = os.O_RDONLY if mode == "rb" else os.O_RDWR
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    told = os.fstat(descriptor)
    others_write = told.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not stat.S_ISREG(told.st_mode) or told.st_uid not in {0, os.geteuid()} or others_write:
        os.close(descriptor)
        raise PermissionError(errno.EPERM, "not ours", str(path))
    return os.fdopen(descriptor, mode)


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
