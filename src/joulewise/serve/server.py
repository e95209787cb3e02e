"""A server on loopback, for few clients at a time.

One request: checked, answered, and the connection closed.

What is sent back, and what every answer tells the browser to keep to.

Which requests are answered at all.

Loopback is shared by all users of a machine, and by every page in the user's browser. What is
answered names us as its host (no other name was made to lead here), comes from no other page, and
has the secret that only the printed address has.

Having the browser open an address that the list of processes must not show.
"""

from __future__ import annotations

import errno
import hmac
import io
import json
import os
import secrets
import socket
import tempfile
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from http.client import HTTP_PORT, LineTooLong
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any, Final, NamedTuple

from joulewise.errors import UsageError

_OWN: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# A report is a file that has a stricter policy of its own, which names its scripts by their
# hashes; this is what cannot be said from within.
REPORT: Final = "connect-src 'none'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
_HTML: Final = "text/html; charset=utf-8"


@dataclass(frozen=True)
class HttpResponse:
    content: bytes
    kind: str = _HTML
    status: HTTPStatus = HTTPStatus.OK
    policy: str = _OWN
    location: str = ""

    @property
    def headers(self) -> Mapping[str, str]:
        return {
            **({"Location": self.location} if self.location else {}),
            "Content-Type": self.kind,
            "Content-Length": str(len(self.content)),
            "Content-Security-Policy": self.policy,
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
            "Connection": "close",
        }


def html(text: str, status: HTTPStatus = HTTPStatus.OK) -> HttpResponse:
    return HttpResponse(text.encode(errors="replace"), status=status)


def as_json(told: Any) -> HttpResponse:
    return HttpResponse(json.dumps(told, allow_nan=False).encode(), "application/json")


def plain_text(text: str, status: HTTPStatus) -> HttpResponse:
    return HttpResponse(f"{text}\n".encode(errors="replace"), "text/plain; charset=utf-8", status)


def elsewhere(location: str) -> HttpResponse:
    return HttpResponse(b"", status=HTTPStatus.PERMANENT_REDIRECT, location=location)


LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
"""All that is ever listened on."""

_NAMES: Final = ("127.0.0.1", "[::1]", "localhost")
_FROM_NO_OTHER_PAGE: Final = {None, "none", "same-origin"}


class Refusal(NamedTuple):
    status: HTTPStatus
    reason: str


class HttpRequest(NamedTuple):
    """What a request says of itself; the ``fetch_`` headers only browsers send."""

    target: str
    hosts: Sequence[str]
    fetch_site: str | None = None
    fetch_mode: str | None = None
    fetch_dest: str | None = None


def refusal(asked: HttpRequest, port: int, secret: str) -> Refusal | None:
    """Why it is not answered, None where it is."""
    # Of the usual port browsers say nothing.
    ours = {f"{n}:{port}" for n in _NAMES} | ({*_NAMES} if port == HTTP_PORT else set())
    if len(asked.hosts) != 1 or asked.hosts[0].lower() not in ours:
        return Refusal(
            HTTPStatus.MISDIRECTED_REQUEST,
            f"this is 127.0.0.1:{port}, and is asked for by no other name or port",
        )
    first, inside = parted(asked.target)
    if not hmac.compare_digest(first.encode(errors="replace"), secret.encode()):
        return Refusal(
            HTTPStatus.FORBIDDEN, "open the address that joulewise view printed, all of it"
        )
    if asked.fetch_site not in _FROM_NO_OTHER_PAGE and not _opens_start(asked, inside):
        return Refusal(HTTPStatus.FORBIDDEN, "another page asks for this")
    return None


def parted(target: str) -> tuple[str, str | None]:
    """The secret, and the address below it with its query; None where not even a slash follows."""
    path, asks, query = target.partition("?")
    first, slash, rest = path.removeprefix("/").partition("/")
    return first, f"{rest}{asks}{query}" if slash else None


def _opens_start(asked: HttpRequest, inside: str | None) -> bool:
    """A link to the first page may be followed from elsewhere, such as a terminal in a browser."""
    is_start = not inside or inside.startswith("?")
    return is_start and (asked.fetch_mode, asked.fetch_dest) == ("navigate", "document")


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
        asked = HttpRequest(
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

    def _send(self, response: HttpResponse) -> None:
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


PORT: Final = 8765
"""Where it listens if it may; if somebody else does, any that is free will do."""

_AT_ONCE: Final = 32
# Chosen: its thread only has to wake up and end. Twice as long delays others where none can.
_EVICTED_S: Final = 1.0
_FULL: Final = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"


def listening(host: str, port: int | None, answer: Callable[[str], HttpResponse]) -> ViewServer:
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
        answer: Callable[[str], HttpResponse],
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

    def answer(self, target: str) -> HttpResponse:
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


@contextmanager
def in_browser(url: str, *, is_wanted: bool) -> Iterator[None]:
    """By way of a file that only its owner can read, and that lasts as long as the block."""
    if not is_wanted:
        yield
        return
    descriptor, name = tempfile.mkstemp(".html", "joulewise-")
    path = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(f'<meta http-equiv="refresh" content="0;url={escape(url)}">\n')
        webbrowser.open(path.as_uri())
        yield
    finally:
        path.unlink(missing_ok=True)
