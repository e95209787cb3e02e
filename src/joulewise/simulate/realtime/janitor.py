"""A folder that is gone when its owner is, even if the owner was killed with SIGKILL."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from joulewise.errors import SimulationError

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # the folder below it has a random name


class Janitor:
    """Another process that makes a folder and removes it once this process lets go or dies.

    It makes the folder itself, so that there is no moment at which one exists that nobody would
    remove.
    """

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            _watch(theirs)
        theirs.close()
        name = self._line.recv(4096)
        if not name:
            os.waitpid(self._pid, 0)
            raise SimulationError(
                "no temporary folder could be made", "make room in /dev/shm or in $TMPDIR"
            )
        self.folder = Path(os.fsdecode(name))

    def close(self) -> None:
        """Have the folder removed, and see that it is."""
        self._line.close()
        os.waitpid(self._pid, 0)
        # Only where something killed the janitor before us is there anything left to do.
        shutil.rmtree(self.folder, ignore_errors=True)


def _watch(line: socket.socket) -> NoReturn:
    try:
        # A session of its own and no signal but SIGKILL: neither Ctrl-C nor a closed terminal
        # may end it before its owner.
        os.setsid()
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        _keep_only(line.fileno())
        home = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None
        folder = tempfile.mkdtemp(prefix="joulewise-sim-", dir=home)
        try:
            Path(folder).chmod(0o755)  # the command may change its user, and still have its GPUs
            line.sendall(os.fsencode(folder))
            while line.recv(4096):
                pass
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os._exit(0)


def _keep_only(descriptor: int) -> None:
    """Close all else: whoever reads the command's output must not wait for the janitor."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    for other in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if other > 2 and other != descriptor:
            with suppress(OSError):  # the one that listed the folder
                os.close(other)
