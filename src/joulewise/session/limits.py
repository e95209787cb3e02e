"""Budgets, as the process sees them that started the command: what to say, and when to end it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from joulewise.session.budget import Budget, as_message, overdue, time_left_s
from joulewise.session.ending import Ending, listed
from joulewise.session.link import RecorderProcess
from joulewise.session.wire import Message
from joulewise.units import NS_PER_S

GRACE_S: Final = 10.0


class Running(Protocol):
    @property
    def pid(self) -> int: ...


class Limits:
    """Says what is foreseen and exceeded, once each; ends the command where a budget says so.

    The recorder knows of energy. Time is looked at here too, since a recorder may be dead.
    ``token`` is what all processes of the command have: they are asked to end at the same time.
    """

    def __init__(
        self,
        budgets: Sequence[Budget],
        command: Running,
        start_ns: int,
        recorder: RecorderProcess,
        say: Callable[[str], None],
        *,
        token: str = "",
        grace_s: float = GRACE_S,
    ) -> None:
        self._budgets = budgets
        self._command = command
        self._start_ns = start_ns
        self._recorder = recorder
        self._say = say
        self._grace_ns = round(grace_s * NS_PER_S)
        self._said: set[tuple[str, str]] = set()
        self._token = token
        self._kill_ns = 0
        self._ending: Ending | None = None
        self.stopped = False
        if any(budget.stop for budget in budgets):
            import psutil  # noqa: F401  # what ends a command must not be loaded only then

    def look(self) -> float | None:
        """Do what is due by now; for how many seconds nothing else will be."""
        now_ns = time.monotonic_ns()
        for event in overdue(self._budgets, self._start_ns, now_ns):
            self._on_budget(as_message(event), ours=True)
        if self._ending and now_ns >= self._kill_ns:
            self._say_killed(self._ending.kill())
            self._ending = None
        waits_s = [time_left_s(self._budgets, self._start_ns, now_ns)]
        if self._ending:
            waits_s.append((self._kill_ns - now_ns) / NS_PER_S)
        return min((wait_s for wait_s in waits_s if wait_s is not None), default=None)

    def end_rest(self, hurry: Callable[[], bool]) -> None:
        """The command has ended: those it started have the rest of the same grace."""
        if self._ending:
            left_s = (self._kill_ns - time.monotonic_ns()) / NS_PER_S
            self._say_killed(self._ending.end(left_s, hurry))
            self._ending = None

    def _say_killed(self, names: Sequence[str]) -> None:
        if names:
            within = f"within {self._grace_ns / NS_PER_S:g} s"
            self._say(f"did not end {within}, and was killed: {listed(names)}")

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
        if event["stop"] and not self.stopped:
            self.stopped = True
            self._kill_ns = time.monotonic_ns() + self._grace_ns
            self._ending = Ending(self._token, self._command.pid)
            self._ending.ask()
        self._say(event["message"])  # after it: whoever reads it may keep us waiting
