"""What the index holds of a kind of folder: runs, or sweeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Record:
    """A row: ``values`` of the kind's columns in their order, and ``data`` that is plain JSON.

    ``is_open``: part of it changes without a change of the files, and is asked for on each use.
    ``is_lasting``: it may be kept; not where reading failed for a reason that may pass.
    """

    values: tuple[Any, ...]
    data: Mapping[str, Any]
    is_open: bool = False
    is_lasting: bool = True


@dataclass(frozen=True)
class FolderKind:
    """Folders of one kind in a store, and how a row is made of one.

    ``parent`` is where they lie below the store, ``excluded`` are names there of something else.
    ``files`` are those that a row is made of. ``columns`` are what can be queried, with their SQL
    types, and ``order`` those that a list without a filter needs. ``read`` makes a row and raises
    nothing; ``current`` makes the row of now of one that is open. ``version`` changes when a row
    would be made differently from the same files. ``formats`` are the newest formats of ``files``
    that can be read here: a file of a newer one has a row that says so, until joulewise is newer.
    """

    table: str
    parent: str
    excluded: frozenset[bytes]
    files: tuple[str, ...]
    columns: Mapping[str, str]
    order: tuple[str, ...]
    read: Callable[[Path], Record]
    current: Callable[[Path, Mapping[str, Any]], Record]
    version: int
    formats: tuple[int, ...] = ()
