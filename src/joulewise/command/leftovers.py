"""Whether a guardian was killed before it had put everything back.

Every command asks: it is one look into a folder, and nothing else is loaded for it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from joulewise.command.alive import boot_id, is_gone, pid_namespace

FOLDER: Final = "leases"
ENDING: Final = ".journal"
LOCK: Final = ".lock"
_LONGEST_HEADER_B: Final = 1 << 12


def has_leftover(state: Path) -> bool:
    """Whether there is a journal without its guardian."""
    try:
        with os.scandir(state / FOLDER) as entries:
            return any(entry.name.endswith(ENDING) and not is_live(entry.path) for entry in entries)
    except OSError:
        return False


def may_put_back(state: Path) -> bool:
    """Whether the leftovers are ours to undo; for that, nothing has to be written."""
    try:
        return os.geteuid() in {0, (state / FOLDER).stat().st_uid}
    except OSError:
        return False


def lock_of(journal: str) -> str:
    """What the guardian of this journal locks while it lives.

    Not the journal: everybody can read that, and who can read a file can lock it.
    """
    return journal.removesuffix(ENDING) + LOCK


def is_live(journal: str) -> bool:
    import fcntl  # which not every system has that can show runs

    try:
        descriptor = os.open(lock_of(journal), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # another user's, or somebody has cleaned up
        return _runs(journal)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return _runs(journal)
    finally:
        os.close(descriptor)
    return False


def _runs(journal: str) -> bool:
    """Whether the process runs that the journal names; in another container, nobody can say."""
    import json

    try:
        with open(journal, "rb", opener=_open) as file:
            told = json.loads(file.readline(_LONGEST_HEADER_B))
        if told["boot_id"] != boot_id():
            return False
        of_another = told["namespace"] != pid_namespace()
        return of_another or not is_gone(int(told["pid"]), int(told["ticks"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return False


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
