"""The journal: changes are on disk before they are made, so that the next process can undo them.

A write-ahead log. Every guardian has a file of its own, and a lock file that it holds for as long
as it lives. A journal without that lock is a leftover: its guardian was killed, or the power
failed. An incomplete last line is ignored: its change was not made yet.
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
from joulewise.process.failpoints import failpoint
from joulewise.process.linux import boot_id, pid_namespace, started_ticks
from joulewise.process.state_dir import ENDING, FOLDER, LOCK, is_live, lock_of, make_state_folder

_DAMAGED_ENDING: Final = ".damaged"
_FORMAT_VERSION: Final = 1  # in each journal's header; other versions are left to their joulewise
# Chosen: whoever only checks a lock holds it for a moment, too. Doubled, a leftover that another
# process restores is waited for twice as long.
_LOCK_DEADLINE_S: Final = 0.2
_POLL_S: Final = 0.01
# Chosen: a journal is rewritten when it has this much more than twice its live content. Doubled, a
# service's file grows to twice the size.
_MAX_STALE_B: Final = 1 << 16
_STALE_LOCK_S: Final = 60.0
_PARSE_ERRORS: Final = (ValueError, KeyError, TypeError, OverflowError, RecursionError)


class Journal:
    """The journal of this process, which is a guardian."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._holds: dict[str, Hold] = {}
        self._create()

    def begin(self, hold: Hold) -> None:
        """Write a new hold; it is on disk when this returns, or OSError is raised."""
        self.renew()
        self._append(_line(begin=hold.as_json()))
        self._holds[hold.id] = hold
        failpoint("after-journal")

    def update(self, hold: Hold) -> None:
        """Write the new state of a hold. On a full disk it is written as soon as it can be.

        Until then the journal lists more than is left to undo, which does no harm.
        """
        self._holds[hold.id] = hold
        self._queue(_line(begin=hold.as_json()))

    def end(self, hold_id: str) -> None:
        """Write that nothing is left of the hold, as soon as it can be, as in ``update``."""
        self._holds.pop(hold_id, None)
        self._queue(_line(end=hold_id))
        if not self._holds:  # otherwise a service would fill the disk over the years
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._header_b)
                self._size_b, self._pending = self._header_b, b""
                os.fsync(self._descriptor)

    def renew(self) -> None:
        """Write a new file where it was deleted, or most of it is about holds that have ended.

        Raises OSError where that fails.
        """
        lock_path = lock_of(str(self.path))
        is_there = _is_same_file(self._descriptor, str(self.path)) and _is_same_file(
            self._lock, lock_path
        )
        if is_there and self._size_b <= 2 * self._created_b + _MAX_STALE_B:
            return
        # A folder that is gone altogether, as after a simulation, is not created again.
        self._state.parent.stat()
        old = self.path, self._descriptor, self._lock
        self._create()
        _delete(*old)

    def catch_up(self) -> None:
        """Write what could not be written earlier."""
        with suppress(OSError):
            self.renew()
            self._append(b"")

    def close(self, *, leave: bool) -> None:
        """Close the journal; ``leave`` the file where something could not be restored."""
        if leave:
            self.catch_up()
            os.close(self._descriptor)
            os.close(self._lock)
        else:
            _delete(self.path, self._descriptor, self._lock)

    def _create(self) -> None:
        """Create a file with everything that is held, locked before anybody can see it."""
        folder = make_state_folder(make_state_folder(self._state) / FOLDER)
        path = folder / f"{os.getpid()}-{secrets.token_hex(4)}{ENDING}"
        header = _header()
        data = header + b"".join(_line(begin=hold.as_json()) for hold in self._holds.values())
        lock = _create_file(lock_of(str(path)), 0o600)
        descriptor = -1
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            descriptor = _create_file(str(path), 0o644)
            _write(descriptor, data, 0)
            _sync_folder(folder)
        except OSError:
            _delete(path, descriptor, lock)
            raise
        self.path, self._descriptor, self._lock = path, descriptor, lock
        self._header_b, self._pending = len(header), b""
        self._created_b = self._size_b = len(data)

    def _queue(self, line: bytes) -> None:
        self._pending += line
        self.catch_up()

    def _append(self, line: bytes) -> None:
        """Write all pending lines and this one, or nothing and raise OSError."""
        data = self._pending + line
        if data:
            _write(self._descriptor, data, self._size_b)
            self._size_b += len(data)
            self._pending = b""


@dataclass(frozen=True)
class StoredJournal:
    """A journal as read from disk. ``holds`` have not ended, in the order they began.

    ``is_damaged`` where it has lines that cannot be parsed.
    """

    path: Path
    boot_id: str
    pid: int
    holds: tuple[Hold, ...]
    is_live: bool
    node: str = ""
    is_damaged: bool = False
    format: int = _FORMAT_VERSION
    namespace: str = ""

    @property
    def is_of_this_boot(self) -> bool:
        return self.boot_id == boot_id()

    @property
    def is_of_another_machine(self) -> bool:
        """A state folder may be in a home folder that many machines share."""
        return self.node not in {"", os.uname().nodename} and not self.is_of_this_boot

    @property
    def is_of_another_version(self) -> bool:
        return self.format != _FORMAT_VERSION


def read_journals(state: Path) -> list[StoredJournal]:
    """The journals of all guardians, dead or alive, oldest first; only those we can trust."""
    journals = []
    for path in sorted((state / FOLDER).glob(f"*{ENDING}"), key=_modified_s):
        live = is_live(str(path))  # before reading: a guardian's last change is in it then
        with suppress(OSError), _open_trusted(path) as file:
            journals.append(_read(path, file.read(), is_live=live))
    return journals


def list_untrusted(state: Path) -> list[Path]:
    """The journals without a living guardian that another user may have written."""
    paths = sorted((state / FOLDER).glob(f"*{ENDING}"))
    return [path for path in paths if _is_untrusted(path) and not is_live(str(path))]


class ClaimedJournal:
    """A leftover journal that no other process restores."""

    def __init__(self, content: StoredJournal, complete_b: int) -> None:
        self.content = content
        self._complete_b = complete_b

    def end(self, left: Sequence[Hold]) -> None:
        """Keep only the holds that are ``left`` to undo; delete the file where there are none.

        Raises OSError where the file could not be changed.
        """
        path = self.content.path
        if left:
            if tuple(left) != self.content.holds:
                self._rewrite(left)
            return
        if self.content.is_damaged:  # kept for inspection
            path.replace(path.with_suffix(_DAMAGED_ENDING))
        else:
            path.unlink(missing_ok=True)
        Path(lock_of(str(path))).unlink(missing_ok=True)

    def _rewrite(self, left: Sequence[Hold]) -> None:
        ids = {hold.id for hold in left}
        lines = [_line(end=hold.id) for hold in self.content.holds if hold.id not in ids]
        lines += [_line(begin=hold.as_json()) for hold in left]
        descriptor = os.open(self.content.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            os.ftruncate(descriptor, self._complete_b)
            _write(descriptor, b"".join(lines), self._complete_b)
        finally:
            os.close(descriptor)


@contextmanager
def claim_journal(leftover: StoredJournal) -> Iterator[ClaimedJournal | None]:
    """Claim a leftover, as it is now; None where another process has it or it is gone.

    Where nothing can be written or locked, it is claimed anyway: restoring settings comes first,
    and two processes that restore the same value do no harm.
    """
    with ExitStack() as files:
        try:
            lock = _open_lock(leftover.path)
        except OSError:
            lock = None
        if lock is not None:
            files.callback(os.close, lock)
        if lock is not None and not _take_lock(lock, _LOCK_DEADLINE_S):
            yield None
            return
        try:
            file = files.enter_context(_open_trusted(leftover.path))
        except FileNotFoundError:  # another process was faster
            with suppress(OSError):
                Path(lock_of(str(leftover.path))).unlink()
            yield None
            return
        except OSError:
            yield None
            return
        data = file.read()
        complete_b = data.rfind(b"\n") + 1
        yield ClaimedJournal(_read(leftover.path, data, is_live=False), complete_b)


def remove_stale_locks(state: Path) -> None:
    """Remove the locks of guardians that were killed before they had a journal."""
    for path in (state / FOLDER).glob(f"*{LOCK}"):
        journal = path.with_suffix(ENDING)
        with suppress(OSError):
            # A recent one may belong to a guardian that is about to lock it.
            is_old = time.time() - path.stat().st_mtime > _STALE_LOCK_S
            if is_old and not journal.exists() and not is_live(str(journal)):
                path.unlink()


def _header() -> bytes:
    where = {"boot_id": boot_id(), "node": os.uname().nodename, "namespace": pid_namespace()}
    process = {"pid": os.getpid(), "ticks": started_ticks(os.getpid())}
    return _line(format=_FORMAT_VERSION, **where, **process, began_s=time.time())


def _line(**content: Any) -> bytes:
    return json.dumps(content).encode() + b"\n"


def _read(path: Path, data: bytes, *, is_live: bool) -> StoredJournal:
    header: Mapping[str, Any] = {}
    holds: dict[str, Hold] = {}
    is_damaged = False
    for line in data.split(b"\n")[:-1]:
        try:
            record = json.loads(line)
            if not header:
                header = {"boot_id": str(record["boot_id"]), "pid": int(record["pid"])}
                header |= {"node": str(record["node"]), "format": record["format"]}
                header |= {"namespace": str(record["namespace"])}
            elif "begin" in record:
                hold = Hold.from_json(record["begin"])
                holds[hold.id] = hold
            else:
                holds.pop(record["end"], None)
        except _PARSE_ERRORS:  # noqa: PERF203  # the other lines are still of use
            is_damaged = True
    return StoredJournal(
        path,
        header.get("boot_id", ""),
        header.get("pid", 0),
        tuple(holds.values()),
        is_live,
        header.get("node", ""),
        is_damaged,
        header.get("format", _FORMAT_VERSION),
        header.get("namespace", ""),
    )


def _open_trusted(path: Path) -> BinaryIO:
    """Open a file that only we or root can have written; OSError for any other."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    status = os.fstat(descriptor)
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not stat.S_ISREG(status.st_mode) or status.st_uid not in {0, os.geteuid()} or others_write:
        os.close(descriptor)
        raise PermissionError(errno.EPERM, "not ours", str(path))
    return os.fdopen(descriptor, "rb")


def _is_untrusted(path: Path) -> bool:
    try:
        _open_trusted(path).close()
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _create_file(path: str, mode: int) -> int:
    """Create a file with that mode, whatever the umask."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    os.fchmod(descriptor, mode)
    return descriptor


def _write(descriptor: int, data: bytes, offset_b: int) -> None:
    """Write and sync all of the data, or nothing and raise OSError."""
    try:
        if os.pwrite(descriptor, data, offset_b) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301
        os.fsync(descriptor)
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, offset_b)
        raise


def _delete(path: Path, *descriptors: int) -> None:
    """Delete the journal, then its lock: without the lock it would be a leftover."""
    for file in (path, Path(lock_of(str(path)))):
        with suppress(OSError):
            file.unlink()
    for descriptor in descriptors:
        with suppress(OSError):
            os.close(descriptor)


def _is_same_file(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except OSError:
        return False


def _open_lock(journal: Path) -> int:
    path = lock_of(str(journal))
    try:
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError:  # read access is enough to lock it
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)


def _take_lock(descriptor: int, patience_s: float) -> bool:
    """Whether the lock was taken; True where the file system has no locks."""
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # noqa: PERF203
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_POLL_S)
        except OSError:
            return True
        else:
            return True


def _modified_s(path: Path) -> float:
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
