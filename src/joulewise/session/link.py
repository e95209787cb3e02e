"""The recorder as those see it whose command it measures: a process at the end of a line.

What they tell it: ``start`` with a :class:`Request`, ``command_started`` and ``command_ended``,
``budget`` where they found one used up, ``goodbye`` (and they wait for the result) or ``cancel``
(nothing was measured, and no run shall be left). What it tells them: ``ready`` with a
:class:`Ready`, or ``error``, or nothing at all where another recorder serves the group; then
perhaps ``budget``, and ``working`` now and then while it is busy; at last ``result``, or ``left``
where other commands of the group still run. ``failed`` may come at any time: it has ended, by no
fault that a user could mend.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from joulewise.command import linux
from joulewise.data import RunResult
from joulewise.session import starting
from joulewise.session.group import TakenError
from joulewise.session.request import Ready, Request
from joulewise.session.wire import Message, Wire

_LOOK_S: Final = 0.1
_TRIES_TO_JOIN: Final = 10
_SILENCE_S: Final = 15.0
_LEAVING_S: Final = 2.0


class RecorderProcess:
    """A recorder that is ready. If it dies, everything here still works and does nothing."""

    def __init__(self, wire: Wire, process: subprocess.Popen[bytes] | None, ready: Ready) -> None:
        self._wire = wire
        self._process = process
        self._over = False
        self.ready = ready
        self.remark = ""

    @classmethod
    def start(
        cls,
        store: Path,
        request: Request | None = None,
        environ: Mapping[str, str] | None = None,
        *,
        apart: bool = False,
    ) -> RecorderProcess:
        """Have a recorder make a run in the store, or join the one that serves our group.

        A program that waits for all of its children would wait for ever if one was the recorder:
        ``apart``, it is none.
        """
        request = request or Request()
        environ = os.environ if environ is None else environ
        if request.group and linux.HERE:
            with suppress(TakenError):
                for _ in range(_TRIES_TO_JOIN):
                    shared = starting.join(store, request, environ)
                    if shared := shared or starting.start(store, request, environ, shared=True):
                        return cls(*shared)
                    time.sleep(_LOOK_S)  # the other one is about to end, or does not listen yet
        alone = starting.start(store, request, environ, shared=False, apart=apart)
        if alone is None:
            raise starting.NotReadyError("the recorder ended at once")
        return cls(*alone)

    def fileno(self) -> int:
        """Readable when there are messages, or when the recorder has ended."""
        return self._wire.fileno()

    @property
    def lost(self) -> bool:
        """Whether the recorder has ended before we let it."""
        return self._wire.closed and not self._over

    def command_started(
        self, pid: int, arguments: Sequence[str], t_ns: int, token: str = ""
    ) -> None:
        """``token`` is in the environment of all that the command starts.

        Should we be killed, what has it is ended.
        """
        self._wire.send(
            "command_started", pid=pid, arguments=list(arguments), t_ns=t_ns, token=token
        )

    def command_ended(
        self, pid: int, t_ns: int, exit_code: int | None = None, cpu_s: float | None = None
    ) -> None:
        self._wire.send("command_ended", pid=pid, t_ns=t_ns, exit_code=exit_code, cpu_s=cpu_s)

    def tell(self, kind: str, **content: Any) -> None:
        self._wire.send(kind, **content)

    def messages(self) -> list[Message]:
        """What the recorder has said since."""
        return self._heard(self._wire.receive())

    def _heard(self, messages: list[Message]) -> list[Message]:
        for message in messages:
            if message["kind"] == "failed":
                self.remark = message["message"]
        return messages

    def finish(
        self, give_up: Callable[[], bool] = lambda: False, silence_s: float = _SILENCE_S
    ) -> RunResult | None:
        """End the recording; None and a ``remark`` where there is no result to be had.

        ``give_up`` is asked now and then while the result is awaited; the recorder then ends the
        run without us. One that says nothing for ``silence_s`` hangs: it is killed, and ``lost``.
        """
        self._wire.send("goodbye")
        heard_s = time.monotonic()
        while not self._wire.closed:
            if give_up():
                self._over, self.remark = True, "the result is still being computed"
                self._wire.close()
                return None
            messages = self._heard(self._wire.receive(timeout_s=_LOOK_S))
            if messages:
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > silence_s:
                self.remark = f"the recorder did not answer for {silence_s:g} s"
                break
            for message in messages:
                if message["kind"] == "result":
                    self._over = True
                    starting.end(self._wire, self._process, _LEAVING_S)
                    return self._told(message)
                if message["kind"] == "left":  # it goes on without us
                    self._over = True
                    self._wire.close()
                    self.remark = _counted_with(message["others"])
                    return None
        starting.end(self._wire, self._process, patience_s=0.0)
        return None

    def _told(self, last: Message) -> RunResult | None:
        if last["result"] is None:
            self.remark = f"the result cannot be computed: {last['reason']}"
            return None
        from joulewise.data.contract import from_json

        return from_json(last["result"])

    def leave(self) -> None:
        """In a fork: the recorder is the parent's, and must notice when that is gone."""
        self._wire.close()
        if self._process:
            self._process.returncode = 0  # not ours to wait for

    def cancel(self) -> None:
        """Nothing was run: leave no trace of it."""
        self._over = True
        self._wire.send("cancel")
        starting.await_close(self._wire)
        self._wire.close()


def _counted_with(others: int) -> str:
    who = "another command" if others == 1 else f"{others} other commands"
    return f"its energy is counted together with {who} still running"
