"""Who is told how far a long update of the index is. Imported by the command line at its start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

Advance = Callable[[int], None]
"""Called with the number of folders that have been read since the last call."""

Observer = Callable[[int], AbstractContextManager[Advance]]
"""Called with the number of folders to read; what it returns is entered while they are read."""


@contextmanager
def ignore_progress(_total: int) -> Iterator[Advance]:
    yield lambda _count: None


class ProgressSlot:
    """Holds the observer; the command line sets it to its progress bar."""

    observer: Observer = staticmethod(ignore_progress)
