"""A holder's line to a guardian: one of its own, or the machine's service."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping
from typing import Any, Final

from joulewise.command import apart
from joulewise.control.protocol import refusal
from joulewise.errors import JoulewiseError

SOCKET: Final = "/run/joulewise/guard.sock"
_VARIABLE: Final = "JOULEWISE_GUARD"
_MAIN: Final = "joulewise.control.guardian_process"
_START_S: Final = 20.0
_ANSWER_S: Final = 15.0
_CHUNK_B: Final = 1 << 16


def socket_path(environ: Mapping[str, str]) -> str:
    return environ.get(_VARIABLE) or SOCKET


class Client:
    """Asks and waits for the answer, one at a time."""

    def __init__(self, endpoint: socket.socket) -> None:
        self._endpoint = endpoint
        self._rest = b""
        self._lock = threading.Lock()

    @classmethod
    def of_our_own(cls, environ: Mapping[str, str]) -> Client:
        """A guardian that ends when this process does."""
        endpoint, _ = apart.start(_MAIN, environ)
        client = cls(endpoint)
        client._answer(_START_S)
        return client

    @classmethod
    def of_the_service(cls, environ: Mapping[str, str]) -> Client | None:
        """None where there is no service."""
        endpoint = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        endpoint.settimeout(_ANSWER_S)
        try:
            endpoint.connect(socket_path(environ))
        except OSError:
            endpoint.close()
            return None
        return cls(endpoint)

    def ask(self, line: bytes) -> Mapping[str, Any]:
        """What the guardian answers; what it refuses is raised here."""
        with self._lock:
            try:
                self._endpoint.sendall(line)
            except OSError:
                raise _gone() from None
            return self._answer(_ANSWER_S)

    def close(self) -> None:
        self._endpoint.close()

    def _answer(self, deadline_s: float) -> Mapping[str, Any]:
        self._endpoint.settimeout(deadline_s)
        while b"\n" not in self._rest:
            try:
                chunk = self._endpoint.recv(_CHUNK_B)
            except OSError:
                raise _gone() from None
            if not chunk:
                raise _gone()
            self._rest += chunk
        answer, _, self._rest = self._rest.partition(b"\n")
        told: Mapping[str, Any] = json.loads(answer)
        if told["kind"] == "refused":
            raise refusal(told)
        return told


def _gone() -> JoulewiseError:
    return JoulewiseError(
        "the guardian of the knobs does not answer",
        "run `joulewise restore` to put back what may be left, and see `joulewise doctor`",
    )
