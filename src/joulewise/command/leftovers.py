"""Whether a guardian was killed before it had put everything back.

Every command asks: it is one look into a folder, and nothing else is loaded for it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

FOLDER: Final = "leases"
ENDING: Final = ".journal"


def has_leftover(state: Path) -> bool:
    """Whether there is a journal that nobody holds: a guardian locks its own while it lives."""
    try:
        with os.scandir(state / FOLDER) as entries:
            return any(entry.name.endswith(ENDING) and _is_free(entry.path) for entry in entries)
    except OSError:
        return False


def _is_free(path: str) -> bool:
    import fcntl  # which not every system has that can show runs

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
