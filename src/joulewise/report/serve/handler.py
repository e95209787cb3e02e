"""One request: checked, answered, and the connection closed."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from http import HTTPStatus
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Final

from joulewise.report.serve.guard import Asked, parted, refusal
from joulewise.report.serve.response import Response, elsewhere, plain_text

if TYPE_CHECKING:
    import socket

    from joulewise.report.serve.server import ViewServer

HEAD_B: Final = 16 << 10
"""So long a request line with all headers may be."""

HEAD_S: Final = 10.0
"""So long it may take to come."""

_SEND_S: Final = 60.0


class Handler(BaseHTTPRequestHandler):
    """Speaks HTTP/1.0: a connection is one request, so that none is held open."""

    server: ViewServer
    command = ""
    requestline = ""

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Head(self.connection, self.server.head_s))

    def handle(self) -> None:
        try:
            super().handle()
        except LineTooLong:
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except OSError:  # whoever asked has left, or was too slow
            self.close_connection = True

    def parse_request(self) -> bool:
        """Once the whole head is there, the connection is busy."""
        is_sound = super().parse_request()
        self.server.begin_answer(self.connection)
        return is_sound

    def do_GET(self) -> None:
        told = self.headers
        asked = Asked(
            self.path,
            told.get_all("Host", ()),
            *(told.get(f"Sec-Fetch-{name}") for name in ("Site", "Mode", "Dest")),
        )
        refused = refusal(asked, self.server.server_port, self.server.secret)
        if refused:
            self._send(plain_text(refused.reason, refused.status))
        else:
            secret, inside = parted(self.path)
            self._send(elsewhere(f"/{secret}/") if inside is None else self.server.answer(inside))

    do_HEAD = do_GET  # noqa: N815

    def send_error(self, code: int, *_: Any, **__: Any) -> None:
        """As plain as can be: nothing of what was sent is sent back."""
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:  # a method for which there is no do_
            status = HTTPStatus.METHOD_NOT_ALLOWED
        self.close_connection = True
        self._send(plain_text(status.phrase, status))

    def version_string(self) -> str:
        return "joulewise"

    def log_message(self, *_: Any) -> None:
        """Not at all: an address is a secret here."""

    def _send(self, response: Response) -> None:
        self.connection.settimeout(_SEND_S)
        self.request_version = self.protocol_version  # or who asks in none would get no headers
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        if response.status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.content)


class _Head(io.RawIOBase):
    """What comes of a request, up to a time and a size, however slowly it trickles in."""

    def __init__(
        self,
        connection: socket.socket,
        within_s: float,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._clock_s = clock_s
        self._end_s = clock_s() + within_s
        self._left_b = HEAD_B

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._left_b <= 0:
            raise LineTooLong("request")
        left_s = self._end_s - self._clock_s()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(left_s)
        size = self._connection.recv_into(memoryview(buffer)[: self._left_b])
        self._left_b -= size
        return size
