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

from joulewise.command.state import made, state_folder
from joulewise.errors import HeldError, JoulewiseError
from joulewise.sweep.boards import Board

LOCK: Final = "lock"
_GPUS: Final = "gpus"


@contextmanager
def running(folder: Path) -> Iterator[bool]:
    """Have the sweep for oneself, or an error that says who has it. Whether it ever ran before.

    The lock goes with the process, however that ends; the file stays.
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
        os.close(descriptor)


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
