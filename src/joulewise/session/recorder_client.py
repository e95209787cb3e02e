"""The recorder as those see it whose command it measures: a process at the end of a line.

What they tell it: ``start`` with a :class:`Request`, ``command_started`` and ``command_ended``,
``budget`` where they found one used up, ``goodbye`` (and they wait for the result) or ``cancel``
(nothing was measured, and no run shall be left). What it tells them: ``ready`` with a
:class:`Ready`, or ``error``, or nothing at all where another recorder serves the group; then
perhaps ``budget``, and ``working`` now and then while it is busy; at last ``result``, or ``left``
where other commands of the group still run. ``failed`` may come at any time: it has ended, by no
fault that a user could mend.

Starting a recorder, or joining one, until it records; and seeing it end.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from joulewise.data import RunResult
from joulewise.errors import JoulewiseError
from joulewise.process import linux
from joulewise.process.child import start as start_apart
from joulewise.process.json_lines import Message, Wire
from joulewise.session import group
from joulewise.session.group import TakenError
from joulewise.session.request import Ready, Request
from joulewise.session.sight import Sight
from joulewise.store.runs import not_made

_HINT: Final = "see what `joulewise doctor` says"
_START_DEADLINE_S: Final = 20.0
_END_DEADLINE_S: Final = 10.0
_REAP_DEADLINE_S: Final = 1.0
_REAP_LOOK_S: Final = 0.001
_LOOK_S: Final = 0.1
_MAIN: Final = "joulewise.session.recorder_process"


class NotReadyError(JoulewiseError):
    """The recorder failed, is dead or hangs: nothing that a user could mend."""

    def __init__(self, message: str, hint: str = _HINT) -> None:
        super().__init__(message, hint)


class NoResourcesError(NotReadyError):
    """There is no process or file descriptor left for a recorder."""

    def __init__(self, error: OSError) -> None:
        super().__init__(
            f"no recorder can be started ({error.strerror})",
            "see the limits of this shell: ulimit -n for open files, ulimit -u for processes",
        )


Started = tuple[Wire, "subprocess.Popen[bytes] | None", Ready]


def join(store: Path, request: Request, environ: Mapping[str, str]) -> Started | None:
    wire = group.join(group.address(store, request.group))
    if wire is None:
        return None
    return _greet(wire, None, store, request, shared=True, sight=Sight.of(environ))


def start(
    store: Path, request: Request, environ: Mapping[str, str], *, shared: bool, apart: bool = False
) -> Started | None:
    """A recorder of our own; ``apart`` it is no child of ours, and known by its process group."""
    try:
        ours, process = start_apart(_MAIN, environ, is_child=not apart)
    except OSError as error:
        raise NoResourcesError(error) from None
    return _greet(Wire(ours), process, store, request, shared=shared)


def _greet(
    wire: Wire,
    process: subprocess.Popen[bytes] | None,
    store: Path,
    request: Request,
    *,
    shared: bool,
    sight: Sight | None = None,
) -> Started | None:
    """Say what is wanted, and wait until it records; None where it ends instead.

    Who joins says what GPUs it sees, which may not be those of the first.
    """
    ready = None
    try:
        try:
            where = os.path.abspath(store)  # noqa: PTH100  # pathlib's would follow links
        except OSError as error:  # the working folder was deleted
            raise not_made("run", store, error) from None
        seen = {"sight": asdict(sight)} if sight else {}
        wire.send("start", store=where, shared=shared, request=asdict(request), **seen)
        ready = _answer(wire)
    finally:
        if ready is None:
            stuck = isinstance(sys.exc_info()[1], NotReadyError)
            end(wire, process, 0.0 if stuck else _END_DEADLINE_S)
    return None if ready is None else (wire, process, ready)


def _answer(wire: Wire) -> Ready | None:
    deadline = time.monotonic() + _START_DEADLINE_S
    while not wire.closed:
        for message in wire.receive(timeout_s=_LOOK_S):
            if message["kind"] == "ready":
                return Ready.told(message)
            if message["kind"] == "error":
                raise _told_error(message)
            if message["kind"] == "failed":
                raise NotReadyError(message["message"], message["hint"])
        if time.monotonic() > deadline:
            raise NotReadyError(f"the recorder is not ready after {_START_DEADLINE_S:g} s")
    return None


def _told_error(message: Message) -> JoulewiseError:
    error = JoulewiseError(message["message"], message["hint"])
    error.exit_status = message["status"]
    return error


def end(
    wire: Wire, process: subprocess.Popen[bytes] | None, patience_s: float = _END_DEADLINE_S
) -> None:
    """Let go; a recorder that does not end by itself soon is stuck in a driver."""
    if process is not None:
        wire.hang_up()
        await_close(wire, patience_s)  # which is when it ends
        if not wire.closed:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
        _reap(process)
    wire.close()


def _reap(process: subprocess.Popen[bytes]) -> None:
    # Popen's own wait sleeps, which fails where the clock is faked.
    deadline = time.monotonic() + _REAP_DEADLINE_S
    while process.poll() is None and time.monotonic() < deadline:
        select.select((), (), (), _REAP_LOOK_S)
    if process.poll() is None:
        process.returncode = 0  # a driver holds it: not even SIGKILL ends it now


def await_close(wire: Wire, patience_s: float = _END_DEADLINE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not wire.closed and time.monotonic() < deadline:
        wire.receive(timeout_s=_LOOK_S)


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
                    shared = join(store, request, environ)
                    if shared := shared or start(store, request, environ, shared=True):
                        return cls(*shared)
                    time.sleep(_LOOK_S)  # the other one is about to end, or does not listen yet
        alone = start(store, request, environ, shared=False, apart=apart)
        if alone is None:
            raise NotReadyError("the recorder ended at once")
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
                    end(self._wire, self._process, _LEAVING_S)
                    return self._told(message)
                if message["kind"] == "left":  # it goes on without us
                    self._over = True
                    self._wire.close()
                    self.remark = _counted_with(message["others"])
                    return None
        end(self._wire, self._process, patience_s=0.0)
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
        await_close(self._wire)
        self._wire.close()


def _counted_with(others: int) -> str:
    who = "another command" if others == 1 else f"{others} other commands"
    return f"its energy is counted together with {who} still running"
