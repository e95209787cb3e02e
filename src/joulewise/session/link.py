"""The recorder as those see it whose command it measures: a process at the end of a line.

What they tell it: ``start`` with a :class:`Request`, ``command_started`` and ``command_ended``,
``note`` with a caution for the result, ``goodbye`` (and they wait for the result) or ``cancel``
(nothing was measured, and no run shall be left). What it tells them: ``ready`` with a
:class:`Ready`, or ``taken`` where another recorder serves the group, or ``error``; then perhaps
``budget``; at last ``result``, or ``left`` where other commands of the group still run.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from joulewise.command import linux
from joulewise.data import RunResult
from joulewise.errors import JoulewiseError
from joulewise.session import group
from joulewise.session.wire import Message, Wire

DEFAULT_RATE_HZ: Final = 10.0
_START_DEADLINE_S: Final = 60.0
_END_DEADLINE_S: Final = 10.0
_LOOK_S: Final = 0.1
_TRIES_TO_JOIN: Final = 50
_FIRST_DESCRIPTOR: Final = 3
_MARKS: Final = "JOULEWISE_MARKS"  # in it, our own process would mark its spans
_HINT: Final = "see what `joulewise doctor` says; the command was not started"
# Not ``-m``: that would look for every module in the user's working directory first.
_MAIN: Final = (
    "import sys; sys.path[:] = [p for p in sys.path if p] + sys.argv[2:]; "
    "from joulewise.session.recorder import main; main(int(sys.argv[1]))"
)


@dataclass(frozen=True)
class Request:
    """What is asked of the recorder; only the first of a group decides."""

    rate_hz: float = DEFAULT_RATE_HZ
    name: str = ""
    tags: tuple[str, ...] = ()
    group: str = ""
    budgets: tuple[str, ...] = ()
    gco2_per_kwh: float | None = None
    price_per_kwh: float | None = None
    epochs: int | None = None
    baseline_s: float = 0.0
    cpu_tdp_w: float | None = None
    hooks: bool = True

    @classmethod
    def told(cls, message: Mapping[str, Any]) -> Request:
        lists = {name: tuple(message[name]) for name in ("tags", "budgets")}
        return cls(**{**message, **lists})


@dataclass(frozen=True)
class Ready:
    """The recorder records: where, what, and how often.

    ``devices`` are (key, name, where its joules come from), the last empty where it has none.
    ``joined`` says that the run is another command's, too.
    """

    run: Path
    devices: tuple[tuple[str, str, str], ...]
    rate_hz: float
    joined: bool = False


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
    ) -> RecorderProcess:
        """Have a recorder make a run in the store, or join the one that serves our group."""
        request = request or Request()
        environ = os.environ if environ is None else environ
        if request.group and linux.HERE:
            for _ in range(_TRIES_TO_JOIN):
                if shared := _join(store, request) or _start(store, request, environ, shared=True):
                    return cls(*shared)
                time.sleep(_LOOK_S)  # the other one is about to end, or does not listen yet
        alone = _start(store, request, environ, shared=False)
        if alone is None:
            raise JoulewiseError("the recorder ended at once", _HINT)
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
        return self._wire.receive()

    def finish(self, give_up: Callable[[], bool] = lambda: False) -> RunResult | None:
        """End the recording; None and a ``remark`` where there is no result to be had.

        ``give_up`` is asked now and then while the result is awaited; the recorder then ends the
        run without us.
        """
        self._wire.send("goodbye")
        while not self._wire.closed:
            if give_up():
                self._over, self.remark = True, "the result is still being computed"
                self._wire.close()
                return None
            for message in self._wire.receive(timeout_s=_LOOK_S):
                if message["kind"] == "result":
                    self._over = True
                    _end(self._wire, self._process)
                    return self._told(message)
                if message["kind"] == "left":  # it goes on without us
                    self._over = True
                    self._wire.close()
                    self.remark = _counted_with(message["others"])
                    return None
        _end(self._wire, self._process)
        return None

    def _told(self, last: Message) -> RunResult | None:
        if last["kind"] == "left":
            others = (
                "another command" if last["others"] == 1 else f"{last['others']} other commands"
            )
            self.remark = f"its energy is counted together with {others} still running"
            return None
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
        _await_close(self._wire)
        self._wire.close()


_Started = tuple[Wire, "subprocess.Popen[bytes] | None", Ready]


def _join(store: Path, request: Request) -> _Started | None:
    wire = group.join(group.address(store, request.group))
    return _greet(wire, None, store, request, shared=True) if wire else None


def _start(
    store: Path, request: Request, environ: Mapping[str, str], *, shared: bool
) -> _Started | None:
    ours, theirs = (_above_standard(end) for end in socket.socketpair())
    with theirs:
        process = subprocess.Popen(
            [
                *(sys.executable, "-W", "ignore", "-c", _MAIN),
                *(str(theirs.fileno()), str(Path(__file__).parents[2])),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            env={name: value for name, value in environ.items() if name != _MARKS},
        )
    return _greet(Wire(ours), process, store, request, shared=shared)


def _greet(
    wire: Wire,
    process: subprocess.Popen[bytes] | None,
    store: Path,
    request: Request,
    *,
    shared: bool,
) -> _Started | None:
    """Say what is wanted, and wait until it records; None where it ends instead."""
    ready = None
    try:
        where = os.path.abspath(store)  # noqa: PTH100  # pathlib's would follow links
        wire.send("start", store=where, shared=shared, request=asdict(request))
        ready = _answer(wire)
    finally:
        if ready is None:
            _end(wire, process)
    return None if ready is None else (wire, process, ready)


def _answer(wire: Wire) -> Ready | None:
    deadline = time.monotonic() + _START_DEADLINE_S
    while not wire.closed:
        for message in wire.receive(timeout_s=_LOOK_S):
            if message["kind"] == "ready":
                return _told_ready(message)
            if message["kind"] == "error":
                raise _told_error(message)
        if time.monotonic() > deadline:
            raise JoulewiseError(f"the recorder is not ready after {_START_DEADLINE_S} s", _HINT)
    return None


def _counted_with(others: int) -> str:
    who = "another command" if others == 1 else f"{others} other commands"
    return f"its energy is counted together with {who} still running"


def _above_standard(end: socket.socket) -> socket.socket:
    """Where stdin, stdout or stderr is closed, a new descriptor would take its place."""
    if end.fileno() >= _FIRST_DESCRIPTOR:
        return end
    with end:
        return socket.socket(fileno=fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR))


def _told_ready(message: Message) -> Ready:
    devices = tuple((key, name, source) for key, name, source in message["devices"])
    return Ready(Path(message["run"]), devices, message["rate_hz"], message["joined"])


def _told_error(message: Message) -> JoulewiseError:
    error = JoulewiseError(message["message"], message["hint"])
    error.exit_status = message["status"]
    return error


def _end(wire: Wire, process: subprocess.Popen[bytes] | None) -> None:
    """Let go; a recorder that does not end by itself soon is stuck in a driver."""
    if process is None:
        wire.close()
        return
    wire.hang_up()
    _await_close(wire)  # which is when it ends
    if not wire.closed:
        process.kill()
    process.wait()
    wire.close()


def _await_close(wire: Wire) -> None:
    deadline = time.monotonic() + _END_DEADLINE_S
    while not wire.closed and time.monotonic() < deadline:
        wire.receive(timeout_s=_LOOK_S)
