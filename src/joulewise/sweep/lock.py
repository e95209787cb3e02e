"""One process at a time runs a sweep, and one sweep at a time has a GPU."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from joulewise.command.alive import boot_id, is_alive, pid_namespace, started_ticks
from joulewise.command.state import made, state_folder
from joulewise.errors import HeldError, JoulewiseError
from joulewise.record.files import read_regular
from joulewise.sweep.boards import Board

LOCK: Final = "lock"
_GPUS: Final = "gpus"
_HOME: Final = ("host", "boot_id", "pid_namespace")


@contextmanager
def running(folder: Path) -> Iterator[bool]:
    """Have the sweep for oneself, or an error that says who has it. Whether it ever ran before.

    The lock goes with the process, however that ends; the file stays, and is empty where it was
    given up.
    """
    path = folder / LOCK
    has_run = path.exists()
    refusal = f"sweep {folder.name} is being run", "; --new starts another sweep"
    try:
        descriptor = _locked(path, *refusal)
    except OSError as error:
        raise JoulewiseError(
            f"cannot run the sweep in {folder}: {error.strerror}", "see who owns it: ls -l"
        ) from None
    try:
        yield has_run
    finally:
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
        os.close(descriptor)


def is_running(folder: Path) -> bool:
    """Whether the process that signed the lock of a sweep still has it.

    The lock itself is not tried: to have it for a moment would refuse it to who starts just then.
    Of another machine, boot or container nobody can see that process, and it counts as alive.
    """
    try:
        signed = json.loads(read_regular(folder / LOCK))
        home = tuple(signed[name] for name in _HOME)
        pid, ticks = int(signed["pid"]), int(signed["started_ticks"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    host, boot, namespace = _home()
    if home[0] == host and home[1] != boot:
        return False  # nothing outlives a boot
    return home != (host, boot, namespace) or is_alive(pid, ticks)


@contextmanager
def having(gpus: Iterable[Board]) -> Iterator[None]:
    """Have GPUs for one's sweeps, also between two runs; an error that says who has one.

    Where nothing can be written they are had by nobody: then only leases keep runs apart.
    """
    with ExitStack() as stack:
        for gpu in gpus:
            with suppress(OSError):
                folder = made(made(state_folder(os.environ)) / _GPUS)
                refusal = f"{gpu.key} is used by a sweep that is run", "; --gpu names other GPUs"
                descriptor = _locked(folder / quote(gpu.uid, safe=""), *refusal)
                stack.callback(os.close, descriptor)
        yield


def _locked(path: Path, held: str, instead: str) -> int:
    """The file, locked and signed until it is closed; an OSError where it cannot be opened."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    if not _is_ours(descriptor):
        os.close(descriptor)
        raise HeldError(f"{held}{_by_whom(path)}", f"wait until it ends, or end it{instead}")
    _sign(descriptor)
    return descriptor


def _is_ours(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    return True


def _sign(descriptor: int) -> None:
    pid = os.getpid()
    signed = {
        "pid": pid,
        "started_ticks": started_ticks(pid),
        "since_wall_s": round(time.time()),
        **dict(zip(_HOME, _home(), strict=True)),
    }
    with suppress(OSError):  # on a full disk nobody learns who it is
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(signed).encode(), 0)


def _home() -> tuple[str, str, str]:
    """Where process ids mean what they mean to us."""
    return platform.node(), boot_id(), pid_namespace()


def _by_whom(path: Path) -> str:
    """In words; nothing where it is being written just now."""
    try:
        told = json.loads(read_regular(path))
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(told["since_wall_s"]))
        return f" by process {told['pid']} on {told['host']} since {since}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
