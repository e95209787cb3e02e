"""The line-based socket between the engine and everyone who uses its GPUs.

An NVML client says ``client`` and stays connected for as long as it is one; after it set
something it says ``changed GPU``. A training program says ``attach GPU`` and then, as often as it
likes, ``step WORKLOAD BATCH_SIZE COUNT``. Answers are ``ok``, ``done START_NS END_NS`` once the
steps are over, or ``error TEXT``. Who says anything else is disconnected.
"""

from __future__ import annotations

import resource
import selectors
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

MAX_LINE_B = 256
MAX_PEERS = 500
_LONGEST_NUMBER = 12
_OTHER_DESCRIPTORS = 32

Handler = Callable[["Peer", list[str]], None]


class ProtocolError(Exception):
    """The peer does not keep to the protocol."""


def natural(text: str) -> int:
    if not text.isdecimal() or len(text) > _LONGEST_NUMBER:
        raise ProtocolError("not a number that anyone would mean")
    return int(text)


class Peer:
    """One connection, and the process at its other end."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.pid = _pid(connection)
        self._received = b""

    def lines(self) -> list[str]:
        """The whole lines that have come; OSError where the peer is gone."""
        chunk = self.connection.recv(4096)
        if not chunk:
            raise ConnectionResetError
        *lines, self._received = (self._received + chunk).split(b"\n")
        if max(map(len, (*lines, self._received))) > MAX_LINE_B:
            raise ProtocolError("line too long")
        return [line.decode("ascii", "replace") for line in lines]

    def answer(self, text: str) -> None:
        """Answer; a peer that does not listen is hung up on, which its connection will tell."""
        try:
            self.connection.sendall(f"{text}\n".encode())
        except OSError:
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)


class Server:
    """Listens at an address, and hands every line to ``handle`` and every leave to ``leave``."""

    def __init__(
        self,
        address: str,
        selector: selectors.BaseSelector,
        handle: Handler,
        leave: Callable[[Peer], None],
    ) -> None:
        self._selector = selector
        self._handle = handle
        self._leave = leave
        self._peers: set[Peer] = set()
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = max(1, min(MAX_PEERS, descriptors - _OTHER_DESCRIPTORS))
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        self._listener.bind(address)
        self._listener.listen(64)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        self._listener.close()
        for peer in self._peers:
            peer.connection.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # it went away again
            return
        peer = Peer(connection)
        self._peers.add(peer)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._read(peer))
        if len(self._peers) == self._most:
            self._selector.unregister(self._listener)

    def _read(self, peer: Peer) -> None:
        try:
            lines = peer.lines()
        except BlockingIOError:
            return
        except (OSError, ProtocolError):
            self._disconnect(peer)
            return
        try:
            for line in lines:
                self._handle(peer, line.split())
        except ProtocolError:
            self._disconnect(peer)

    def _disconnect(self, peer: Peer) -> None:
        if len(self._peers) == self._most:
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._peers.discard(peer)
        self._selector.unregister(peer.connection)
        peer.connection.close()
        self._leave(peer)


def _pid(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(struct.unpack("iII", credentials)[0])
