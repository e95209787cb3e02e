"""The recorder as the process sees it that starts the command: its start, messages and end.

The messages, each a JSON line:

- to the recorder: ``start`` with a :class:`Request`; ``command_starting``, ``command_started``,
  ``command_ended``;
  ``budget`` for a time budget that is used up; ``stopped``, ``unguarded`` for the notes;
  ``goodbye`` (the result is awaited) or ``cancel`` (nothing was measured, no run shall be left);
- from the recorder: ``ready`` with a :class:`Ready`, or ``error`` (the user's to correct), or the
  end of the connection where another recorder serves the group; ``budget``; ``working`` while it is
  busy; ``result``, or ``left`` where other commands of the group still run; ``failed`` at any time:
  it has ended by a fault that is not the user's.
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
from joulewise.process.child import start_process as start_apart
from joulewise.process.json_lines import JsonSocket, Message
from joulewise.session import group
from joulewise.session.group import GpuVisibility, TakenError
from joulewise.session.request import Ready, Request
from joulewise.store.runs import creation_error

_HINT: Final = "run `joulewise doctor`"
# Chosen. Starting includes the discovery of devices, for which each driver has 2.5 s; ending, the
# last readings. Doubled, a command waits twice as long for a recorder that hangs in a driver.
_START_DEADLINE_S: Final = 20.0
_END_DEADLINE_S: Final = 10.0
_REAP_DEADLINE_S: Final = 1.0
_REAP_POLL_S: Final = 0.001
_POLL_S: Final = 0.1
_MAIN: Final = "joulewise.session.recorder_process"


class RecorderStartError(JoulewiseError):
    """The recorder did not start: it failed, died or hangs, which is not the user's fault."""

    def __init__(self, message: str, hint: str = _HINT) -> None:
        super().__init__(message, hint)


class NoResourcesError(RecorderStartError):
    """A recorder needs a process and file descriptors, and none is left."""

    def __init__(self, error: OSError) -> None:
        super().__init__(
            f"no recorder can be started ({error.strerror})",
            "see the limits of this shell: ulimit -n for open files, ulimit -u for processes",
        )


_Connected = tuple[JsonSocket, "subprocess.Popen[bytes] | None", Ready]


def join(store: Path, request: Request, environ: Mapping[str, str]) -> _Connected | None:
    """Join the recorder that serves the request's group; None where there is none."""
    connection = group.join(group.address(store, request.group))
    if connection is None:
        return None
    return _request_start(
        connection, None, store, request, shared=True, visibility=GpuVisibility.of(environ)
    )


def start(
    store: Path, request: Request, environ: Mapping[str, str], *, shared: bool, apart: bool = False
) -> _Connected | None:
    """Start a recorder; None where it ends because another one serves the group.

    ``apart``: it is not a child of this process, and known by its process group only.
    """
    try:
        ours, process = start_apart(_MAIN, environ, is_child=not apart)
    except OSError as error:
        raise NoResourcesError(error) from None
    return _request_start(JsonSocket(ours), process, store, request, shared=shared)


def _request_start(
    connection: JsonSocket,
    process: subprocess.Popen[bytes] | None,
    store: Path,
    request: Request,
    *,
    shared: bool,
    visibility: GpuVisibility | None = None,
) -> _Connected | None:
    """Send the request, and wait until the recorder records; None where it ends instead.

    A command that joins also sends which GPUs it can see: the first may see others.
    """
    ready = None
    try:
        try:
            where = os.path.abspath(store)  # noqa: PTH100  # pathlib's would follow links
        except OSError as error:  # the working folder was deleted
            raise creation_error("run", store, error) from None
        optional = {"sight": asdict(visibility)} if visibility else {}
        connection.send("start", store=where, shared=shared, request=asdict(request), **optional)
        ready = _await_ready(connection)
    finally:
        if ready is None:
            stuck = isinstance(sys.exc_info()[1], RecorderStartError)
            end(connection, process, 0.0 if stuck else _END_DEADLINE_S)
    return None if ready is None else (connection, process, ready)


def _await_ready(connection: JsonSocket) -> Ready | None:
    deadline = time.monotonic() + _START_DEADLINE_S
    while not connection.closed:
        for message in connection.receive(timeout_s=_POLL_S):
            if message["kind"] == "ready":
                return Ready.from_message(message)
            if message["kind"] == "error":
                raise _error_from(message)
            if message["kind"] == "failed":
                raise RecorderStartError(message["message"], message["hint"])
        if time.monotonic() > deadline:
            raise RecorderStartError(f"the recorder is not ready after {_START_DEADLINE_S:g} s")
    return None


def _error_from(message: Message) -> JoulewiseError:
    error = JoulewiseError(message["message"], message["hint"])
    error.exit_status = message["status"]
    return error


def end(
    connection: JsonSocket,
    process: subprocess.Popen[bytes] | None,
    patience_s: float = _END_DEADLINE_S,
) -> None:
    """Hang up and wait for the recorder's end; one that does not end in time is killed."""
    if process is not None:
        connection.hang_up()
        await_close(connection, patience_s)  # it closes the connection by ending
        if not connection.closed:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
        _reap(process)
    connection.close()


def _reap(process: subprocess.Popen[bytes]) -> None:
    # Popen.wait sleeps, which fails where the user's program fakes the clock.
    deadline = time.monotonic() + _REAP_DEADLINE_S
    while process.poll() is None and time.monotonic() < deadline:
        select.select((), (), (), _REAP_POLL_S)
    if process.poll() is None:
        process.returncode = 0  # it is in a driver's call, which not even SIGKILL ends


def await_close(connection: JsonSocket, patience_s: float = _END_DEADLINE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not connection.closed and time.monotonic() < deadline:
        connection.receive(timeout_s=_POLL_S)


# Chosen. A recorder that is about to end, or does not listen yet, takes less than these tries
# (_POLL_S each); one at work sends ``working`` every second, so that 15 s without it means that it
# hangs; after its result it only has to exit. Doubled, each of them delays our end by as much.
_TRIES_TO_JOIN: Final = 10
_SILENCE_S: Final = 15.0
_EXIT_DEADLINE_S: Final = 2.0


class RecorderProcess:
    """A recorder that records. If it dies, all methods still work and do nothing.

    ``remark`` says why there is no result, once ``finish`` has returned None.
    """

    def __init__(
        self, connection: JsonSocket, process: subprocess.Popen[bytes] | None, ready: Ready
    ) -> None:
        self._connection = connection
        self._process = process
        self._is_over = False
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
        """Start a recorder that makes a run in the store, or join the one of the group.

        ``apart``: the recorder is not a child of this process, for programs that wait for all of
        their children. Raises RecorderStartError, or the user's error that the recorder reports.
        """
        request = request or Request()
        environ = os.environ if environ is None else environ
        if request.group and linux.IS_LINUX:
            with suppress(TakenError):
                for _ in range(_TRIES_TO_JOIN):
                    shared = join(store, request, environ)
                    if shared := shared or start(store, request, environ, shared=True):
                        return cls(*shared)
                    time.sleep(_POLL_S)  # the other one is about to end, or does not listen yet
        alone = start(store, request, environ, shared=False, apart=apart)
        if alone is None:
            raise RecorderStartError("the recorder ended at once")
        return cls(*alone)

    def fileno(self) -> int:
        """Readable when there are messages, or when the recorder has ended."""
        return self._connection.fileno()

    @property
    def lost(self) -> bool:
        """Whether the recorder ended before it was told to."""
        return self._connection.closed and not self._is_over

    def command_starting(self, arguments: Sequence[str], t_ns: int, token: str) -> None:
        """Report that the command is about to start.

        ``token`` is in the environment of all its processes. If this process is killed, even
        before ``command_started``, the recorder ends the processes that have the token.
        """
        self._connection.send("command_starting", arguments=list(arguments), t_ns=t_ns, token=token)

    def command_started(
        self, pid: int, arguments: Sequence[str], t_ns: int, token: str = ""
    ) -> None:
        """Report the command's start, with its process id."""
        self._connection.send(
            "command_started", pid=pid, arguments=list(arguments), t_ns=t_ns, token=token
        )

    def command_ended(
        self, pid: int, t_ns: int, exit_code: int | None = None, cpu_s: float | None = None
    ) -> None:
        self._connection.send("command_ended", pid=pid, t_ns=t_ns, exit_code=exit_code, cpu_s=cpu_s)

    def tell(self, kind: str, **content: Any) -> None:
        self._connection.send(kind, **content)

    def messages(self) -> list[Message]:
        """The messages that have arrived since the last call."""
        return self._note_failure(self._connection.receive())

    def _note_failure(self, messages: list[Message]) -> list[Message]:
        for message in messages:
            if message["kind"] == "failed":
                self.remark = message["message"]
        return messages

    def finish(
        self, give_up: Callable[[], bool] = lambda: False, silence_s: float = _SILENCE_S
    ) -> RunResult | None:
        """End the recording and return its result; None and a ``remark`` where there is none.

        ``give_up`` is called while the result is awaited; where it returns True, the recorder ends
        the run alone. A recorder that is silent for ``silence_s`` is killed, and ``lost``.
        """
        self._connection.send("goodbye")
        heard_s = time.monotonic()
        while not self._connection.closed:
            if give_up():
                self._is_over, self.remark = True, "the result is still being computed"
                self._connection.close()
                return None
            messages = self._note_failure(self._connection.receive(timeout_s=_POLL_S))
            if messages:
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > silence_s:
                self.remark = f"the recorder did not answer for {silence_s:g} s"
                break
            for message in messages:
                if message["kind"] == "result":
                    self._is_over = True
                    end(self._connection, self._process, _EXIT_DEADLINE_S)
                    return self._result_from(message)
                if message["kind"] == "left":  # it goes on for other commands
                    self._is_over = True
                    self._connection.close()
                    self.remark = _describe_others(message["others"])
                    return None
        end(self._connection, self._process, patience_s=0.0)
        return None

    def _result_from(self, last: Message) -> RunResult | None:
        if last["result"] is None:
            self.remark = f"the result cannot be computed: {last['reason']}"
            return None
        from joulewise.data.run_result_json import from_json

        return from_json(last["result"])

    def leave(self) -> None:
        """In a forked child: close our copy, so that the recorder notices the parent's end."""
        self._connection.close()
        if self._process:
            self._process.returncode = 0  # the parent waits for it

    def cancel(self) -> None:
        """No command was started: have the recorder delete the run."""
        self._is_over = True
        self._connection.send("cancel")
        await_close(self._connection)
        self._connection.close()


def _describe_others(others: int) -> str:
    who = "another command" if others == 1 else f"{others} other commands"
    return f"its energy is counted together with that of {who} still running"
