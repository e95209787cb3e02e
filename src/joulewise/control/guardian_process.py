"""The guardian of one holder, as a process that outlives it.

It has a session of its own and hears no signal but SIGKILL, so that what ends the holder's whole
process group leaves the one who cleans up.
"""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from typing import Final, NoReturn

from joulewise.control.deadline_device import every_device
from joulewise.control.guardian import Guardian
from joulewise.control.messages import open_log
from joulewise.control.permissions import no_strangers
from joulewise.control.protocol import line, refused_line
from joulewise.control.restore import recover
from joulewise.control.server import GuardianServer
from joulewise.control.status import settled
from joulewise.errors import JoulewiseError
from joulewise.process.state_dir import state_folder

_PATIENCE_S: Final = 30.0
_SETTLED_S: Final = 1.0
_REPORT: Final = "run `joulewise restore`, and report this: it is a bug"


def main(descriptor: int) -> NoReturn:
    """Serve the process at the other end of an inherited socket until it is gone."""
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        os.chdir("/")
        holder = socket.socket(fileno=descriptor)
        try:
            _guard(holder)
        except JoulewiseError as error:
            _refuse(holder, error)
        except Exception as error:  # noqa: BLE001  # nobody else would hear of it
            what = f"the guardian of the knobs has failed: {type(error).__name__}: {error}"
            _log(what)
            _refuse(holder, JoulewiseError(what, _REPORT))
    finally:
        os._exit(0)  # a thread that hangs in a driver must not keep us


def _guard(holder: socket.socket) -> None:
    state = state_folder(os.environ)
    log = open_log(state, "guardian")
    devices = every_device(os.environ)
    undone = [each.outcome for each in recover(state, lambda: devices, log).undone]
    settled(state, _SETTLED_S)  # what another puts back at this moment is free in the next
    guardian = Guardian(state, devices.values(), log, courtesies=[no_strangers])
    server = GuardianServer(guardian, log=log)
    connection = server.take(holder)
    connection.send(line(kind="ready", outcomes=[each.as_json() for each in undone]))
    server.serve(lambda: len(server) == 0)
    guardian.close(_PATIENCE_S)


def _refuse(holder: socket.socket, error: JoulewiseError) -> None:
    with suppress(OSError):
        holder.sendall(refused_line(error))


def _log(what: str) -> None:
    with suppress(JoulewiseError):
        open_log(state_folder(os.environ), "guardian")(what)
