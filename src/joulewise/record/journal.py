"""Lines of JSON that wait to be written."""

from __future__ import annotations

import threading


class Journal:
    """Added to by any thread and taken by the one that writes; there is an end to how many."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._lock = threading.Lock()
        self._lines: list[str] = []

    def add(self, line: str) -> bool:
        """Whether there was room for it."""
        with self._lock:
            if self._left <= 0:
                return False
            self._left -= 1
            self._lines.append(line + "\n")
            return True

    def take(self) -> bytes:
        with self._lock:
            lines, self._lines = self._lines, []
        return "".join(lines).encode()
