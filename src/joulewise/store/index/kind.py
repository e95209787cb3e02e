"""What the index holds of a kind of folder: runs, or sweeps.

Where the index of a store lies.
"""

from __future__ import annotations

import hashlib
import os
import platform
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from joulewise.store.layout import INDEX


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
    ``reading_cost`` is how long one takes to read, in runs.
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
    reading_cost: int = 1


_LOCAL: Final = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "reiserfs"}
    | {"squashfs", "tmpfs", "xfs", "zfs"}
)
"""File systems of this machine alone, whose locks hold. Of any other that is not known."""


ENDINGS: Final = ("", "-journal", "-wal", "-shm")
"""Of the names of an index's file and of those that SQLite makes beside it."""


def index_files(store: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """Where the index may lie, the best place first; none where only memory is left."""
    inside = store / INDEX
    is_usable = os.access(store, os.W_OK | os.X_OK) and _is_local(store)
    if is_usable and is_private(store) and _are_ours(inside):
        yield inside
    cache = _cache_folder(environ)
    if cache is not None:
        key = hashlib.sha256(os.fsencode(f"{store.resolve()}\0{platform.node()}")).hexdigest()[:24]
        if _are_ours(cache / f"{key}.sqlite"):
            yield cache / f"{key}.sqlite"


def is_private(folder: Path) -> bool:
    """Whether nobody but us (and root) can put files into a folder.

    SQLite replays a journal that lies beside its file, whoever wrote it. And what root would leave
    in the folder of a user, that user could not bring up to date.
    """
    try:
        told = folder.stat()
    except OSError:
        return False
    return told.st_uid == os.geteuid() and not told.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _are_ours(file: Path) -> bool:
    """The file of an index and those that SQLite has beside it."""
    return all(is_ours(file.with_name(file.name + end)) for end in ENDINGS)


def is_ours(path: Path) -> bool:
    """Whether it is not there yet, or a plain file that we own and may write.

    What another user has made may say what we may not read, or what is not so.
    """
    try:
        told = path.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    owned = told.st_uid == os.geteuid()
    return owned and stat.S_ISREG(told.st_mode) and os.access(path, os.R_OK | os.W_OK)


def _cache_folder(environ: Mapping[str, str]) -> Path | None:
    base = Path(environ.get("XDG_CACHE_HOME", ""))
    try:
        # The specification says to ignore a path that is not absolute.
        base = base if base.is_absolute() else Path("~/.cache").expanduser()
        folder = base / "joulewise" / "indexes"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, RuntimeError):
        return None
    return folder if is_private(folder) else None


def _is_local(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Whether the folder is on a file system of this machine; not where the kernel does not tell.

    A line is ``36 35 98:0 /root /mount/point options… - ext4 …``. btrfs and overlay give their
    files another device number than the mount has: the mount point decides, the longest one.
    """
    try:
        where = str(folder.resolve())
        lines = mounts.read_text("utf-8", "replace").splitlines()
    except OSError:
        return False
    best, kind = "", ""
    for line in lines:
        fields, _, rest = line.partition(" - ")
        words = fields.split()
        if len(words) < 5 or not rest:
            continue
        point = words[4].replace("\\040", " ")
        is_above = where == point or where.startswith(point.rstrip("/") + "/")
        if is_above and len(point) >= len(best):
            best, kind = point, rest.split()[0]
    return kind in _LOCAL
