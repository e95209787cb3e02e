"""A server on loopback, for few clients at a time."""

from __future__ import annotations

import errno
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Final

from joulewise.errors import UsageError
from joulewise.report.serve.guard import LOOPBACK
from joulewise.report.serve.handler import HEAD_S, Handler
from joulewise.report.serve.response import Response, plain_text

PORT: Final = 8765
"""Where it listens if it may; if somebody else does, any that is free will do."""

_AT_ONCE: Final = 32
# Chosen: its thread only has to wake up and end. Twice as long delays others where none can.
_EVICTED_S: Final = 1.0
_FULL: Final = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"


def listening(host: str, port: int | None, answer: Callable[[str], Response]) -> ViewServer:
    """A server that listens; on a port that was not asked for by number only if it is free."""
    if host not in LOOPBACK:
        raise UsageError(
            f"{host} is not this machine itself, and runs may hold secrets",
            f"from another machine: ssh -t -L {PORT}:127.0.0.1:{PORT} THIS-MACHINE joulewise view",
        )
    try:
        return ViewServer(host, PORT if port is None else port, answer)
    except OSError as error:
        if port is None and error.errno == errno.EADDRINUSE:
            return ViewServer(host, 0, answer)
        raise UsageError(
            f"cannot listen on port {port} of {host}: {error.strerror}", "leave out --port"
        ) from None


class ViewServer(ThreadingHTTPServer):
    """Answers what has the secret in its address; ``answer`` gets the rest of that address."""

    request_queue_size = _AT_ONCE

    def __init__(
        self,
        host: str,
        port: int,
        answer: Callable[[str], Response],
        *,
        at_once: int = _AT_ONCE,
        head_s: float = HEAD_S,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.secret = secrets.token_urlsafe(24)
        self.head_s = head_s
        self._answer = answer
        self._room = threading.BoundedSemaphore(at_once)
        self._idle: dict[socket.socket, None] = {}  # oldest first: no request has come yet
        self._idle_lock = threading.Lock()
        # Whatever somebody's hosts file makes of that name.
        super().__init__((host.replace("localhost", "127.0.0.1"), port), Handler)

    @property
    def url(self) -> str:
        host = str(self.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_port}/{self.secret}/"

    def server_bind(self) -> None:
        """Without the look-up of a name that HTTPServer would do, for nothing."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def answer(self, target: str) -> Response:
        """Whatever goes wrong in it, a traceback is nothing for a page."""
        try:
            return self._answer(target)
        except Exception as error:  # noqa: BLE001
            said = (
                f"unexpected {type(error).__name__}, which is a bug in joulewise: please report it"
            )
            return plain_text(said, HTTPStatus.INTERNAL_SERVER_ERROR)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._has_room():
            request.send(_FULL)
            self.shutdown_request(request)
            return
        with self._idle_lock:
            self._idle[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started that would release it
            self.begin_answer(request)  # it is closed now: nothing is left to evict
            self._room.release()
            raise

    def begin_answer(self, request: socket.socket) -> None:
        """A request has come through this connection, which is not idle any more."""
        with self._idle_lock:
            self._idle.pop(request, None)

    def _has_room(self) -> bool:
        """Whether another connection may be taken, if need be in place of the oldest idle one."""
        if self._room.acquire(blocking=False):
            return True
        with self._idle_lock:
            oldest = next(iter(self._idle), None)
            if oldest is None:
                return False
            del self._idle[oldest]
            with suppress(OSError):  # it has just ended by itself
                oldest.shutdown(socket.SHUT_RDWR)
        return self._room.acquire(timeout=_EVICTED_S)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.begin_answer(request)
            self._room.release()

    def handle_error(self, *_: Any) -> None:
        """A client that misbehaves is no news, least of all a traceback."""
