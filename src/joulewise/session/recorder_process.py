"""The recorder's process: it records for all connected commands, and ends when they have left.

It has a session of its own and blocks all signals, so that neither Ctrl-C nor a closed terminal
ends it before the run is finished. Members join, report their commands and leave.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from joulewise.budget import as_message
from joulewise.data.run_result_json import as_json
from joulewise.errors import JoulewiseError
from joulewise.process.json_lines import JsonSocket, Message
from joulewise.session import group
from joulewise.session.group import GpuVisibility
from joulewise.session.request import Request
from joulewise.session.termination import SETTLE_S, CommandTermination, left_running
from joulewise.store.manifest import CommandRecord

if TYPE_CHECKING:
    from joulewise.session.recording import Recording

_BUG: Final = "report it, unless the machine is short of memory"
# Read when numpy is first imported: on a large node it would start a thread for every core.
_ONE_THREAD: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_WORKING_S: Final = 1.0
# Chosen: processes of a killed command have this long between SIGTERM and SIGKILL. Doubled, the
# result of such a run comes 3 s later where one of them ignores SIGTERM.
_GRACE_S: Final = 3.0
_KILLED: Final = 128 + signal.SIGKILL
# Of a command whose start was announced by a process that was killed right then: no process has it.
_UNKNOWN_PID: Final = -1


def main(descriptor: int) -> NoReturn:
    """Serve the process at the other end of an inherited socket, and whoever joins it."""
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        first = JsonSocket(socket.socket(fileno=descriptor))
        environ = dict(os.environ)
        os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
        try:
            _serve(first, environ)
        except JoulewiseError as error:  # the request cannot be met
            first.send("error", message=error.message, hint=error.hint, status=error.exit_status)
        except Exception as error:  # noqa: BLE001  # sent to the client: there is no stderr
            what = f"the recorder failed with {type(error).__name__}: {error}"
            first.send("failed", message=what, hint=_BUG)
    finally:
        os._exit(0)  # a thread that hangs in a driver must not keep the process


def _serve(first: JsonSocket, environ: Mapping[str, str]) -> None:
    start = next(iter(first.receive(timeout_s=None)), None)
    if start is None:
        return
    store, request = Path(start["store"]), Request.from_message(start["request"])
    listener = None
    if start["shared"]:
        # Before anything slow: whoever comes second joins, and waits until we are ready.
        listener = group.listen(group.address(store, request.group))
        if listener is None:
            return
    from joulewise.session.recording import Recording  # loads numpy

    recording = Recording(store, request, environ, shared=listener is not None)
    RecorderServer(recording, first, listener).serve()


@dataclass(eq=False)
class RecorderMember:
    """A client of the recorder; ``running`` has the process ids of its commands.

    ``alive`` is a pidfd that becomes readable when the client's process ends; None where the
    system has none. ``starting`` is a command that the client announced; None once it has started.
    """

    connection: JsonSocket
    running: set[int] = field(default_factory=set)
    token: str = ""
    alive: int | None = None
    pid: int = 0
    starting: CommandRecord | None = None


class RecorderServer:
    """Serves the first member and those that join at ``listener``, until the last has left."""

    def __init__(
        self, recording: Recording, first: JsonSocket, listener: socket.socket | None = None
    ) -> None:
        self._recording = recording
        self._listener = listener
        self._members: set[RecorderMember] = set()
        self._selector = selectors.DefaultSelector()
        self._stopped = False
        self._handlers: dict[str, Callable[[RecorderMember, Message], None]] = {
            "start": self._on_start,
            "command_starting": self._on_command_starting,
            "command_started": self._on_command_started,
            "command_ended": self._on_command_ended,
            "budget": self._on_budget,
            "stopped": self._on_stopped,
            "unguarded": self._on_unguarded,
            "goodbye": self._on_goodbye,
            "cancel": self._on_cancel,
        }
        self._last: JsonSocket | None = None
        if listener:
            self._selector.register(listener, selectors.EVENT_READ, self._on_connection)
        self._send_ready(self._add_member(first), is_joined=False)

    def serve(self) -> None:
        """Serve until every member has left; then finish the run, and send the last the result."""
        next_check_s = time.monotonic() + self._recording.check_after_s
        while self._members:
            for key, _ in self._selector.select(max(0.0, next_check_s - time.monotonic())):
                key.data()
            if time.monotonic() >= next_check_s:
                self._check()
                next_check_s = time.monotonic() + self._recording.check_after_s
        self._selector.close()
        if self._listener:
            self._listener.close()  # whoever comes now begins another run
        if not self._recording.has_commands:
            self._recording.discard()
            return
        with self._working():
            self._recording.stop(stopped=self._stopped)
            try:
                answer: dict[str, Any] = {"result": as_json(self._recording.result())}
            except Exception as error:  # noqa: BLE001  # reported to the last member
                answer = {"result": None, "reason": f"{type(error).__name__}: {error}"}
        if self._last:
            self._last.send("result", **answer)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Send ``working`` to everybody who waits, so that they know that we do not hang."""
        connections = [member.connection for member in self._members] + (
            [self._last] if self._last else []
        )
        done = threading.Event()

        def send_working() -> None:
            while not done.wait(_WORKING_S):
                for connection in connections:
                    connection.send("working")

        thread = threading.Thread(target=send_working, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _check(self) -> None:
        for event in self._recording.check():
            for member in self._members:
                member.connection.send("budget", **as_message(event))

    def _on_connection(self) -> None:
        assert self._listener is not None  # noqa: S101
        with suppress(OSError):  # it went away again
            connection = JsonSocket(self._listener.accept()[0])
            if connection.peer()[1] == os.getuid():
                self._add_member(connection)
            else:
                connection.close()

    def _add_member(self, connection: JsonSocket) -> RecorderMember:
        member = RecorderMember(connection)
        self._members.add(member)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._on_messages(member))
        # The children of a program that measures itself keep its end of the connection open.
        with suppress(AttributeError, OSError):  # Linux has it since 5.3
            member.pid = connection.peer()[0]
            member.alive = os.pidfd_open(member.pid)
            self._selector.register(
                member.alive, selectors.EVENT_READ, lambda: self._on_death(member)
            )
        return member

    def _send_ready(
        self, member: RecorderMember, *, is_joined: bool, ignored_options: tuple[str, ...] = ()
    ) -> None:
        ready = self._recording.ready
        member.connection.send(
            "ready",
            run=str(ready.run),
            devices=ready.devices,
            rate_hz=ready.rate_hz,
            joined=is_joined,
            unheeded=ignored_options,
        )

    def _on_messages(self, member: RecorderMember) -> None:
        for message in member.connection.receive():
            handler = self._handlers.get(message["kind"])
            if handler and member in self._members:
                handler(member, message)
        if member.connection.closed and member in self._members:
            self._on_killed(member)

    def _on_death(self, member: RecorderMember) -> None:
        self._on_messages(member)  # what it sent before it died
        if member in self._members:
            self._on_killed(member)

    def _on_start(self, member: RecorderMember, message: Message) -> None:
        ignored_options = Request.from_message(message["request"]).ignored_options(
            self._recording.request
        )
        if "sight" in message:
            self._recording.add_visibility(GpuVisibility.from_message(message["sight"]))
        self._send_ready(member, is_joined=True, ignored_options=ignored_options)

    def _on_command_starting(self, member: RecorderMember, message: Message) -> None:
        member.token = message["token"]
        arguments = tuple(message["arguments"])
        member.starting = CommandRecord(_UNKNOWN_PID, arguments, message["t_ns"])

    def _on_command_started(self, member: RecorderMember, message: Message) -> None:
        member.token = message["token"]
        member.starting = None
        member.running.add(message["pid"])
        arguments = tuple(message["arguments"])
        self._recording.command_started(CommandRecord(message["pid"], arguments, message["t_ns"]))

    def _on_command_ended(self, member: RecorderMember, message: Message) -> None:
        member.running.discard(message["pid"])
        self._recording.command_ended(
            message["pid"], message["t_ns"], message["exit_code"], message["cpu_s"]
        )

    def _on_budget(self, _member: RecorderMember, message: Message) -> None:
        self._recording.on_budget(message)

    def _on_stopped(self, _member: RecorderMember, message: Message) -> None:
        self._stopped = True
        self._recording.note_stopped(message["message"])

    def _on_unguarded(self, _member: RecorderMember, message: Message) -> None:
        self._recording.note_unguarded(message["message"])

    def _on_goodbye(self, member: RecorderMember, _message: Message) -> None:
        if member.token and (left := left_running(member.token, SETTLE_S)):
            self._recording.note_left(left)
        self._remove(member)
        if self._members:
            member.connection.send("left", others=len(self._members))
            member.connection.close()
        else:
            self._last = member.connection

    def _on_cancel(self, member: RecorderMember, _message: Message) -> None:
        self._remove(member)
        if self._members:
            member.connection.close()
        else:
            self._last = member.connection  # closed once nothing is left of it

    def _on_killed(self, member: RecorderMember) -> None:
        """The client was killed, and its command with it: end the processes that it started."""
        end_ns = time.monotonic_ns()
        self._remove(member)
        member.connection.close()
        if member.token:
            with self._working():
                CommandTermination(member.token).end(_GRACE_S)
        if member.starting:  # killed before it could report the start
            member.running.add(member.starting.pid)
            self._recording.command_started(member.starting)
        for pid in member.running:
            self._recording.command_ended(pid, end_ns, _KILLED if member.token else None)
        if member.running:
            self._stopped = True
            self._recording.note_stopped(
                f"joulewise was killed, and the command with it (exit status {_KILLED})"
                if member.token
                else "the program was killed while it measured itself"
                if member.pid in member.running
                else "joulewise was killed; the process goes on"
            )

    def _remove(self, member: RecorderMember) -> None:
        self._members.discard(member)
        self._selector.unregister(member.connection)
        if member.alive is not None:
            self._selector.unregister(member.alive)
            os.close(member.alive)
