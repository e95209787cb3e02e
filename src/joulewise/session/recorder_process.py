"""The recorder's process: it records for whoever is connected, and ends when all have left.

It has a session of its own and hears no signal but SIGKILL, so that neither Ctrl-C nor a closed
terminal ends it before the run is finished.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

from joulewise.errors import JoulewiseError
from joulewise.process.json_lines import Wire
from joulewise.session import group
from joulewise.session.request import Request

_BUG: Final = "report it, unless the machine is short of memory"
# Read when numpy is first imported: on a large node it would start a thread for every core.
_ONE_THREAD: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def main(descriptor: int) -> NoReturn:
    """Serve the process at the other end of an inherited socket, and whoever joins it."""
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        first = Wire(socket.socket(fileno=descriptor))
        environ = dict(os.environ)
        os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
        try:
            _serve(first, environ)
        except JoulewiseError as error:  # what was asked for cannot be had
            first.send("error", message=error.message, hint=error.hint, status=error.exit_status)
        except Exception as error:  # noqa: BLE001  # said where it is read: there is no stderr
            what = f"the recorder failed with {type(error).__name__}: {error}"
            first.send("failed", message=what, hint=_BUG)
    finally:
        os._exit(0)  # a thread that hangs in a driver must not keep us


def _serve(first: Wire, environ: Mapping[str, str]) -> None:
    wanted = next(iter(first.receive(timeout_s=None)), None)
    if wanted is None:
        return
    store, request = Path(wanted["store"]), Request.told(wanted["request"])
    listener = None
    if wanted["shared"]:
        # Before anything that takes time: who is second joins, and waits for us to be ready.
        listener = group.listen(group.address(store, request.group))
        if listener is None:
            return
    from joulewise.session.recorder_server import Host
    from joulewise.session.recording import Recording

    recording = Recording(store, request, environ, shared=listener is not None)
    Host(recording, first, listener).serve()
