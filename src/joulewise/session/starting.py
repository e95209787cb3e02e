"""Starting a recorder, or joining one, until it records; and seeing it end."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Final

from joulewise.command.apart import start as start_apart
from joulewise.errors import JoulewiseError
from joulewise.record.store import not_made
from joulewise.session import group
from joulewise.session.request import Ready, Request
from joulewise.session.sight import Sight
from joulewise.session.wire import Message, Wire

_HINT: Final = "see what `joulewise doctor` says"
_START_DEADLINE_S: Final = 20.0
_END_DEADLINE_S: Final = 10.0
_REAP_DEADLINE_S: Final = 1.0
_REAP_LOOK_S: Final = 0.001
_LOOK_S: Final = 0.1
_MAIN: Final = "joulewise.session.recorder"


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
