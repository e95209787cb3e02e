"""One guardian a knob on the whole machine, wherever each of them keeps its journal.

A claim is an abstract address of a Unix socket that is made from the device and the knob. Only one
process can have it, and it is free again when that process has ended, however that came. It holds
wherever the network namespace is the same.

Anybody can bind any such address, so it does not bind root, who would be kept from a lease by any
user. Root's claim is the lock on a file in a folder that only root can enter as well, which holds
wherever that folder is the same. Of those who have the address, root believes root, and the owner
of the file behind the knob: others could not turn it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import socket
import struct
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from joulewise.control import journal
from joulewise.control.holds import Hold
from joulewise.control.messages import named, user, valued, who
from joulewise.control.status import has_ended
from joulewise.data import Knob, KnobInfo
from joulewise.devices import Device
from joulewise.errors import DeviceError, HeldError, JoulewiseError

Where = tuple[str, Knob]
By = tuple[int, int]
"""The pid and the uid of a process; 0 and -1 where they are not told."""
RESTORE: Final = "see what `joulewise doctor` says of the device, then run `joulewise restore`"
_TRIES: Final = 3
_BACKLOG: Final = 64
_UNTOLD: Final[By] = (0, -1)
_RUN: Final = Path("/run/joulewise")  # emptied by a reboot, as the drivers are
_LOCKS: Final = "knobs"
_PID_B: Final = 32  # more than the decimal digits of any pid


def lock_folder() -> Path | None:
    """Where root locks knobs; None for others, and in a simulation, whose devices are its own."""
    if os.geteuid() != 0 or os.environ.get("JOULEWISE_SIM"):
        return None
    folder = _RUN / _LOCKS
    try:
        _RUN.mkdir(mode=0o755, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError:  # a read-only system
        return None
    return folder


@dataclass(frozen=True)
class _Claim:
    """What holds one: descriptors of the bound socket and of the locked file, or None."""

    line: int | None
    lock: int | None
    path: Path | None

    def release(self) -> None:
        if self.line is not None:
            os.close(self.line)
        if self.lock is not None and self.path is not None:
            with suppress(OSError):
                self.path.unlink()  # before the lock: who waits for it sees that it is gone
            os.close(self.lock)


class Claims:
    """What one guardian has claimed; ``locks`` is the folder of root's lock files."""

    def __init__(self, locks: Path | None = None) -> None:
        self._locks = locks
        self._held: dict[Where, _Claim] = {}

    def take(self, where: Where, trusted: Collection[int] | None = None) -> By | None:
        """None where it is ours now, else who has it.

        ``trusted`` are the users who may turn the knob: others are not believed to have it, where
        there is a lock of root's to have instead. None: all are believed.
        """
        if where in self._held:
            return None
        path = self._locks / _name(where) if self._locks else None
        lock = _lock(path) if path else None
        if isinstance(lock, tuple):
            return lock
        line, taken_by = _bound_or_taken(where)
        is_believed = lock is None or trusted is None or (taken_by or _UNTOLD)[1] in trusted
        if line is None and is_believed:
            _Claim(None, lock, path).release()
            return taken_by
        self._held[where] = _Claim(line, lock, path)
        return None

    def keep(self, wanted: Collection[Where]) -> None:
        """Let go of all others."""
        for where in self._held.keys() - wanted:
            self._held.pop(where).release()

    def tidy(self) -> None:
        """Who has asked whose it is stands in a queue, which would be full one day."""
        for claim in self._held.values():
            if claim.line is None:
                continue
            line = socket.socket(fileno=claim.line)
            with suppress(OSError):
                for _ in range(_BACKLOG):
                    line.accept()[0].close()
            line.detach()


def claim(state: Path, own: Path | None, claims: Claims, device: Device, knob: Knob) -> None:
    """Have a knob, or raise who has it; ``own`` is our journal in ``state``."""
    where = device.info.uid, knob
    try:
        # Before the journals are looked into: what comes into them from now on is not of it.
        taken_by = claims.take(where, _trusted(device, knob))
    except OSError as error:
        raise JoulewiseError(
            f"{named(device.info.key, knob)} cannot be claimed: {error.strerror}",
            "nothing was turned; see to it that Unix sockets can be opened here",
        ) from None
    for other in journal.kept(state):
        if other.path == own or not other.is_of_this_boot:
            continue
        for hold in other.holds:
            if any(change.where == where for change in hold.changes):
                raise _theirs(other, hold, device, knob)
    if taken_by:
        pid, uid = taken_by
        by = f"pid {pid} of user {user(uid)}" if pid else "a process that cannot be seen from here"
        raise HeldError(
            f"{named(device.info.key, knob)} is held by {by}",
            "its leases are in another state folder; it is free when that process ends",
        )


def _trusted(device: Device, knob: Knob) -> Collection[int] | None:
    """Who may turn it: root, and whom the file behind it belongs to. None: anybody may."""
    info = device.knobs.get(knob)
    if device.info.is_simulated or not isinstance(info, KnobInfo):
        return None
    return {0, os.geteuid(), info.owner}


def held(hold: Hold, device: Device, knob: Knob) -> HeldError:
    where = device.info.uid, knob
    (value,) = (change.value for change in hold.changes if change.where == where)
    return HeldError(
        f"{named(device.info.key, knob)} is held at {valued(knob, value)} by {who(hold.holder)}",
        "it is free when that process ends; `joulewise doctor` shows all that is held",
    )


def not_back(device: Device, knob: Knob) -> DeviceError:
    what = f"{named(device.info.key, knob)} could not be put back after its last lease"
    return DeviceError(what, RESTORE)


def _theirs(other: journal.Kept, hold: Hold, device: Device, knob: Knob) -> DeviceError:
    if not other.is_live:
        return not_back(device, knob)
    if not has_ended(other, hold.holder):
        return held(hold, device, knob)
    return HeldError(
        f"{named(device.info.key, knob)} is being put back after {who(hold.holder)}",
        "try again in a moment; `joulewise doctor` says how it stands",
    )


def _lock(path: Path) -> int | By | None:
    """A descriptor with the lock of that file, or who has it; None where files have no locks."""
    for _ in range(_TRIES):
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(lock, path):
                os.ftruncate(lock, 0)
                os.pwrite(lock, str(os.getpid()).encode(), 0)
                return lock
        except BlockingIOError:
            pid = os.pread(lock, _PID_B, 0)
            os.close(lock)
            return (int(pid), 0) if pid.isdigit() else _UNTOLD
        except OSError:
            os.close(lock)
            return None
        os.close(lock)  # its holder has removed it meanwhile
    return _UNTOLD


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _bound_or_taken(where: Where) -> tuple[int | None, By | None]:
    """The descriptor of a socket that is bound to the address, or who has it."""
    for _ in range(_TRIES):
        line = _bound(where)
        if line is not None:
            return line.detach(), None
        if taken_by := _peer(where):  # else it was let go of meanwhile
            return None, taken_by
    return None, _UNTOLD


def _bound(where: Where) -> socket.socket | None:
    """None where somebody has it."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.setblocking(False)
        line.bind(_address(where))
        line.listen(_BACKLOG)
    except OSError as error:
        line.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return line


def _peer(where: Where) -> By | None:
    """Who has it; None where nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.setblocking(False)
        try:
            line.connect(_address(where))
        except ConnectionRefusedError:
            return None
        except OSError:
            return _UNTOLD
        told = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII"))
        pid, uid, _ = struct.unpack("iII", told)
        return pid, uid


def _address(where: Where) -> bytes:
    return b"\0joulewise-knob-" + _name(where).encode()


def _name(where: Where) -> str:
    # Simulated devices have the same names in every simulation.
    words = "\0".join((os.environ.get("JOULEWISE_SIM", ""), where[0], where[1].value))
    return hashlib.sha256(os.fsencode(words)).hexdigest()[:32]
