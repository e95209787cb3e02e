"""Telling somebody how far the index is while it is made from nothing."""

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
    """Who is told; the command line puts its bar here."""

    observer: Observer = staticmethod(ignore_progress)
