"""The recorder's process: it records for all connected commands, and ends when they have left.

It has a session of its own and blocks all signals, so that neither Ctrl-C nor a closed terminal
ends it before the run is finished.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

from joulewise.errors import JoulewiseError
from joulewise.process.json_lines import JsonSocket
from joulewise.session import group
from joulewise.session.request import Request

_BUG: Final = "report it, unless the machine is short of memory"
# Read when numpy is first imported: on a large node it would start a thread for every core.
_ONE_THREAD: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def main(descriptor: int) -> NoReturn:
    """Serve the process at the other end of an inherited socket, and whoever joins it."""
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        first = JsonSocket(socket.socket(fileno=descriptor))
        environ = dict(os.environ)
        os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
        try:
            _serve(first, environ)
        except JoulewiseError as error:  # the request cannot be met
            first.send("error", message=error.message, hint=error.hint, status=error.exit_status)
        except Exception as error:  # noqa: BLE001  # sent to the client: there is no stderr
            what = f"the recorder failed with {type(error).__name__}: {error}"
            first.send("failed", message=what, hint=_BUG)
    finally:
        os._exit(0)  # a thread that hangs in a driver must not keep the process


def _serve(first: JsonSocket, environ: Mapping[str, str]) -> None:
    start = next(iter(first.receive(timeout_s=None)), None)
    if start is None:
        return
    store, request = Path(start["store"]), Request.from_message(start["request"])
    listener = None
    if start["shared"]:
        # Before anything slow: whoever comes second joins, and waits until we are ready.
        listener = group.listen(group.address(store, request.group))
        if listener is None:
            return
    from joulewise.session.recorder_server import RecorderServer
    from joulewise.session.recording import Recording

    recording = Recording(store, request, environ, shared=listener is not None)
    RecorderServer(recording, first, listener).serve()
