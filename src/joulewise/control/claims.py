"""Claims: one guardian for each setting on the whole machine, whatever its state folder.

A claim is an abstract Unix socket address (unix(7)) named after the device and the control. Only
one process can bind it, and the kernel frees it when that process has ended in whatever way. It
holds within a network namespace.

Any user can bind any such address, and could keep root from a lease. Root therefore also locks a
file in a folder that only root can enter. Where somebody else has bound the address, root respects
root and the owner of the file behind the control: others could not change it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import socket
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from joulewise.control import journal
from joulewise.control.holds import Hold
from joulewise.control.messages import describe_holder, format_value, setting_name, user_name
from joulewise.control.status import is_holder_gone
from joulewise.data import ControlInfo, ControlKind
from joulewise.devices import Device
from joulewise.errors import DeviceError, HeldError, JoulewiseError
from joulewise.process.json_lines import peer_credentials

SettingId = tuple[str, ControlKind]
ProcessOwner = tuple[int, int]
"""Pid and uid of a process; 0 and -1 where they are unknown."""
RESTORE_HINT: Final = "run `joulewise doctor` to see why, then `joulewise restore`"
# Chosen: a claim that is released while we try to take it is free at the next try.
_MAX_TRIES: Final = 3
# Chosen: processes that ask who has a claim, between two calls of ``drain_queue`` a second apart.
_MAX_QUEUE: Final = 64
_UNKNOWN_OWNER: Final[ProcessOwner] = (0, -1)
_RUN_FOLDER: Final = Path("/run/joulewise")  # emptied by a reboot, as the drivers are
_LOCK_FOLDER: Final = "knobs"
_PID_B: Final = 32  # more than the decimal digits of any pid


def lock_folder() -> Path | None:
    """Where root locks settings; None for other users, and in a simulation."""
    if os.geteuid() != 0 or os.environ.get("JOULEWISE_SIM"):
        return None
    folder = _RUN_FOLDER / _LOCK_FOLDER
    try:
        _RUN_FOLDER.mkdir(mode=0o755, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError:  # a read-only system
        return None
    return folder


@dataclass(frozen=True)
class _Claim:
    """Descriptors of the bound socket and of the locked file; None where there is none."""

    listener: int | None
    lock: int | None
    path: Path | None

    def release(self) -> None:
        if self.listener is not None:
            os.close(self.listener)
        if self.lock is not None and self.path is not None:
            with suppress(OSError):
                self.path.unlink()  # before the lock is freed: whoever waits sees that it is gone
            os.close(self.lock)


class Claims:
    """The claims of one guardian; ``locks`` is the folder of root's lock files."""

    def __init__(self, locks: Path | None = None) -> None:
        self._locks = locks
        self._held: dict[SettingId, _Claim] = {}

    def take(
        self, setting: SettingId, trusted: Collection[int] | None = None
    ) -> ProcessOwner | None:
        """Take a claim: None on success, otherwise its owner.

        ``trusted`` are the users who may change the setting; the claim of another one is ignored
        where root's lock can be taken instead. None: all are trusted.
        """
        if setting in self._held:
            return None
        path = self._locks / _name(setting) if self._locks else None
        lock = _lock(path) if path else None
        if isinstance(lock, tuple):
            return lock
        listener, owner = _bind_or_find_owner(setting)
        is_believed = lock is None or trusted is None or (owner or _UNKNOWN_OWNER)[1] in trusted
        if listener is None and is_believed:
            _Claim(None, lock, path).release()
            return owner
        self._held[setting] = _Claim(listener, lock, path)
        return None

    def keep(self, wanted: Collection[SettingId]) -> None:
        """Release all claims but these."""
        for setting in self._held.keys() - wanted:
            self._held.pop(setting).release()

    def drain_queue(self) -> None:
        """Accept and close the connections of processes that asked whose a claim is."""
        for claim in self._held.values():
            if claim.listener is None:
                continue
            listener = socket.socket(fileno=claim.listener)
            with suppress(OSError):
                for _ in range(_MAX_QUEUE):
                    listener.accept()[0].close()
            listener.detach()


def claim(
    state: Path, own: Path | None, claims: Claims, device: Device, control: ControlKind
) -> None:
    """Claim a setting, or raise HeldError; ``own`` is our journal in ``state``."""
    setting = device.info.uid, control
    try:
        # Before the journals are read: from now on nobody adds this setting to them.
        owner = claims.take(setting, _find_trusted(device, control))
    except OSError as error:
        raise JoulewiseError(
            f"{setting_name(device.info.key, control)} cannot be claimed: {error.strerror}",
            "nothing was changed; make sure that Unix sockets can be opened here",
        ) from None
    for stored in journal.read_journals(state):
        if stored.path == own or not stored.is_of_this_boot:
            continue
        for hold in stored.holds:
            if any(change.setting == setting for change in hold.changes):
                raise _other_holder_error(stored, hold, device, control)
    if owner:
        pid, uid = owner
        by = (
            f"pid {pid} of user {user_name(uid)}"
            if pid
            else "a process that cannot be seen from here"
        )
        raise HeldError(
            f"{setting_name(device.info.key, control)} is held by {by}",
            "it is free when that process ends; its leases are in another state folder",
        )


def _find_trusted(device: Device, control: ControlKind) -> Collection[int] | None:
    """The users who may change it: root, and the owner of its file. None: anybody may."""
    info = device.controls.get(control)
    if device.info.is_simulated or not isinstance(info, ControlInfo):
        return None
    return {0, os.geteuid(), info.owner}


def held_error(hold: Hold, device: Device, control: ControlKind) -> HeldError:
    setting = device.info.uid, control
    (value,) = (change.value for change in hold.changes if change.setting == setting)
    return HeldError(
        f"{setting_name(device.info.key, control)} is held at {format_value(control, value)}"
        f" by {describe_holder(hold.holder)}",
        "it is free when that process ends; `joulewise doctor` shows all leases",
    )


def not_restored_error(device: Device, control: ControlKind) -> DeviceError:
    return DeviceError(
        f"{setting_name(device.info.key, control)} could not be restored after its last lease",
        RESTORE_HINT,
    )


def _other_holder_error(
    stored: journal.StoredJournal, hold: Hold, device: Device, control: ControlKind
) -> DeviceError:
    if not stored.is_live:
        return not_restored_error(device, control)
    if not is_holder_gone(stored, hold.holder):
        return held_error(hold, device, control)
    return HeldError(
        f"{setting_name(device.info.key, control)} is being restored"
        f" after {describe_holder(hold.holder)}",
        "try again in a moment; `joulewise doctor` shows its state",
    )


def _lock(path: Path) -> int | ProcessOwner | None:
    """A descriptor with the lock of that file, or its owner; None where files have no locks."""
    for _ in range(_MAX_TRIES):
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_same_file(lock, path):
                os.ftruncate(lock, 0)
                os.pwrite(lock, str(os.getpid()).encode(), 0)
                return lock
        except BlockingIOError:
            pid = os.pread(lock, _PID_B, 0)
            os.close(lock)
            return (int(pid), 0) if pid.isdigit() else _UNKNOWN_OWNER
        except OSError:
            os.close(lock)
            return None
        os.close(lock)  # its owner has removed it meanwhile
    return _UNKNOWN_OWNER


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _bind_or_find_owner(setting: SettingId) -> tuple[int | None, ProcessOwner | None]:
    """The descriptor of a socket bound to the address, or its owner."""
    for _ in range(_MAX_TRIES):
        listener = _bind(setting)
        if listener is not None:
            return listener.detach(), None
        if owner := _find_owner(setting):  # else it was released meanwhile
            return None, owner
    return None, _UNKNOWN_OWNER


def _bind(setting: SettingId) -> socket.socket | None:
    """A socket bound to the address; None where another process has it."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.bind(_address(setting))
        listener.listen(_MAX_QUEUE)
    except OSError as error:
        listener.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return listener


def _find_owner(setting: SettingId) -> ProcessOwner | None:
    """The process that has the address; None where it is free."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.setblocking(False)
        try:
            listener.connect(_address(setting))
        except ConnectionRefusedError:
            return None
        except OSError:
            return _UNKNOWN_OWNER
        return peer_credentials(listener)


def _address(setting: SettingId) -> bytes:
    return b"\0joulewise-knob-" + _name(setting).encode()


def _name(setting: SettingId) -> str:
    # With the simulation's id: simulated devices have the same uids in each of them.
    words = "\0".join((os.environ.get("JOULEWISE_SIM", ""), setting[0], setting[1].value))
    return hashlib.sha256(os.fsencode(words)).hexdigest()[:32]
