"""NVML's initialisation, which all devices of this process share.

NVML counts its users itself, but a slow driver answers ``nvmlInit`` as slowly as any other call,
and one caller at a time: for eight GPUs, that would take longer than reading them.
"""

from __future__ import annotations

import threading
from contextlib import suppress

import pynvml

_lock = threading.Lock()
_users = 0


def acquire() -> None:
    """Initialise NVML for one more user. Raises NVMLError where that fails."""
    global _users  # noqa: PLW0603  # NVML is one per process
    with _lock:
        if _users == 0:
            pynvml.nvmlInit()
        _users += 1


def release() -> None:
    """One user less: the last one shuts NVML down."""
    global _users  # noqa: PLW0603
    with _lock:
        _users -= 1
        if _users == 0:
            with suppress(pynvml.NVMLError):  # the driver went first
                pynvml.nvmlShutdown()
