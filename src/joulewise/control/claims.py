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

from joulewise.data import Knob

Where = tuple[str, Knob]


class Claims:
    """What one guardian has claimed."""

    def __init__(self) -> None:
        self._held: dict[Where, int] = {}

    def take(self, where: Where) -> tuple[int, int] | None:
        """None where it is ours now, else the pid and the uid of who has it."""
        if where in self._held:
            return None
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            line.bind(_address(where))
            line.listen(1)
        except OSError as error:
            line.close()
            if error.errno != errno.EADDRINUSE:
                raise
            return _peer(where)
        self._held[where] = line.detach()
        return None

    def keep(self, wanted: Collection[Where]) -> None:
        """Let go of all others."""
        for where in self._held.keys() - wanted:
            os.close(self._held.pop(where))


def _address(where: Where) -> bytes:
    # Simulated devices have the same names in every simulation.
    words = "\0".join((os.environ.get("JOULEWISE_SIM", ""), where[0], where[1].value))
    return b"\0joulewise-knob-" + hashlib.sha256(os.fsencode(words)).hexdigest()[:32].encode()


def _peer(where: Where) -> tuple[int, int]:
    """Zero and -1 where that cannot be told."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.setblocking(False)
        try:
            line.connect(_address(where))
        except OSError:
            return 0, -1
        told = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII"))
        pid, uid, _ = struct.unpack("iII", told)
        return pid, uid
