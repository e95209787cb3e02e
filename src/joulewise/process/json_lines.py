"""JSON over sockets, one message a line: the only place that encodes and splits such lines.

A message is an object with a ``kind``. ``JsonSocket`` is an endpoint that blocks; a server that
must never wait for one of its clients uses ``encode_message`` and ``LineSplitter`` by themselves.
"""

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
_CREDENTIALS: Final = struct.Struct("iII")  # struct ucred of Linux: pid, uid, gid
# Not epoll, which takes a descriptor of its own; select knows none beyond the first 1024.
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)


def encode_message(kind: str, **content: Any) -> bytes:
    """A message as a line of bytes, with its line end."""
    return json.dumps({"kind": kind, **content}).encode() + b"\n"


def peer_credentials(connection: socket.socket) -> tuple[int, int]:
    """Pid and uid of the process at the other end, by the kernel's word.

    Systems other than Linux do not tell: pid 0 and our own uid.
    """
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return 0, os.getuid()
    pid, uid, _ = _CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size)
    )
    return pid, uid


class LineSplitter:
    """Cuts a stream of bytes into lines, whatever the chunks in which it arrives.

    ``pending_b`` is the length of a line that has begun and not ended.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # joined once, at the line's end: lines may be megabytes
        self.pending_b = 0

    def split(self, chunk: bytes) -> list[bytes]:
        """The lines that end in this chunk."""
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join((*self._parts, lines[0]))
            self._parts.clear()
            self.pending_b = 0
        self._parts.append(rest)
        self.pending_b += len(rest)
        return lines


class JsonSocket:
    """One end of a connection. The process at the other end may be dead: nothing here raises.

    ``closed`` is True once the other end has hung up and everything it sent was received.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(True)
        self._connection = connection
        self._lines = LineSplitter()
        self.closed = False

    def fileno(self) -> int:
        return self._connection.fileno()

    def peer(self) -> tuple[int, int]:
        """See :func:`peer_credentials`."""
        return peer_credentials(self._connection)

    def send(self, kind: str, **content: Any) -> None:
        self.send_line(encode_message(kind, **content))

    def try_send(self, kind: str, **content: Any) -> None:
        """Send a short message, unless the other end has not received those before for long."""
        with _Selector() as selector, suppress(OSError, ValueError):
            selector.register(self._connection, selectors.EVENT_WRITE)
            if selector.select(0):
                self.send(kind, **content)

    def send_line(self, line: bytes) -> None:
        """Send a message that is encoded already."""
        with suppress(OSError):  # what the other end sent before it died can still be received
            self._connection.sendall(line)

    def receive(self, timeout_s: float | None = 0.0) -> list[Message]:
        """The messages that have arrived, waiting up to ``timeout_s`` for one; None waits for ever.

        Lines that are no message are skipped.
        """
        while not self.closed:
            if not self._wait(timeout_s):
                return []
            try:
                chunk = self._connection.recv(_CHUNK_B)
            except OSError:
                chunk = b""
            if not chunk:
                self.closed = True
            messages = [message for line in self._lines.split(chunk) if (message := _decode(line))]
            if messages or timeout_s == 0:
                return messages
        return []

    def _wait(self, timeout_s: float | None) -> bool:
        """Whether there is something to receive."""
        with _Selector() as selector:
            selector.register(self._connection, selectors.EVENT_READ)
            return bool(selector.select(timeout_s))

    def hang_up(self) -> None:
        """Send no more, and still receive until the other end is closed."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.closed = True
        self._connection.close()


def _decode(line: bytes) -> Message | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) and "kind" in message else None
