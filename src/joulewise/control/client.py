"""A holder's connection to a guardian: a process of its own, or the machine's guard service."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Mapping
from typing import Any, Final

from joulewise.control.permissions import is_epilog_installed, not_a_member_error, scheduler
from joulewise.control.protocol import ENDED, refusal, release_line
from joulewise.errors import JoulewiseError, PermissionDeniedError
from joulewise.process import child
from joulewise.process.json_lines import JsonSocket, Message

SOCKET: Final = "/run/joulewise/guard.sock"
_VARIABLE: Final = "JOULEWISE_GUARD"
_MAIN: Final = "joulewise.control.guardian_process"
# Chosen: a guardian loads the drivers when it starts, for which each vendor's has 5 s, and puts
# back what others left; an answer waits for at most 5 s for a device. Doubled, a command waits
# twice as long for a guardian that hangs.
_START_DEADLINE_S: Final = 20.0
_ANSWER_DEADLINE_S: Final = 15.0
_RESTORE_HINT: Final = "run `joulewise restore` to put back what is left; see `joulewise doctor`"
_GUARDIAN_NAME: Final = "the guardian of the settings"
_SERVICE_NAME: Final = "the guard service"
_RESTART: Final = "it puts back its settings when it is started again; see `joulewise doctor`"


def connect(environ: Mapping[str, str]) -> Client:
    """A connection to a guardian that may change settings and will be there to put them back.

    Raises PermissionDeniedError where a scheduler would kill a guardian together with its job.
    """
    scheduler_name = scheduler(environ)
    survives_job = scheduler_name is None or is_epilog_installed(environ)
    if os.geteuid() == 0 and survives_job:
        return Client.start_guardian(environ)
    service = Client.of_the_service(environ)
    if service:
        return service
    if scheduler_name and not survives_job:
        raise PermissionDeniedError(
            f"{scheduler_name} would kill {_GUARDIAN_NAME} with the job, so that they stay changed",
            "have `joulewise guard` run as a service on this node, or `joulewise restore --epilog` "
            "in its epilog",
        )
    # We may still have the right to change the device; if not, its error says what gives it.
    return Client.start_guardian(environ)


def socket_path(environ: Mapping[str, str]) -> str:
    return environ.get(_VARIABLE) or SOCKET


class GuardianGoneError(JoulewiseError):
    """The guardian has ended; starting another one restores what it left.

    ``outcomes`` is what it put back itself, None where it was killed.
    """

    def __init__(self, message: str, hint: str, outcomes: list[Any] | None = None) -> None:
        super().__init__(message, hint)
        self.outcomes = outcomes


class Client:
    """Sends requests to a guardian that has said that it is ready, one at a time.

    The constructor waits for that ``greeting``; ``patience_s`` is its deadline.
    """

    def __init__(
        self,
        endpoint: socket.socket,
        *,
        is_service: bool = False,
        patience_s: float = _ANSWER_DEADLINE_S,
    ) -> None:
        self.is_service = is_service
        self._connection = JsonSocket(endpoint)
        self._received: list[Message] = []
        self._lock = threading.Lock()
        self._unread_answers = 0  # answers that an interrupt kept us from reading
        try:
            self.greeting = _checked(self._answer(patience_s))
        except BaseException:
            self.close()
            raise

    @classmethod
    def start_guardian(cls, environ: Mapping[str, str]) -> Client:
        """Start a guardian that ends when this process does."""
        endpoint, _ = child.start_process(_MAIN, environ)
        return cls(endpoint, patience_s=_START_DEADLINE_S)

    @classmethod
    def of_the_service(
        cls, environ: Mapping[str, str], patience_s: float = _ANSWER_DEADLINE_S
    ) -> Client | None:
        """Connect to the guard service; None where there is none.

        Raises PermissionDeniedError where the user is not in its group.
        """
        endpoint = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = socket_path(environ)
        # A timeout by Python makes the socket non-blocking: a full queue would refuse at once.
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(patience_s))
        try:
            endpoint.connect(path)
        except OSError as error:
            endpoint.close()
            if isinstance(error, FileNotFoundError | ConnectionRefusedError):
                return None
            raise _unreachable_error(path, error) from None
        return cls(endpoint, is_service=True, patience_s=patience_s)

    def request(self, line: bytes) -> Message:
        """The guardian's answer; what it refuses is raised."""
        with self._lock:
            while self._unread_answers:
                self._discard_answer()
            return _checked(self._exchange(line))

    def fileno(self) -> int:
        return self._connection.fileno()

    def gone(self) -> GuardianGoneError | None:
        """How the guardian ended; None while it lives."""
        self._received += self._connection.receive()
        if self._received:
            return _ended(self._received[-1])
        return self._gone_error() if self._connection.closed else None

    def close(self) -> None:
        self._connection.close()

    def _exchange(self, line: bytes) -> Message:
        self._unread_answers += 1
        self._connection.send_line(line)
        answer = self._answer(_ANSWER_DEADLINE_S)
        self._unread_answers -= 1
        return answer

    def _discard_answer(self) -> None:
        """Read an answer that nobody waits for any more, and release its lease, if it is one."""
        answer = self._answer(_ANSWER_DEADLINE_S)
        self._unread_answers -= 1
        if answer["kind"] == "leased":
            self._exchange(release_line(answer["hold"]))

    def _gone_error(self) -> GuardianGoneError:
        if self.is_service:
            return GuardianGoneError(f"{_SERVICE_NAME} was killed", _RESTART)
        return GuardianGoneError(f"{_GUARDIAN_NAME} was killed", _RESTORE_HINT)

    def _answer(self, deadline_s: float) -> Message:
        if not self._received:
            self._received += self._connection.receive(deadline_s)
        if self._received:
            return self._received.pop(0)
        if self._connection.closed:
            raise self._gone_error()
        raise JoulewiseError(f"{_GUARDIAN_NAME} does not answer", _RESTORE_HINT)


def _ended(message: Mapping[str, Any]) -> GuardianGoneError | None:
    if message["kind"] != ENDED:
        return None
    return GuardianGoneError(f"{_SERVICE_NAME} ended", _RESTART, message["outcomes"])


def _timeval(seconds: float) -> bytes:
    return struct.pack("ll", int(seconds), round(seconds % 1 * 1e6))


def _unreachable_error(path: str, error: OSError) -> JoulewiseError:
    if isinstance(error, PermissionError):
        return not_a_member_error(path)
    if isinstance(error, BlockingIOError):
        return JoulewiseError(f"the service at {path} is busy", "try again in a moment")
    reason = error.strerror or error
    return JoulewiseError(
        f"cannot connect to the service at {path}: {reason}", f"check ${_VARIABLE}"
    )


def _checked(message: Mapping[str, Any]) -> Mapping[str, Any]:
    if message["kind"] == "refused":
        raise refusal(message)
    if ended := _ended(message):
        raise ended
    return message
