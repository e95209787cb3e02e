"""One guardian a knob on the whole machine, wherever each of them keeps its journal.

A claim is an address of the kernel's that is made from the device and the knob. Only one process
can have it, and it is free again when that process has ended, however that came.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import struct
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from joulewise.control import journal
from joulewise.control.holds import Hold
from joulewise.control.standing import has_ended
from joulewise.control.words import named, user, valued, who
from joulewise.data import Knob
from joulewise.devices import Device
from joulewise.errors import DeviceError, HeldError, JoulewiseError

Where = tuple[str, Knob]
RESTORE: Final = "see what `joulewise doctor` says of the device, then run `joulewise restore`"
_TRIES: Final = 3
_BACKLOG: Final = 64


class Claims:
    """What one guardian has claimed."""

    def __init__(self) -> None:
        self._held: dict[Where, int] = {}

    def take(self, where: Where) -> tuple[int, int] | None:
        """None where it is ours now, else the pid and the uid of who has it, 0 and -1 if untold."""
        if where in self._held:
            return None
        for _ in range(_TRIES):
            line = _bound(where)
            if line is not None:
                self._held[where] = line.detach()
                return None
            if taken_by := _peer(where):  # else it was let go of meanwhile
                return taken_by
        return 0, -1

    def keep(self, wanted: Collection[Where]) -> None:
        """Let go of all others."""
        for where in self._held.keys() - wanted:
            os.close(self._held.pop(where))

    def tidy(self) -> None:
        """Who has asked whose it is stands in a queue, which would be full one day."""
        for descriptor in self._held.values():
            line = socket.socket(fileno=descriptor)
            with suppress(OSError):
                for _ in range(_BACKLOG):
                    line.accept()[0].close()
            line.detach()


def claim(state: Path, own: Path | None, claims: Claims, device: Device, knob: Knob) -> None:
    """Have a knob, or raise who has it; ``own`` is our journal in ``state``."""
    where = device.info.uid, knob
    try:
        # Before the journals are looked into: what comes into them from now on is not of it.
        taken_by = claims.take(where)
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


def _peer(where: Where) -> tuple[int, int] | None:
    """Who has it; None where nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.setblocking(False)
        try:
            line.connect(_address(where))
        except ConnectionRefusedError:
            return None
        except OSError:
            return 0, -1
        told = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII"))
        pid, uid, _ = struct.unpack("iII", told)
        return pid, uid


def _address(where: Where) -> bytes:
    # Simulated devices have the same names in every simulation.
    words = "\0".join((os.environ.get("JOULEWISE_SIM", ""), where[0], where[1].value))
    return b"\0joulewise-knob-" + hashlib.sha256(os.fsencode(words)).hexdigest()[:32].encode()
