"""A guardian's connections: who asks, what they get, and what happens when they are gone."""

from __future__ import annotations

import os
import selectors
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from joulewise.control.guardian import Guardian
from joulewise.control.holds import LeaseHolder
from joulewise.control.messages import Ration, caller, user
from joulewise.control.protocol import (
    MOST_B,
    Release,
    ended_line,
    leased_line,
    line,
    parse,
    refused_line,
    released_line,
)
from joulewise.errors import JoulewiseError, UsageError

_CHUNK_B: Final = 1 << 12
_MOST_UNSENT_B: Final = 1 << 16
_MOST_HOLDS: Final = 64
_HALF_S: Final = 5.0  # for the rest of a message that has begun
_LOOK_S: Final = 1.0
_MOST_REFUSALS: Final = 20  # of one user in a minute


class Connection:
    """One holder. It is gone when it hangs up, dies, or is not worth talking to."""

    def __init__(self, endpoint: socket.socket) -> None:
        endpoint.setblocking(False)
        self.endpoint = endpoint
        self.holder = _holder(endpoint)
        self.alive = _pidfd(self.holder.pid)
        self._read = bytearray()
        self._unsent = bytearray()
        self._half_since_s: float | None = None

    def messages(self) -> list[bytes]:
        """Whole lines that have come; an OSError where there will be no more."""
        try:
            chunk = self.endpoint.recv(_CHUNK_B)
        except BlockingIOError:
            return []
        if not chunk:
            raise ConnectionError
        self._read += chunk
        *lines, rest = self._read.split(b"\n")
        self._read = rest
        if len(rest) > MOST_B:
            raise ConnectionError
        if lines or self._half_since_s is None:
            self._half_since_s = time.monotonic() if rest else None
        return [bytes(line) for line in lines]

    def send(self, line: bytes) -> None:
        """Never waits: who does not read is gone once too much is unsent."""
        self._unsent += line
        with suppress(BlockingIOError):
            del self._unsent[: self.endpoint.send(self._unsent)]
        if len(self._unsent) > _MOST_UNSENT_B:
            raise ConnectionError

    def is_stale(self) -> bool:
        since_s = self._half_since_s
        return since_s is not None and time.monotonic() - since_s > _HALF_S

    def flush(self) -> None:
        if self._unsent:
            self.send(b"")

    def close(self) -> None:
        self.endpoint.close()
        if self.alive is not None:
            os.close(self.alive)


class GuardianServer:
    """Serves connections until ``ends`` says so. Whatever one of them does, the others go on."""

    def __init__(
        self,
        guardian: Guardian,
        listener: socket.socket | None = None,
        *,
        admit: Callable[[LeaseHolder, Sequence[LeaseHolder]], None] = lambda _holder, _connected: (
            None
        ),
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``admit`` raises where a new holder may not join those that are connected.

        What is refused goes to ``log``, as far as a log should have it.
        """
        self._guardian = guardian
        self._listener = listener
        self._admit = admit
        self._refusals = Ration(log, _MOST_REFUSALS)
        self._connections: set[Connection] = set()
        self._selector = selectors.DefaultSelector()
        if listener:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ, self._accept)

    def __len__(self) -> int:
        return len(self._connections)

    def take(self, endpoint: socket.socket) -> Connection:
        connection = Connection(endpoint)
        self._connections.add(connection)
        self._selector.register(endpoint, selectors.EVENT_READ, lambda: self._hear(connection))
        if connection.alive is not None:
            self._selector.register(
                connection.alive, selectors.EVENT_READ, lambda: self._lose(connection)
            )
        return connection

    def watch(self, endpoint: socket.socket, hear: Callable[[], None]) -> None:
        """Call ``hear`` whenever something comes through another socket."""
        self._selector.register(endpoint, selectors.EVENT_READ, hear)

    def serve(self, ends: Callable[[], bool]) -> None:
        while not ends():
            for key, _ in self._selector.select(_LOOK_S):
                key.data()
            for connection in list(self._connections):
                self._try(connection, connection.flush)
                if connection.is_stale():
                    self._lose(connection)
            self._safely("mend", self._guardian.mend)
            self._refusals.sum_up()

    def close(self) -> None:
        for connection in list(self._connections):
            self._try(connection, partial(self._dismiss, connection))
            self._lose(connection)
        self._refusals.sum_up(everything=True)
        self._selector.close()

    def _dismiss(self, connection: Connection) -> None:
        connection.send(ended_line(self._guardian.drop(connection)))

    def _accept(self) -> None:
        assert self._listener is not None  # noqa: S101
        try:
            endpoint, _ = self._listener.accept()
        except OSError:  # it went away again, or we have no descriptor left
            return
        holder = _holder(endpoint)
        try:
            self._admit(holder, [other.holder for other in self._connections])
        except JoulewiseError as error:
            self._refuse(holder, f"not admitted: {error.message}")
            with suppress(OSError), endpoint:
                endpoint.setblocking(False)
                endpoint.send(refused_line(error))
            return
        connection = self.take(endpoint)
        greeting = line(kind="ready", state=str(self._guardian.state))
        self._try(connection, lambda: connection.send(greeting))

    def _hear(self, connection: Connection) -> None:
        if connection in self._connections:  # not lost by what was heard before it
            self._try(connection, lambda: self._answer_all(connection))

    def _answer_all(self, connection: Connection) -> None:
        for message in connection.messages():
            connection.send(self._answer(connection, message))

    def _answer(self, connection: Connection, message: bytes) -> bytes:
        try:
            request = parse(message)
            if isinstance(request, Release):
                notes = self._guardian.said_of_limits(connection, request.hold)
                return released_line(self._guardian.release(connection, request.hold), notes)
            if len(self._guardian.holds(connection)) >= _MOST_HOLDS:
                raise UsageError(f"{_MOST_HOLDS} leases are enough", "release some of them first")
            self._bury()
            if connection not in self._connections:
                raise ConnectionAbortedError  # it was itself among the dead: it gets nothing
            holder = replace(connection.holder, since_s=time.time())
            return leased_line(
                self._guardian.lease(connection, holder, request.wanted, force=request.force)
            )
        except JoulewiseError as error:
            self._refuse(connection.holder, f"refused: {error.message}")
            return refused_line(error)

    def _bury(self) -> None:
        """Who is dead holds nothing that another asks for now, in whatever order we hear of it."""
        alive = {connection.alive: connection for connection in self._connections}
        for key, _ in self._selector.select(0):
            if key.fd in alive:
                self._lose(alive[key.fd])

    def _try(self, connection: Connection, what: Callable[[], None]) -> None:
        try:
            what()
        except OSError:
            self._lose(connection)
        except Exception as error:  # noqa: BLE001  # a bug that one meets is not the others'
            self._confess(caller(connection.holder), error)
            self._lose(connection)

    def _lose(self, connection: Connection) -> None:
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        self._selector.unregister(connection.endpoint)
        if connection.alive is not None:
            self._selector.unregister(connection.alive)
        connection.close()
        self._safely(caller(connection.holder), lambda: self._guardian.drop(connection))

    def _safely(self, whose: str, what: Callable[[], object]) -> None:
        """What is not put back now stays in the journal, and is mended later."""
        try:
            what()
        except Exception as error:  # noqa: BLE001  # everybody else's knobs depend on us
            self._confess(whose, error)

    def _refuse(self, holder: LeaseHolder, what: str) -> None:
        self._refusals.tell(f"user {user(holder.uid)}", f"{caller(holder)}: {what}")

    def _confess(self, whose: str, error: Exception) -> None:
        """Counted apart, so that refusals cannot hide it."""
        what = f"{whose}: unexpected {type(error).__name__}: {error}"
        self._refusals.tell("the unexpected", what)


def _holder(endpoint: socket.socket) -> LeaseHolder:
    """Who is at the other end, by the kernel's word."""
    told = endpoint.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII"))
    pid, uid, _ = struct.unpack("iII", told)
    try:
        program = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        program = "unknown"
    shown = "".join(letter if letter.isprintable() else "?" for letter in program)
    return LeaseHolder(pid, uid, shown, time.time())


def _pidfd(pid: int) -> int | None:
    """Its children may hold the line open when it is dead. None in another container."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # Linux has it since 5.3
        return None
