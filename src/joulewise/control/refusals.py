"""A log of what callers are refused, in which nobody can drown what others did."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_MOST_LINES: Final = 20  # of one caller in a window
_WINDOW_S: Final = 60.0
_MOST_CALLERS: Final = 256
_REST: Final = "others"


@dataclass
class _Window:
    began_s: float
    lines: int = 0


class Refusals:
    """Tells a few lines of each caller in a while, and counts the rest of them."""

    def __init__(
        self, log: Callable[[str], None], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._now_s = now_s
        self._windows: dict[str, _Window] = {}

    def tell(self, caller: str, line: str) -> None:
        self.sum_up()
        if len(self._windows) >= _MOST_CALLERS and caller not in self._windows:
            caller = _REST
        window = self._windows.setdefault(caller, _Window(self._now_s()))
        window.lines += 1
        if window.lines <= _MOST_LINES:
            self._log(line)

    def sum_up(self, *, everything: bool = False) -> None:
        """Say how much was left out, once a window is over."""
        now_s = self._now_s()
        for caller, window in list(self._windows.items()):
            if everything or now_s - window.began_s >= _WINDOW_S:
                del self._windows[caller]
                if window.lines > _MOST_LINES:
                    self._log(f"and {window.lines - _MOST_LINES:,} more of {caller}")
