"""The guardian of one holder, as a process that outlives it.

It has a session of its own and blocks all signals, so that it survives what ends the holder's
whole process group.
"""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from typing import Final, NoReturn

from joulewise.control.deadline_device import open_all_devices
from joulewise.control.guardian import Guardian
from joulewise.control.messages import open_log
from joulewise.control.permissions import refuse_other_users
from joulewise.control.protocol import refused_line
from joulewise.control.restore import recover
from joulewise.control.server import GuardianServer
from joulewise.control.status import await_restored
from joulewise.errors import JoulewiseError
from joulewise.process.json_lines import encode_message
from joulewise.process.state_dir import state_folder

# Chosen. How long it tries to restore what a device refuses, and waits for other guardians before
# it starts. Doubled, a hung device keeps the process twice as long; a lease starts up to 1 s later.
_RESTORE_S: Final = 30.0
_OTHERS_S: Final = 1.0
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
            _send_refusal(holder, error)
        except Exception as error:  # noqa: BLE001  # there is no stderr
            message = f"the guardian of the settings has failed: {type(error).__name__}: {error}"
            _log(message)
            _send_refusal(holder, JoulewiseError(message, _REPORT))
    finally:
        os._exit(0)  # a thread that hangs in a driver must not keep the process


def _guard(holder: socket.socket) -> None:
    state = state_folder(os.environ)
    log = open_log(state, "guardian")
    devices = open_all_devices(os.environ)
    outcomes = [one.outcome for one in recover(state, lambda: devices, log).undone]
    await_restored(state, _OTHERS_S)  # settings that another guardian is restoring become free
    guardian = Guardian(state, devices.values(), log, overridable_rules=[refuse_other_users])
    server = GuardianServer(guardian, log=log)
    connection = server.add(holder)
    connection.send(encode_message("ready", outcomes=[one.as_json() for one in outcomes]))
    server.serve(lambda: len(server) == 0)
    guardian.close(_RESTORE_S)


def _send_refusal(holder: socket.socket, error: JoulewiseError) -> None:
    with suppress(OSError):
        holder.sendall(refused_line(error))


def _log(what: str) -> None:
    with suppress(JoulewiseError):
        open_log(state_folder(os.environ), "guardian")(what)
