"""The recorder's side of the line: who is connected, what they say, and how they leave."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from joulewise.data.contract import as_json
from joulewise.process.json_lines import Message, Wire
from joulewise.session.budget import as_message
from joulewise.session.recording import Recording
from joulewise.session.request import Request
from joulewise.session.sight import Sight
from joulewise.session.terminate import Ending, left_running
from joulewise.store.manifest import CommandRecord

_WORKING_S: Final = 1.0
_GRACE_S: Final = 3.0
_SETTLE_S: Final = 0.5  # a pool's workers see a moment later that their parent has ended
_KILLED: Final = 128 + signal.SIGKILL


@dataclass(eq=False)
class RecorderMember:
    """Somebody whose commands are measured; ``running`` has their process ids."""

    wire: Wire
    running: set[int] = field(default_factory=set)
    token: str = ""
    alive: int | None = None
    pid: int = 0


class Host:
    """Serves the first, and those who join at ``listener``, until the last has left."""

    def __init__(
        self, recording: Recording, first: Wire, listener: socket.socket | None = None
    ) -> None:
        self._recording = recording
        self._listener = listener
        self._members: set[RecorderMember] = set()
        self._selector = selectors.DefaultSelector()
        self._stopped = False
        self._verbs: dict[str, Callable[[RecorderMember, Message], None]] = {
            "start": self._on_start,
            "command_started": self._on_command_started,
            "command_ended": self._on_command_ended,
            "budget": self._on_budget,
            "stopped": self._on_stopped,
            "unguarded": self._on_unguarded,
            "goodbye": self._on_goodbye,
            "cancel": self._on_cancel,
        }
        self._last: Wire | None = None
        if listener:
            self._selector.register(listener, selectors.EVENT_READ, self._on_connection)
        self._greet(self._welcome(first), joined=False)

    def serve(self) -> None:
        """Until everybody has left; then the run is finished, and the last is told the result."""
        look_s = time.monotonic() + self._recording.look_after_s
        while self._members:
            for key, _ in self._selector.select(max(0.0, look_s - time.monotonic())):
                key.data()
            if time.monotonic() >= look_s:
                self._look()
                look_s = time.monotonic() + self._recording.look_after_s
        self._selector.close()
        if self._listener:
            self._listener.close()  # who comes now begins a run of their own
        if not self._recording.has_commands:
            self._recording.discard()
            return
        with self._working():
            self._recording.stop(stopped=self._stopped)
            try:
                answer: dict[str, Any] = {"result": as_json(self._recording.result())}
            except Exception as error:  # noqa: BLE001  # there is nobody else to hear of it
                answer = {"result": None, "reason": f"{type(error).__name__}: {error}"}
        if self._last:
            self._last.send("result", **answer)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Whoever waits for us hears meanwhile that we do not hang."""
        wires = [member.wire for member in self._members] + ([self._last] if self._last else [])
        done = threading.Event()

        def tell() -> None:
            while not done.wait(_WORKING_S):
                for wire in wires:
                    wire.send("working")

        teller = threading.Thread(target=tell, daemon=True)
        teller.start()
        try:
            yield
        finally:
            done.set()
            teller.join()

    def _look(self) -> None:
        for event in self._recording.look():
            for member in self._members:
                member.wire.send("budget", **as_message(event))

    def _on_connection(self) -> None:
        assert self._listener is not None  # noqa: S101
        with suppress(OSError):  # it went away again
            wire = Wire(self._listener.accept()[0])
            if wire.peer()[1] == os.getuid():
                self._welcome(wire)
            else:
                wire.close()

    def _welcome(self, wire: Wire) -> RecorderMember:
        member = RecorderMember(wire)
        self._members.add(member)
        self._selector.register(wire, selectors.EVENT_READ, lambda: self._on_words(member))
        # The children of a program that measures itself hold its end of the line open.
        with suppress(AttributeError, OSError):  # Linux has it since 5.3
            member.pid = wire.peer()[0]
            member.alive = os.pidfd_open(member.pid)
            self._selector.register(
                member.alive, selectors.EVENT_READ, lambda: self._on_death(member)
            )
        return member

    def _greet(
        self, member: RecorderMember, *, joined: bool, unheeded: tuple[str, ...] = ()
    ) -> None:
        ready = self._recording.ready
        member.wire.send(
            "ready",
            run=str(ready.run),
            devices=ready.devices,
            rate_hz=ready.rate_hz,
            joined=joined,
            unheeded=unheeded,
        )

    def _on_words(self, member: RecorderMember) -> None:
        for message in member.wire.receive():
            verb = self._verbs.get(message["kind"])
            if verb and member in self._members:
                verb(member, message)
        if member.wire.closed and member in self._members:
            self._on_killed(member)

    def _on_death(self, member: RecorderMember) -> None:
        self._on_words(member)  # what it said last
        if member in self._members:
            self._on_killed(member)

    def _on_start(self, member: RecorderMember, message: Message) -> None:
        unheeded = Request.told(message["request"]).unheeded(self._recording.request)
        if "sight" in message:
            self._recording.joined(Sight.told(message["sight"]))
        self._greet(member, joined=True, unheeded=unheeded)

    def _on_command_started(self, member: RecorderMember, message: Message) -> None:
        member.token = message["token"]
        member.running.add(message["pid"])
        arguments = tuple(message["arguments"])
        self._recording.started(CommandRecord(message["pid"], arguments, message["t_ns"]))

    def _on_command_ended(self, member: RecorderMember, message: Message) -> None:
        member.running.discard(message["pid"])
        self._recording.ended(
            message["pid"], message["t_ns"], message["exit_code"], message["cpu_s"]
        )

    def _on_budget(self, _member: RecorderMember, message: Message) -> None:
        self._recording.heard(message)

    def _on_stopped(self, _member: RecorderMember, message: Message) -> None:
        self._stopped = True
        self._recording.note_stopped(message["message"])

    def _on_unguarded(self, _member: RecorderMember, message: Message) -> None:
        self._recording.note_unguarded(message["message"])

    def _on_goodbye(self, member: RecorderMember, _message: Message) -> None:
        if member.token and (left := left_running(member.token, _SETTLE_S)):
            self._recording.note_left(left)
        self._leave(member)
        if self._members:
            member.wire.send("left", others=len(self._members))
            member.wire.close()
        else:
            self._last = member.wire

    def _on_cancel(self, member: RecorderMember, _message: Message) -> None:
        self._leave(member)
        if self._members:
            member.wire.close()
        else:
            self._last = member.wire  # closed once nothing is left of it

    def _on_killed(self, member: RecorderMember) -> None:
        """The command died with its parent; what it had started goes on, and ends here."""
        end_ns = time.monotonic_ns()
        self._leave(member)
        member.wire.close()
        if member.token:
            with self._working():
                Ending(member.token).end(_GRACE_S)
        for pid in member.running:
            self._recording.ended(pid, end_ns, _KILLED if member.token else None)
        if member.running:
            self._stopped = True
            self._recording.note_stopped(
                f"joulewise was killed, and the command with it (exit {_KILLED})"
                if member.token
                else "the program was killed while it measured itself"
                if member.pid in member.running
                else "joulewise was killed, the process goes on"
            )

    def _leave(self, member: RecorderMember) -> None:
        self._members.discard(member)
        self._selector.unregister(member.wire)
        if member.alive is not None:
            self._selector.unregister(member.alive)
            os.close(member.alive)
