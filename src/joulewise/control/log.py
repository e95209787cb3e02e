"""The log of everything that was turned, by whom, and how it went back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from joulewise.command.state import made

LOG: Final = "control.log"
REFUSED: Final = "refused.log"  # apart, so that whoever is refused a lot does not push out the rest
_MOST_B: Final = 1 << 20
_KEPT: Final = 8  # full ones
_WINDOW_S: Final = 60.0
_MOST_CALLERS: Final = 256
_REST: Final = "others"


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


class Ration:
    """Tells some lines of each caller in a while, and counts the rest of them.

    So nobody can drown what others did.
    """

    def __init__(
        self,
        log: Callable[[str], None],
        most: int,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """``most`` is how many lines a caller has in a minute."""
        self._log = log
        self._most = most
        self._now_s = now_s
        self._windows: dict[str, _Window] = {}

    def tell(self, caller: str, line: str) -> None:
        self.sum_up()
        if len(self._windows) >= _MOST_CALLERS and caller not in self._windows:
            caller = _REST
        window = self._windows.setdefault(caller, _Window(self._now_s()))
        window.lines += 1
        if window.lines <= self._most:
            self._log(line)

    def sum_up(self, *, everything: bool = False) -> None:
        """Say how much was left out, once a window is over."""
        now_s = self._now_s()
        for caller, window in list(self._windows.items()):
            if everything or now_s - window.began_s >= _WINDOW_S:
                del self._windows[caller]
                if window.lines > self._most:
                    self._log(f"and {window.lines - self._most:,} more of {caller}")


@dataclass
class _Window:
    began_s: float
    lines: int = 0


def _move_on(path: Path) -> None:
    names = [path, *(path.with_suffix(f".log.{number}") for number in range(1, _KEPT + 1))]
    for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
        with suppress(FileNotFoundError):
            newer.replace(older)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)
