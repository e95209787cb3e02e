"""Runs that the sweep has ended: whatever status they left with, they are not whole."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from joulewise.data.sweeps import Planned
from joulewise.record.files import read_regular, replace_file
from joulewise.sweep.naming import log_name

_ENDED: Final = "ended"


def note_ended(folder: Path, planned: Planned) -> None:
    """Before it is told to end: many a program saves its state then, and succeeds."""
    path = _path(folder, planned)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, str(time.time_ns()))


def last_ended_ns(folder: Path, planned: Planned) -> int:
    """When that was done to it last; runs that began later are others."""
    try:
        return int(read_regular(_path(folder, planned)))
    except (OSError, ValueError):
        return 0


def _path(folder: Path, planned: Planned) -> Path:
    return (folder / _ENDED / log_name(planned)).with_suffix("")
