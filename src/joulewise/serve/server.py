"""The HTTP server of ``joulewise view``: on loopback, for a few clients at a time.

Loopback is shared by all users of a machine and by every page in the user's browser. A request is
therefore answered only if its Host header names this server (against DNS rebinding), it does not
come from another page, and its address has the secret that only the printed address has. Each
connection serves one request.
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

_OWN_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# A report has a stricter policy of its own, which names its scripts by their hashes; this adds what
# a policy in the file itself cannot say.
REPORT_POLICY: Final = (
    "connect-src 'none'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_HTML: Final = "text/html; charset=utf-8"


@dataclass(frozen=True)
class HttpResponse:
    """What is sent to the browser; ``kind`` is the Content-Type."""

    content: bytes
    kind: str = _HTML
    status: HTTPStatus = HTTPStatus.OK
    policy: str = _OWN_POLICY
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


def html_response(text: str, status: HTTPStatus = HTTPStatus.OK) -> HttpResponse:
    return HttpResponse(text.encode(errors="replace"), status=status)


def json_response(payload: Any) -> HttpResponse:
    return HttpResponse(json.dumps(payload, allow_nan=False).encode(), "application/json")


def plain_text(text: str, status: HTTPStatus) -> HttpResponse:
    return HttpResponse(f"{text}\n".encode(errors="replace"), "text/plain; charset=utf-8", status)


def redirect(location: str) -> HttpResponse:
    return HttpResponse(b"", status=HTTPStatus.PERMANENT_REDIRECT, location=location)


LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
"""The only addresses that the server binds to."""

_HOST_NAMES: Final = ("127.0.0.1", "[::1]", "localhost")
_NOT_FROM_ANOTHER_PAGE: Final = {None, "none", "same-origin"}


class Refusal(NamedTuple):
    """Why a request is not answered."""

    status: HTTPStatus
    reason: str


class HttpRequest(NamedTuple):
    """The headers of a request that are checked; only browsers send those of ``fetch_``."""

    target: str
    hosts: Sequence[str]
    fetch_site: str | None = None
    fetch_mode: str | None = None
    fetch_dest: str | None = None


def refusal(request: HttpRequest, port: int, secret: str) -> Refusal | None:
    """Why the request is not answered, None where it is."""
    own_hosts = {f"{name}:{port}" for name in _HOST_NAMES}
    if port == HTTP_PORT:  # browsers leave out the default port
        own_hosts.update(_HOST_NAMES)
    if len(request.hosts) != 1 or request.hosts[0].lower() not in own_hosts:
        return Refusal(
            HTTPStatus.MISDIRECTED_REQUEST,
            f"this server answers only as 127.0.0.1:{port} or localhost:{port}",
        )
    first, inside = split_secret(request.target)
    if not hmac.compare_digest(first.encode(errors="replace"), secret.encode()):
        return Refusal(
            HTTPStatus.FORBIDDEN, "open the complete address that joulewise view printed"
        )
    if request.fetch_site not in _NOT_FROM_ANOTHER_PAGE and not _opens_start(request, inside):
        return Refusal(HTTPStatus.FORBIDDEN, "the request comes from another page")
    return None


def split_secret(target: str) -> tuple[str, str | None]:
    """The secret, and the address below it with its query; None where not even a slash follows."""
    path, mark, query = target.partition("?")
    first, slash, rest = path.removeprefix("/").partition("/")
    return first, f"{rest}{mark}{query}" if slash else None


def _opens_start(request: HttpRequest, inside: str | None) -> bool:
    """A link to the first page may be followed from another page, such as a web terminal."""
    is_start = not inside or inside.startswith("?")
    return is_start and (request.fetch_mode, request.fetch_dest) == ("navigate", "document")


HEAD_B: Final = 16 << 10
"""Limit of a request line with all headers (chosen): twice what Apache allows for each line."""

HEAD_S: Final = 10.0
"""Time in which the head of a request must arrive (chosen): long enough for any browser."""

_SEND_S: Final = 60.0  # without progress, after which a response is given up (chosen)


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
        except OSError:  # the client has left, or was too slow
            self.close_connection = True

    def parse_request(self) -> bool:
        """Once the whole head has arrived, the connection is not idle any more."""
        is_valid = super().parse_request()
        self.server.begin_answer(self.connection)
        return is_valid

    def do_GET(self) -> None:
        request = HttpRequest(
            self.path,
            self.headers.get_all("Host", ()),
            *(self.headers.get(f"Sec-Fetch-{name}") for name in ("Site", "Mode", "Dest")),
        )
        refused = refusal(request, self.server.server_port, self.server.secret)
        if refused:
            self._send(plain_text(refused.reason, refused.status))
        else:
            secret, inside = split_secret(self.path)
            self._send(redirect(f"/{secret}/") if inside is None else self.server.answer(inside))

    do_HEAD = do_GET  # noqa: N815

    def send_error(self, code: int, *_: Any, **__: Any) -> None:
        """A plain text that repeats nothing of the request."""
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:  # a method for which there is no do_
            status = HTTPStatus.METHOD_NOT_ALLOWED
        self.close_connection = True
        self._send(plain_text(status.phrase, status))

    def version_string(self) -> str:
        return "joulewise"

    def log_message(self, *_: Any) -> None:
        """Nothing is logged: an address contains the secret."""

    def _send(self, response: HttpResponse) -> None:
        self.connection.settimeout(_SEND_S)
        self.request_version = (
            self.protocol_version
        )  # a request without a version would get no headers
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        if response.status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.content)


class _Head(io.RawIOBase):
    """Reads the head of a request, up to a time and a size, however slowly it arrives."""

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
"""The preferred port; where it is in use, any free one is taken."""

# Connections at once (chosen): a browser opens up to six. Each has a thread.
_MAX_CONNECTIONS: Final = 32
# Time for the thread of an evicted connection to end (chosen); more delays the next client.
_EVICTED_S: Final = 1.0
_FULL: Final = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"


def listening(host: str, port: int | None, answer: Callable[[str], HttpResponse]) -> ViewServer:
    """Start a server; without a ``port``, on the preferred one if it is free, else on any.

    Raises UsageError for a host other than loopback, and where the port cannot be bound.
    """
    if host not in LOOPBACK:
        raise UsageError(
            f"{host} is not a loopback address, and runs may contain secrets",
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
    """Serves addresses that have the secret; ``answer`` gets the rest of the address."""

    request_queue_size = _MAX_CONNECTIONS

    def __init__(
        self,
        host: str,
        port: int,
        answer: Callable[[str], HttpResponse],
        *,
        at_once: int = _MAX_CONNECTIONS,
        head_s: float = HEAD_S,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.secret = secrets.token_urlsafe(24)
        self.head_s = head_s
        self._answer = answer
        self._free = threading.BoundedSemaphore(at_once)
        self._idle: dict[socket.socket, None] = {}  # oldest first: no request has arrived yet
        self._idle_lock = threading.Lock()
        # Independent of what the hosts file says about that name.
        super().__init__((host.replace("localhost", "127.0.0.1"), port), Handler)

    @property
    def url(self) -> str:
        host = str(self.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_port}/{self.secret}/"

    def server_bind(self) -> None:
        """Without the reverse lookup of HTTPServer, whose result is not used."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def answer(self, target: str) -> HttpResponse:
        """The response to an address; an unexpected error becomes a page without a traceback."""
        try:
            return self._answer(target)
        except Exception as error:  # noqa: BLE001
            message = f"unexpected {type(error).__name__}, a bug in joulewise: please report it"
            return plain_text(message, HTTPStatus.INTERNAL_SERVER_ERROR)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._take_connection():
            request.send(_FULL)
            self.shutdown_request(request)
            return
        with self._idle_lock:
            self._idle[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread was started that would release it
            self.begin_answer(request)  # it is closed, and must not be evicted
            self._free.release()
            raise

    def begin_answer(self, request: socket.socket) -> None:
        """Mark a connection as busy: a request has arrived."""
        with self._idle_lock:
            self._idle.pop(request, None)

    def _take_connection(self) -> bool:
        """Whether another connection is accepted, if necessary in place of the oldest idle one."""
        if self._free.acquire(blocking=False):
            return True
        with self._idle_lock:
            oldest = next(iter(self._idle), None)
            if oldest is None:
                return False
            del self._idle[oldest]
            with suppress(OSError):  # it has just ended
                oldest.shutdown(socket.SHUT_RDWR)
        return self._free.acquire(timeout=_EVICTED_S)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.begin_answer(request)
            self._free.release()

    def handle_error(self, *_: Any) -> None:
        """Errors of a client are not reported."""


@contextmanager
def open_in_browser(url: str, *, is_wanted: bool) -> Iterator[None]:
    """Open an address in the browser without showing it in the list of processes.

    The browser gets a file that redirects to it, which only its owner can read, and which exists
    as long as the block runs.
    """
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
