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
REFUSED: Final = "refused.log"  # apart, so that whoever is refused a lot does not push out the rest
_MOST_B: Final = 1 << 20
_KEPT: Final = 8  # full ones


def open_log(state: Path, name: str, file: str = LOG) -> Callable[[str], None]:
    """Adds a line with its time. A disk that is full costs the line, not the guardian."""
    path = state / file
    with suppress(OSError):
        made(state)  # once: who removes it later (a simulation that ends) does not want it back

    def log(what: str) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        line = f"{stamp} {name}[{os.getpid()}] {what}".replace("\n", " ") + "\n"
        with suppress(OSError):
            if path.exists() and path.stat().st_size > _MOST_B:
                _move_on(path)
            with open(path, "a", encoding="utf-8", opener=_open) as opened:
                opened.write(line)

    return log


def _move_on(path: Path) -> None:
    names = [path, *(path.with_suffix(f".log.{number}") for number in range(1, _KEPT + 1))]
    for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
        with suppress(FileNotFoundError):
            newer.replace(older)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)
