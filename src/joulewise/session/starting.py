"""Starting a recorder, or joining one, until it records; and seeing it end."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Final

from joulewise.errors import JoulewiseError
from joulewise.session import group
from joulewise.session.request import Ready, Request
from joulewise.session.wire import Message, Wire

_HINT: Final = "see what `joulewise doctor` says"
_START_DEADLINE_S: Final = 20.0
_END_DEADLINE_S: Final = 10.0
_REAP_DEADLINE_S: Final = 1.0
_REAP_LOOK_S: Final = 0.001
_LOOK_S: Final = 0.1
_FIRST_DESCRIPTOR: Final = 3
_MARKS: Final = "JOULEWISE_MARKS"  # in it, our own process would mark its spans
# Not ``-m``: that would look for every module in the user's working directory first.
_MAIN: Final = (
    "import os, sys; sys.argv[2] and os.fork() and os._exit(0); "
    "sys.path[:] = [p for p in sys.path if p] + sys.argv[3:]; "
    "from joulewise.session.recorder import main; main(int(sys.argv[1]))"
)


class NotReadyError(JoulewiseError):
    """The recorder failed, is dead or hangs: nothing that a user could mend."""

    def __init__(self, message: str, hint: str = _HINT) -> None:
        super().__init__(message, hint)


Started = tuple[Wire, "subprocess.Popen[bytes] | None", Ready]


def join(store: Path, request: Request) -> Started | None:
    wire = group.join(group.address(store, request.group))
    return _greet(wire, None, store, request, shared=True) if wire else None


def start(
    store: Path, request: Request, environ: Mapping[str, str], *, shared: bool, apart: bool = False
) -> Started | None:
    """A recorder of our own; ``apart`` it is no child of ours, and known by its process group."""
    ours, theirs = (_above_standard(end) for end in socket.socketpair())
    with theirs:
        process = subprocess.Popen(
            [
                *(sys.executable, "-W", "ignore", "-c", _MAIN),
                *(str(theirs.fileno()), "apart" if apart else "", str(Path(__file__).parents[2])),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            env={name: value for name, value in environ.items() if name != _MARKS},
        )
    if apart:
        process.wait()
    return _greet(Wire(ours), process, store, request, shared=shared)


def _greet(
    wire: Wire,
    process: subprocess.Popen[bytes] | None,
    store: Path,
    request: Request,
    *,
    shared: bool,
) -> Started | None:
    """Say what is wanted, and wait until it records; None where it ends instead."""
    ready = None
    try:
        where = os.path.abspath(store)  # noqa: PTH100  # pathlib's would follow links
        wire.send("start", store=where, shared=shared, request=asdict(request))
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


def _above_standard(end: socket.socket) -> socket.socket:
    """Where stdin, stdout or stderr is closed, a new descriptor would take its place."""
    if end.fileno() >= _FIRST_DESCRIPTOR:
        return end
    with end:
        return socket.socket(fileno=fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR))


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
