"""The guardian of one holder, as a process that outlives it.

It has a session of its own and hears no signal but SIGKILL, so that what ends the holder's whole
process group leaves the one who cleans up.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from joulewise.command.state import state_folder
from joulewise.control.everything import every_device
from joulewise.control.guardian import Guardian
from joulewise.control.holds import Outcome
from joulewise.control.log import open_log
from joulewise.control.protocol import line, refused_line
from joulewise.control.recovery import recover
from joulewise.control.server import Server
from joulewise.control.tenants import no_strangers
from joulewise.devices import Device
from joulewise.errors import JoulewiseError

_PATIENCE_S: Final = 30.0
_LOOK_S: Final = 0.5


def main(descriptor: int) -> NoReturn:
    """Serve the process at the other end of an inherited socket until it is gone."""
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        os.chdir("/")
        holder = socket.socket(fileno=descriptor)
        try:
            _guard(holder)
        except JoulewiseError as error:
            with suppress(OSError):
                holder.sendall(refused_line(error))
    finally:
        os._exit(0)  # a thread that hangs in a driver must not keep us


def _guard(holder: socket.socket) -> None:
    state = state_folder(os.environ)
    log = open_log(state, "guardian")
    devices = every_device(os.environ)
    undone = _recovered(state, devices, log)
    guardian = Guardian(state, devices.values(), log, courtesies=[no_strangers])
    server = Server(guardian, log=log)
    connection = server.take(holder)
    connection.send(line(kind="ready", outcomes=[each.as_json() for each in undone]))
    server.serve(lambda: len(server) == 0)
    deadline_s = time.monotonic() + _PATIENCE_S
    while not guardian.mend() and time.monotonic() < deadline_s:
        time.sleep(_LOOK_S)
    guardian.close()


def _recovered(
    state: Path, devices: Mapping[str, Device], log: Callable[[str], None]
) -> list[Outcome]:
    try:
        return [each.outcome for each in recover(state, lambda: devices, log).undone]
    except OSError:  # the first lease says what is wrong with the folder
        return []
