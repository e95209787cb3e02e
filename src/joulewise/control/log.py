"""The log of everything that was turned, by whom, and how it went back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from joulewise.command.state import made

LOG: Final = "control.log"
_MOST_B: Final = 1 << 20


def open_log(state: Path, name: str) -> Callable[[str], None]:
    """Adds a line with its time. A disk that is full costs the line, not the guardian."""
    path = state / LOG

    def log(what: str) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        line = f"{stamp} {name}[{os.getpid()}] {what}".replace("\n", " ") + "\n"
        with suppress(OSError):
            made(state)
            if path.exists() and path.stat().st_size > _MOST_B:
                path.replace(path.with_suffix(".log.1"))
            with open(path, "a", encoding="utf-8", opener=_open) as file:
                file.write(line)

    return log


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)
