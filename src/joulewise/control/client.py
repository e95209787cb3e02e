"""A holder's line to a guardian: one of its own, or the machine's service."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from joulewise.control.permissions import epilog_is_installed, not_a_member, scheduler
from joulewise.control.protocol import ENDED, refusal, release_line
from joulewise.errors import JoulewiseError, PermissionDeniedError
from joulewise.process import child

SOCKET: Final = "/run/joulewise/guard.sock"
_VARIABLE: Final = "JOULEWISE_GUARD"
_MAIN: Final = "joulewise.control.guardian_process"
_START_S: Final = 20.0
_ANSWER_S: Final = 15.0
_RESTORE: Final = "run `joulewise restore` to put back what may be left, and see `joulewise doctor`"
_GUARDIAN: Final = "the guardian of the knobs"
_SERVICE: Final = "the guard service"
_START: Final = "it puts back what it has left when it is started again; see `joulewise doctor`"
_CHUNK_B: Final = 1 << 16


def connect(environ: Mapping[str, str]) -> Client:
    """A line to whoever may turn knobs, and will be there to turn them back."""
    ruled_by = scheduler(environ)
    alone = ruled_by is None or epilog_is_installed(environ)
    if os.geteuid() == 0 and alone:
        return Client.of_our_own(environ)
    service = Client.of_the_service(environ)
    if service:
        return service
    if ruled_by and not alone:
        raise PermissionDeniedError(
            f"{ruled_by} would end the guardian of the knobs together with the job, and leave them",
            "have `joulewise guard` run as a service on this node, or `joulewise restore --epilog` "
            "in its epilog",
        )
    # The device may still be ours to turn: it knows, and says what gives the right.
    return Client.of_our_own(environ)


def socket_path(environ: Mapping[str, str]) -> str:
    return environ.get(_VARIABLE) or SOCKET


class GoneError(JoulewiseError):
    """The guardian was ended; who starts another has what it left put back.

    ``outcomes`` is what it has put back itself, None where it did not get to say so.
    """

    def __init__(self, message: str, hint: str, outcomes: list[Any] | None = None) -> None:
        super().__init__(message, hint)
        self.outcomes = outcomes


class Client:
    """Asks and waits for the answer, one at a time, once the guardian has said that it is ready."""

    def __init__(
        self, endpoint: socket.socket, *, is_service: bool = False, patience_s: float = _ANSWER_S
    ) -> None:
        self.is_service = is_service
        self._endpoint = endpoint
        self._rest = b""
        self._lock = threading.Lock()
        self._owed = 0  # answers that an interrupt has kept us from reading
        try:
            self.greeting = _granted(self._answer(patience_s))
        except BaseException:
            self.close()
            raise

    @classmethod
    def of_our_own(cls, environ: Mapping[str, str]) -> Client:
        """A guardian that ends when this process does."""
        endpoint, _ = child.start(_MAIN, environ)
        return cls(endpoint, patience_s=_START_S)

    @classmethod
    def of_the_service(
        cls, environ: Mapping[str, str], patience_s: float = _ANSWER_S
    ) -> Client | None:
        """None where there is no service; an error where there is one that is not for us."""
        endpoint = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = socket_path(environ)
        # With a timeout of Python's own, a service with a queue would refuse at once.
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(patience_s))
        try:
            endpoint.connect(path)
        except OSError as error:
            endpoint.close()
            if isinstance(error, FileNotFoundError | ConnectionRefusedError):
                return None
            raise _unreachable(path, error) from None
        return cls(endpoint, is_service=True, patience_s=patience_s)

    def ask(self, line: bytes) -> Mapping[str, Any]:
        """What the guardian answers; what it refuses is raised here."""
        with self._lock:
            while self._owed:
                self._pass_over()
            return _granted(self._exchange(line))

    def fileno(self) -> int:
        return self._endpoint.fileno()

    def gone(self) -> GoneError | None:
        """Whether the guardian has ended; it says nothing else without being asked."""
        self._endpoint.settimeout(0)
        try:
            said = self._endpoint.recv(_CHUNK_B, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        except OSError:
            said = b""
        if not said:
            return self._killed()
        with suppress(ValueError):  # of an answer in two parts
            return _ended(json.loads(said))
        return None

    def close(self) -> None:
        self._endpoint.close()

    def _exchange(self, line: bytes) -> Mapping[str, Any]:
        self._owed += 1
        with suppress(OSError):  # it may have said why before it hung up
            self._endpoint.sendall(line)
        told = self._answer(_ANSWER_S)
        self._owed -= 1
        return told

    def _pass_over(self) -> None:
        """Nobody waits for this answer any more, nor for the lease that it may tell of."""
        told = self._answer(_ANSWER_S)
        self._owed -= 1
        if told["kind"] == "leased":
            self._exchange(release_line(told["hold"]))

    def _killed(self) -> GoneError:
        if self.is_service:
            return GoneError(f"{_SERVICE} was killed", _START)
        return GoneError(f"{_GUARDIAN} was ended", _RESTORE)

    def _answer(self, deadline_s: float) -> Mapping[str, Any]:
        self._endpoint.settimeout(deadline_s)
        while b"\n" not in self._rest:
            try:
                chunk = self._endpoint.recv(_CHUNK_B)
            except TimeoutError:
                raise JoulewiseError(f"{_GUARDIAN} does not answer", _RESTORE) from None
            except OSError:
                chunk = b""
            if not chunk:
                raise self._killed()
            self._rest += chunk
        answer, _, self._rest = self._rest.partition(b"\n")
        told: Mapping[str, Any] = json.loads(answer)
        return told


def _ended(told: Mapping[str, Any]) -> GoneError | None:
    if told["kind"] != ENDED:
        return None
    return GoneError(f"{_SERVICE} ended", _START, told["outcomes"])


def _timeval(seconds: float) -> bytes:
    return struct.pack("ll", int(seconds), round(seconds % 1 * 1e6))


def _unreachable(path: str, error: OSError) -> JoulewiseError:
    if isinstance(error, PermissionError):
        return not_a_member(path)
    if isinstance(error, BlockingIOError):
        return JoulewiseError(f"the service at {path} is busy", "try again in a moment")
    why = error.strerror or error
    return JoulewiseError(f"the service at {path} cannot be asked: {why}", f"see {_VARIABLE}")


def _granted(told: Mapping[str, Any]) -> Mapping[str, Any]:
    if told["kind"] == "refused":
        raise refusal(told)
    if ended := _ended(told):
        raise ended
    return told
