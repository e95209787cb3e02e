"""Ending what is left of a command whose parent was killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import psutil

COMMAND: Final = "JOULEWISE_COMMAND"
"""The variable whose value all processes of one command have in their environment."""

_GRACE_S: Final = 3.0
_ROUNDS: Final = 5


def end_all(token: str, grace_s: float = _GRACE_S) -> None:
    """End every process of the command, politely at first; those it starts meanwhile, too."""
    import psutil

    for _ in range(_ROUNDS):
        left = set(_of(token))
        if not left:
            return
        for process in left:
            with suppress(psutil.Error):  # psutil checks that it is still the same process
                process.terminate()
        _, alive = psutil.wait_procs(left, timeout=grace_s)
        for process in alive:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(alive, timeout=grace_s)


def _of(token: str) -> Iterator[psutil.Process]:
    import psutil

    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(COMMAND) == token:
                yield process
                yield from process.children(recursive=True)
