"""A guardian's connections: accepts holders, answers their requests, notices their end."""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from joulewise.control.guardian import Guardian
from joulewise.control.holds import LeaseHolder
from joulewise.control.messages import LogLimiter, describe_process, user_name
from joulewise.control.protocol import (
    MAX_MESSAGE_B,
    Release,
    ended_line,
    leased_line,
    parse,
    refused_line,
    released_line,
)
from joulewise.errors import JoulewiseError, UsageError
from joulewise.process.json_lines import LineSplitter, encode_message, peer_credentials

_CHUNK_B: Final = 1 << 12
# Chosen, so that no holder can exhaust the guardian. Doubled, each may take twice the memory.
_MAX_UNSENT_B: Final = 1 << 16
_MAX_HOLDS: Final = 64
_PARTIAL_MESSAGE_S: Final = 5.0  # for the rest of a message that has begun
_POLL_S: Final = 1.0
_MAX_REFUSALS: Final = 20  # lines in the log for one user in a minute


class Connection:
    """The connection of one holder. It ends when the holder hangs up, dies or misbehaves.

    ``alive`` is a pidfd that becomes readable when the holder's process ends; None where the kernel
    has none. Methods raise OSError where the connection is at its end.
    """

    def __init__(self, endpoint: socket.socket) -> None:
        endpoint.setblocking(False)
        self.endpoint = endpoint
        self.holder = _holder(endpoint)
        self.alive = _pidfd(self.holder.pid)
        self._lines = LineSplitter()
        self._unsent = bytearray()
        self._partial_since_s: float | None = None

    def messages(self) -> list[bytes]:
        """The whole lines that have arrived."""
        try:
            chunk = self.endpoint.recv(_CHUNK_B)
        except BlockingIOError:
            return []
        if not chunk:
            raise ConnectionError
        lines = self._lines.split(chunk)
        if self._lines.pending_b > MAX_MESSAGE_B:
            raise ConnectionError
        if lines or self._partial_since_s is None:
            self._partial_since_s = time.monotonic() if self._lines.pending_b else None
        return lines

    def send(self, data: bytes) -> None:
        """Send without waiting; a holder that does not read is dropped once too much is unsent."""
        self._unsent += data
        with suppress(BlockingIOError):
            del self._unsent[: self.endpoint.send(self._unsent)]
        if len(self._unsent) > _MAX_UNSENT_B:
            raise ConnectionError

    def is_stale(self) -> bool:
        since_s = self._partial_since_s
        return since_s is not None and time.monotonic() - since_s > _PARTIAL_MESSAGE_S

    def flush(self) -> None:
        if self._unsent:
            self.send(b"")

    def close(self) -> None:
        self.endpoint.close()
        if self.alive is not None:
            os.close(self.alive)


class GuardianServer:
    """Serves holders; a fault in one connection does not affect the others."""

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

        Refusals go to ``log``, at a limited rate.
        """
        self._guardian = guardian
        self._listener = listener
        self._admit = admit
        self._refusals = LogLimiter(log, _MAX_REFUSALS)
        self._connections: set[Connection] = set()
        self._selector = selectors.DefaultSelector()
        if listener:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ, self._accept)

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, endpoint: socket.socket) -> Connection:
        connection = Connection(endpoint)
        self._connections.add(connection)
        self._selector.register(
            endpoint, selectors.EVENT_READ, lambda: self._on_readable(connection)
        )
        if connection.alive is not None:
            self._selector.register(
                connection.alive, selectors.EVENT_READ, lambda: self._drop(connection)
            )
        return connection

    def add_listener(self, endpoint: socket.socket, on_readable: Callable[[], None]) -> None:
        """Call ``on_readable`` whenever another socket is readable."""
        self._selector.register(endpoint, selectors.EVENT_READ, on_readable)

    def serve(self, is_ending: Callable[[], bool]) -> None:
        while not is_ending():
            for key, _ in self._selector.select(_POLL_S):
                key.data()
            for connection in list(self._connections):
                self._run_for(connection, connection.flush)
                if connection.is_stale():
                    self._drop(connection)
            self._run_safely("mend", self._guardian.retry)
            self._refusals.report_dropped()

    def close(self) -> None:
        for connection in list(self._connections):
            self._run_for(connection, partial(self._send_ended, connection))
            self._drop(connection)
        self._refusals.report_dropped(everything=True)
        self._selector.close()

    def _send_ended(self, connection: Connection) -> None:
        connection.send(ended_line(self._guardian.drop(connection)))

    def _accept(self) -> None:
        assert self._listener is not None  # noqa: S101
        try:
            endpoint, _ = self._listener.accept()
        except OSError:  # it hung up already, or we have no descriptor left
            return
        holder = _holder(endpoint)
        try:
            self._admit(holder, [other.holder for other in self._connections])
        except JoulewiseError as error:
            self._log_refusal(holder, f"not admitted: {error.message}")
            with suppress(OSError), endpoint:
                endpoint.setblocking(False)
                endpoint.send(refused_line(error))
            return
        connection = self.add(endpoint)
        greeting = encode_message("ready", state=str(self._guardian.state))
        self._run_for(connection, lambda: connection.send(greeting))

    def _on_readable(self, connection: Connection) -> None:
        if connection in self._connections:  # not dropped by an earlier event
            self._run_for(connection, lambda: self._answer_all(connection))

    def _answer_all(self, connection: Connection) -> None:
        for message in connection.messages():
            connection.send(self._answer(connection, message))

    def _answer(self, connection: Connection, message: bytes) -> bytes:
        try:
            request = parse(message)
            if isinstance(request, Release):
                notes = self._guardian.describe_limits(connection, request.hold)
                return released_line(self._guardian.release(connection, request.hold), notes)
            if len(self._guardian.holds(connection)) >= _MAX_HOLDS:
                raise UsageError(
                    f"one process can hold at most {_MAX_HOLDS} leases",
                    "release some of them first",
                )
            self._drop_dead()
            if connection not in self._connections:
                raise ConnectionAbortedError  # it was among the dead: it gets nothing
            holder = replace(connection.holder, since_s=time.time())
            return leased_line(
                self._guardian.lease(connection, holder, request.wanted, force=request.force)
            )
        except JoulewiseError as error:
            self._log_refusal(connection.holder, f"refused: {error.message}")
            return refused_line(error)

    def _drop_dead(self) -> None:
        """Drop holders that have died, so that a new one can have what they held."""
        alive = {connection.alive: connection for connection in self._connections}
        for key, _ in self._selector.select(0):
            if key.fd in alive:
                self._drop(alive[key.fd])

    def _run_for(self, connection: Connection, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError:
            self._drop(connection)
        except Exception as error:  # noqa: BLE001  # a bug must not affect the other holders
            self._log_unexpected(describe_process(connection.holder), error)
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        self._selector.unregister(connection.endpoint)
        if connection.alive is not None:
            self._selector.unregister(connection.alive)
        connection.close()
        self._run_safely(
            describe_process(connection.holder), lambda: self._guardian.drop(connection)
        )

    def _run_safely(self, source: str, action: Callable[[], object]) -> None:
        """Run and log any exception: what is not put back now is tried again later."""
        try:
            action()
        except Exception as error:  # noqa: BLE001  # the settings of all holders depend on us
            self._log_unexpected(source, error)

    def _log_refusal(self, holder: LeaseHolder, action: str) -> None:
        self._refusals.log(f"user {user_name(holder.uid)}", f"{describe_process(holder)}: {action}")

    def _log_unexpected(self, source: str, error: Exception) -> None:
        """Log a bug under a name of its own, so that refusals cannot hide it."""
        action = f"{source}: unexpected {type(error).__name__}: {error}"
        self._refusals.log("the unexpected", action)


def _holder(endpoint: socket.socket) -> LeaseHolder:
    """The process at the other end, by the kernel's word."""
    pid, uid = peer_credentials(endpoint)
    try:
        program = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        program = "unknown"
    shown = "".join(letter if letter.isprintable() else "?" for letter in program)
    return LeaseHolder(pid, uid, shown, time.time())


def _pidfd(pid: int) -> int | None:
    """A descriptor of the process: its children may keep the connection open when it is dead.

    None where the process is in another container, or the kernel has no pidfds.
    """
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # Linux has it since 5.3
        return None
