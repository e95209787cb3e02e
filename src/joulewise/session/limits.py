"""Budgets, as the process sees them that started the command: what to say, and when to end it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from joulewise.session.budget import Budget, as_message, overdue, time_left_s
from joulewise.session.link import RecorderProcess
from joulewise.session.wire import Message
from joulewise.units import NS_PER_S

GRACE_S: Final = 10.0


class Stoppable(Protocol):
    """A command that can be sent a signal."""

    def send(self, number: int) -> None: ...


class Limits:
    """Says what is foreseen and exceeded, once each; ends the command where a budget says so.

    The recorder knows of energy. Time is looked at here too, since a recorder may be dead.
    """

    def __init__(
        self,
        budgets: Sequence[Budget],
        command: Stoppable,
        start_ns: int,
        recorder: RecorderProcess,
        say: Callable[[str], None],
        *,
        grace_s: float = GRACE_S,
    ) -> None:
        self._budgets = budgets
        self._command = command
        self._start_ns = start_ns
        self._recorder = recorder
        self._say = say
        self._grace_ns = round(grace_s * NS_PER_S)
        self._said: set[tuple[str, str]] = set()
        self._kill_ns: int | None = None
        self.stopped = False

    def look(self) -> float | None:
        """Do what is due by now; for how many seconds nothing else will be."""
        now_ns = time.monotonic_ns()
        for event in overdue(self._budgets, self._start_ns, now_ns):
            self._on_budget(as_message(event), ours=True)
        if self._kill_ns is not None and now_ns >= self._kill_ns:
            self._say(f"the command did not end within {self._grace_ns / NS_PER_S:g} s: killed")
            self._kill_ns = None
            self._command.send(signal.SIGKILL)
        waits_s = [time_left_s(self._budgets, self._start_ns, now_ns)]
        if self._kill_ns is not None:
            waits_s.append((self._kill_ns - now_ns) / NS_PER_S)
        return min((wait_s for wait_s in waits_s if wait_s is not None), default=None)

    def hear(self, message: Message) -> None:
        """What the recorder says."""
        if message["kind"] == "budget":
            self._on_budget(message, ours=False)

    def _on_budget(self, event: Message, *, ours: bool) -> None:
        key = (event["budget"], event["state"])
        if key in self._said:
            return
        self._said.add(key)
        if ours:
            self._recorder.tell("budget", **event)
        self._say(event["message"])
        if event["stop"] and not self.stopped:
            self.stopped = True
            self._kill_ns = time.monotonic_ns() + self._grace_ns
            self._command.send(signal.SIGTERM)
