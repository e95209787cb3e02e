"""The journal of changes: on disk before they are made, so that whoever comes next can undo them.

Every guardian has a file of its own, and another that it locks for as long as it lives. Without
the lock it is a leftover: its guardian was killed, or the power went. A line that has begun and
not ended is no line: what it tells of was not done yet.
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
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from joulewise.control.holds import Hold
from joulewise.process.failpoints import point
from joulewise.process.linux import boot_id, pid_namespace, started_ticks
from joulewise.process.state_dir import ENDING, FOLDER, LOCK, is_live, lock_of, made

_ASIDE: Final = ".damaged"
_FORMAT: Final = 1
# Whoever only reads a file holds its lock for a moment, too.
_PATIENCE_S: Final = 0.2
_LOOK_S: Final = 0.01
_SPARE_B: Final = 1 << 16
_STALE_S: Final = 60.0
_UNREADABLE: Final = (ValueError, KeyError, TypeError, OverflowError, RecursionError)


class Journal:
    """The file of a guardian that lives."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._holds: dict[str, Hold] = {}
        self._make()

    def begin(self, hold: Hold) -> None:
        """It is on disk when this returns, or an OSError."""
        self.renew()
        self._append(_line(begin=hold.as_json()))
        self._holds[hold.id] = hold
        point("after-journal")

    def again(self, hold: Hold) -> None:
        """What a hold has become. Where the disk is full, it is written as soon as it can be.

        Until then what is there tells of more than is left to undo, which does no harm.
        """
        self._holds[hold.id] = hold
        self._owe(_line(begin=hold.as_json()))

    def end(self, hold_id: str) -> None:
        """Nothing is left of the hold; told as soon as it can be, as in ``again``."""
        self._holds.pop(hold_id, None)
        self._owe(_line(end=hold_id))
        if not self._holds:  # a service would fill the disk over the years
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._header_b)
                self._size_b, self._owed = self._header_b, b""
                os.fsync(self._descriptor)

    def renew(self) -> None:
        """Write another one where somebody has deleted it, or most of it tells of what has ended.

        An OSError where that cannot be.
        """
        lock_path = lock_of(str(self.path))
        is_there = _is_at(self._descriptor, str(self.path)) and _is_at(self._lock, lock_path)
        if is_there and self._size_b <= 2 * self._made_b + _SPARE_B:
            return
        # A whole tree that is gone, as of a simulation that has ended, is not wanted back.
        self._state.parent.stat()
        old = self.path, self._descriptor, self._lock
        self._make()
        _discard(*old)

    def catch_up(self) -> None:
        """Write what could not be written before."""
        with suppress(OSError):
            self.renew()
            self._append(b"")

    def close(self, *, leave: bool) -> None:
        """Let go of it; ``leave`` it where something could not be put back."""
        if leave:
            self.catch_up()
            os.close(self._descriptor)
            os.close(self._lock)
        else:
            _discard(self.path, self._descriptor, self._lock)

    def _make(self) -> None:
        """A new file with all that is held, locked before anybody can see it."""
        folder = made(made(self._state) / FOLDER)
        path = folder / f"{os.getpid()}-{secrets.token_hex(4)}{ENDING}"
        header = _header()
        data = header + b"".join(_line(begin=hold.as_json()) for hold in self._holds.values())
        lock = _created(lock_of(str(path)), 0o600)
        descriptor = -1
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            descriptor = _created(str(path), 0o644)
            _write(descriptor, data, 0)
            _sync_folder(folder)
        except OSError:
            _discard(path, descriptor, lock)
            raise
        self.path, self._descriptor, self._lock = path, descriptor, lock
        self._header_b, self._owed = len(header), b""
        self._made_b = self._size_b = len(data)

    def _owe(self, line: bytes) -> None:
        self._owed += line
        self.catch_up()

    def _append(self, line: bytes) -> None:
        """All that is owed and this line, or nothing."""
        data = self._owed + line
        if data:
            _write(self._descriptor, data, self._size_b)
            self._size_b += len(data)
            self._owed = b""


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
    namespace: str = ""

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
        live = is_live(str(path))  # before it is read: what a guardian does last is in it then
        with suppress(OSError), _opened(path) as file:
            found.append(_read(path, file.read(), is_live=live))
    return found


def untrusted(state: Path) -> list[Path]:
    """Those of no living guardian that anybody may have written."""
    paths = sorted((state / FOLDER).glob(f"*{ENDING}"))
    return [path for path in paths if _is_distrusted(path) and not is_live(str(path))]


class Claimed:
    """A leftover that is ours alone."""

    def __init__(self, found: Kept, whole_b: int) -> None:
        self.found = found
        self._whole_b = whole_b

    def end(self, left: Sequence[Hold]) -> None:
        """Only these holds are left to undo; where there are none, neither is the file.

        An OSError where the file tells of more than that, as it did before.
        """
        path = self.found.path
        if left:
            if tuple(left) != self.found.holds:
                self._rewrite(left)
            return
        if self.found.is_damaged:  # for whoever wants to know what it was
            path.replace(path.with_suffix(_ASIDE))
        else:
            path.unlink(missing_ok=True)
        Path(lock_of(str(path))).unlink(missing_ok=True)

    def _rewrite(self, left: Sequence[Hold]) -> None:
        ids = {hold.id for hold in left}
        lines = [_line(end=hold.id) for hold in self.found.holds if hold.id not in ids]
        lines += [_line(begin=hold.as_json()) for hold in left]
        descriptor = os.open(self.found.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            os.ftruncate(descriptor, self._whole_b)
            _write(descriptor, b"".join(lines), self._whole_b)
        finally:
            os.close(descriptor)


@contextmanager
def claimed(leftover: Kept) -> Iterator[Claimed | None]:
    """A leftover for ourselves alone, as it is now; None where it is somebody else's or gone.

    Where nothing can be written or locked, it is ours all the same: knobs go first, and what two
    put back at once is back.
    """
    with ExitStack() as files:
        try:
            lock = _lock_to_claim(leftover.path)
        except OSError:
            lock = None
        if lock is not None:
            files.callback(os.close, lock)
        if lock is not None and not _is_locked(lock, _PATIENCE_S):
            yield None
            return
        try:
            file = files.enter_context(_opened(leftover.path))
        except FileNotFoundError:  # somebody else was quicker
            with suppress(OSError):
                Path(lock_of(str(leftover.path))).unlink()
            yield None
            return
        except OSError:
            yield None
            return
        data = file.read()
        whole_b = data.rfind(b"\n") + 1
        yield Claimed(_read(leftover.path, data, is_live=False), whole_b)


def sweep(state: Path) -> None:
    """Remove the locks of guardians that were killed before they had a journal."""
    for path in (state / FOLDER).glob(f"*{LOCK}"):
        journal = path.with_suffix(ENDING)
        with suppress(OSError):
            # A younger one may be of a guardian that is about to lock it.
            is_old = time.time() - path.stat().st_mtime > _STALE_S
            if is_old and not journal.exists() and not is_live(str(journal)):
                path.unlink()


def _header() -> bytes:
    where = {"boot_id": boot_id(), "node": os.uname().nodename, "namespace": pid_namespace()}
    process = {"pid": os.getpid(), "ticks": started_ticks(os.getpid())}
    return _line(format=_FORMAT, **where, **process, began_s=time.time())


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
                header |= {"namespace": str(told["namespace"])}
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
        header.get("namespace", ""),
    )


def _opened(path: Path) -> BinaryIO:
    """A file that nobody but us or root can have written, or an OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    told = os.fstat(descriptor)
    others_write = told.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not stat.S_ISREG(told.st_mode) or told.st_uid not in {0, os.geteuid()} or others_write:
        os.close(descriptor)
        raise PermissionError(errno.EPERM, "not ours", str(path))
    return os.fdopen(descriptor, "rb")


def _is_distrusted(path: Path) -> bool:
    try:
        _opened(path).close()
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _created(path: str, mode: int) -> int:
    """A new file, with that mode whatever the umask."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    os.fchmod(descriptor, mode)
    return descriptor


def _write(descriptor: int, data: bytes, offset_b: int) -> None:
    """All of it, on the disk, or nothing and an OSError."""
    try:
        if os.pwrite(descriptor, data, offset_b) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301
        os.fsync(descriptor)
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, offset_b)
        raise


def _discard(path: Path, *descriptors: int) -> None:
    """The journal before its lock: without one it would be a leftover."""
    for each in (path, Path(lock_of(str(path)))):
        with suppress(OSError):
            each.unlink()
    for descriptor in descriptors:
        with suppress(OSError):
            os.close(descriptor)


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except OSError:
        return False


def _lock_to_claim(journal: Path) -> int:
    path = lock_of(str(journal))
    try:
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError:  # to lock it, it need not be written
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)


def _is_locked(descriptor: int, patience_s: float) -> bool:
    """Whether nobody else has it. Where there are no locks, nobody has any."""
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # noqa: PERF203
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_LOOK_S)
        except OSError:
            return True
        else:
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
