"""What the recorder has to say besides its rows, in words that go into run.json."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic_ns
from typing import Final

_MOST: Final = 500


class Notes:
    """Things to know, each said once, from whichever thread. There is an end to how many."""

    def __init__(self, now_ns: Callable[[], int] = monotonic_ns) -> None:
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._all: list[dict[str, str]] = []
        self._once: set[tuple[str, str]] = set()

    def add(self, code: str, message: str, device: str = "", **more: str) -> None:
        with self._lock:
            if len(self._all) < _MOST:
                note = {"code": code, "message": message, "t_ns": str(self._now_ns()), **more}
                self._all.append(note | ({"device": device} if device else {}))

    def once(self, code: str, message: str, device: str = "") -> None:
        """Add it unless such a one has been added of this device."""
        with self._lock:
            known = (code, device) in self._once
            self._once.add((code, device))
        if not known:
            self.add(code, message, device)

    def all(self) -> tuple[dict[str, str], ...]:
        with self._lock:
            return tuple(self._all)
