"""JSON, a line a message, between the recorder and those whose commands it measures."""

from __future__ import annotations

import json
import os
import selectors
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

Message = Mapping[str, Any]

_CHUNK_B: Final = 1 << 16
# Not epoll, which takes a descriptor of its own; select knows none beyond the first 1024.
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)


class Wire:
    """One end of a connection. Whoever is at the other end may be dead: nothing here raises."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(True)
        self._connection = connection
        self._begun: list[bytes] = []  # of a line whose end has not come
        self.closed = False

    def fileno(self) -> int:
        return self._connection.fileno()

    def peer(self) -> tuple[int, int]:
        """The process at the other end, and its user (on Linux; elsewhere 0, and ourselves)."""
        option = getattr(socket, "SO_PEERCRED", None)
        if option is None:
            return 0, os.getuid()
        credentials = self._connection.getsockopt(socket.SOL_SOCKET, option, 12)
        pid, uid, _ = struct.unpack("iII", credentials)
        return pid, uid

    def send(self, kind: str, **content: Any) -> None:
        line = json.dumps({"kind": kind, **content}) + "\n"
        with suppress(OSError):  # what it said last can still be received
            self._connection.sendall(line.encode())

    def receive(self, timeout_s: float | None = 0.0) -> list[Message]:
        """What has come, waiting so long for something; ``closed`` tells whether that was all."""
        while not self.closed:
            if not self._wait(timeout_s):
                return []
            try:
                chunk = self._connection.recv(_CHUNK_B)
            except OSError:
                chunk = b""
            if not chunk:
                self.closed = True
            messages = [message for line in self._lines(chunk) if (message := _parsed(line))]
            if messages or timeout_s == 0:
                return messages
        return []

    def _lines(self, chunk: bytes) -> list[bytes]:
        """Those that end in this chunk."""
        *ends, rest = chunk.split(b"\n")
        if ends:
            ends[0] = b"".join((*self._begun, ends[0]))
            self._begun.clear()
        self._begun.append(rest)
        return ends

    def _wait(self, timeout_s: float | None) -> bool:
        with _Selector() as selector:
            selector.register(self._connection, selectors.EVENT_READ)
            return bool(selector.select(timeout_s))

    def hang_up(self) -> None:
        """Say no more, and still hear when the other end is closed."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.closed = True
        self._connection.close()


def _parsed(line: bytes) -> Message | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) and "kind" in message else None
