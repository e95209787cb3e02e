"""Starting a process of our own that lives apart: in a session of its own, and no child of ours."""

from __future__ import annotations

import fcntl
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_FIRST_DESCRIPTOR: Final = 3
_MARKS: Final = "JOULEWISE_MARKS"  # in it, our own process would mark its spans
# Not ``-m``: that would look for every module in the user's working directory first.
_MAIN: Final = (
    "import os, sys; sys.argv[3] and os.fork() and os._exit(0); "
    "sys.path[:] = [p for p in sys.path if p] + sys.argv[4:]; "
    "from importlib import import_module; import_module(sys.argv[1]).main(int(sys.argv[2]))"
)


def start(
    module: str, environ: Mapping[str, str], *, is_child: bool = False
) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Call ``main`` of a module with one end of a line to us; the other end, and its process.

    Unless ``is_child``, what is told of the process is only its group: it was forked once more, so
    that nobody here has to wait for it.
    """
    ours, theirs = (above_standard(end) for end in socket.socketpair())
    with theirs:
        process = subprocess.Popen(
            [
                *(sys.executable, "-W", "ignore", "-c", _MAIN, module, str(theirs.fileno())),
                *("" if is_child else "apart", str(Path(__file__).parents[2])),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            env={name: value for name, value in environ.items() if name != _MARKS},
        )
    if not is_child:
        process.wait()
    return ours, process


def above_standard(end: socket.socket) -> socket.socket:
    """Where stdin, stdout or stderr is closed, a new descriptor would take its place."""
    if end.fileno() >= _FIRST_DESCRIPTOR:
        return end
    with end:
        return socket.socket(fileno=fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR))
