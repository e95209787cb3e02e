"""What the index holds of a kind of folder (runs or sweeps), and where the index lies."""

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
    """A row: ``values`` of the kind's columns in their order, and ``data`` of plain JSON values.

    ``is_open``: a part of it changes while the files do not, and is read again on each use.
    ``is_lasting``: it may be stored; not where reading failed for a reason that may pass.
    """

    values: tuple[Any, ...]
    data: Mapping[str, Any]
    is_open: bool = False
    is_lasting: bool = True


@dataclass(frozen=True)
class FolderKind:
    """Folders of one kind in a store, and how a row is made from one.

    - ``parent``: where they lie below the store; ``excluded``: names there of something else
    - ``files``: the files that a row is made from
    - ``columns``: what can be queried, with SQL types; ``order``: those that a plain list needs
    - ``read``: makes a row and raises nothing; ``current``: updates a row that is open
    - ``version``: changes when a row would be made differently from the same files
    - ``formats``: the newest formats of ``files`` that can be read here. A file of a newer format
      has a row that says so, which is made again once joulewise is newer
    - ``reading_cost``: how long one takes to read, in units of a run
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
"""File systems of one machine, whose locks hold. Of any other that is not known."""

ENDINGS: Final = ("", "-journal", "-wal", "-shm")
"""The ends of the names of an index's file and of those that SQLite makes beside it."""


def index_files(store: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """The paths where the index may lie, the best first; none where only memory is left."""
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

    SQLite replays a journal that lies beside its file, whoever wrote it. And a user could not
    update an index that root left in the user's folder.
    """
    try:
        status = folder.stat()
    except OSError:
        return False
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _are_ours(file: Path) -> bool:
    """The file of an index and those that SQLite has beside it."""
    return all(is_ours(file.with_name(file.name + end)) for end in ENDINGS)


def is_ours(path: Path) -> bool:
    """Whether a path does not exist yet, or is a regular file that we own and may write.

    A file of another user may contain what we may not read, or what is false.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    is_owned = status.st_uid == os.geteuid()
    return is_owned and stat.S_ISREG(status.st_mode) and os.access(path, os.R_OK | os.W_OK)


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
    """Whether a folder is on a file system of this machine; False where that is unknown.

    A line of mountinfo is ``36 35 98:0 /root /mount/point options… - ext4 …``. The longest mount
    point above the folder decides, because files of btrfs and overlay have another device number
    than their mount.
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
