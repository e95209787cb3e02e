"""Finding and killing the processes of a round, and waiting for what must come of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from joulewise.process.linux import stat_fields

DEADLINE_S = 60.0
MARK = "JOULEWISE_ROUND"
GUARDIAN = "joulewise.control.guardian_process"


class LeftError(Exception):
    """Something that must not be after a kill."""


def marked(token: str) -> list[int]:
    """Everyone who has inherited the round's mark, and lives."""
    needle = f"{MARK}={token}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and not ended(int(entry.name)):
            try:
                environ = Path(entry.path, "environ").read_bytes()
            except OSError:
                continue
            if needle in environ:
                found.append(int(entry.name))
    return found


def words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def is_stopped(pid: int | None) -> bool:
    return pid is not None and state(pid) == "T"


def ended(pid: int) -> bool:
    return state(pid) == "Z"


def state(pid: int) -> str:
    fields = stat_fields(pid)
    return fields[0] if fields else "Z"


def kill_all(token: str) -> None:
    for pid in marked(token):
        kill(pid, signal.SIGKILL)


def kill(pid: int, number: int) -> None:
    if pid:
        with suppress(ProcessLookupError):  # it may have ended just now
            os.kill(pid, number)


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise LeftError(f"waited in vain until {what}")
        time.sleep(0.005)
