"""One process at a time runs a sweep."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from joulewise.errors import JoulewiseError

LOCK: Final = "lock"


@contextmanager
def running(folder: Path) -> Iterator[bool]:
    """Have the sweep for oneself, or an error that says who has it. Whether it ever ran before.

    The lock goes with the process, however that ends; the file stays.
    """
    path = folder / LOCK
    has_run = path.exists()
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise JoulewiseError(
            f"cannot run the sweep in {folder}: {error.strerror}", "see who owns it: ls -l"
        ) from None
    try:
        if not _is_ours(descriptor):
            raise JoulewiseError(
                f"sweep {folder.name} is being run{_by_whom(path)}",
                "wait until it ends, or end it; --new starts another sweep",
            )
        _sign(descriptor)
        yield has_run
    finally:
        os.close(descriptor)


def _is_ours(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    return True


def _sign(descriptor: int) -> None:
    signed = {"pid": os.getpid(), "host": platform.node(), "since_wall_s": round(time.time())}
    with suppress(OSError):  # on a full disk nobody learns who it is
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(signed).encode(), 0)


def _by_whom(path: Path) -> str:
    """In words; nothing where it is being written just now."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(told["since_wall_s"]))
        return f" by process {told['pid']} on {told['host']} since {since}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
