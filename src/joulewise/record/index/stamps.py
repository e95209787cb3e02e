"""Listing a store, with what tells whether the files of a folder have changed."""

from __future__ import annotations

import os
import stat
import struct
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from joulewise.units import NS_PER_S

RACY_NS: Final = 2 * NS_PER_S
"""A file that changed so recently may change again within one step of the file system's clock.

2 s is the coarsest step of a file system in use (FAT); ext4, XFS and NFS have milliseconds.
Doubled, new runs are read again for 2 s longer.
"""

_FILE: Final = struct.Struct("=QQqq")  # inode, size, modification time, change time
_ABSENT: Final = bytes(_FILE.size)
_INODE: Final = (1 << 64) - 1
STAMP_B: Final = 2 * _FILE.size


@dataclass(frozen=True)
class StoreListing:
    """Every folder of a kind with the stamp of its files.

    ``passing`` are those of which no row may be kept: they changed just now, are links, or could
    not be stat'ed.
    """

    stamps: dict[bytes, bytes]
    passing: set[bytes] = field(default_factory=set)


def folder_names(parent: Path, excluded: Collection[bytes] = ()) -> list[bytes]:
    """The names of the folders in ``parent``, links to folders included; OSError if unreadable."""
    with os.scandir(os.fsencode(parent)) as entries:
        return [each.name for each in entries if each.is_dir() and each.name not in excluded]


def list_folders(
    parent: Path, files: Sequence[str], excluded: Collection[bytes] = ()
) -> StoreListing:
    """Every folder in ``parent`` and the stamp of ``files`` in each."""
    racy_ns = time.time_ns() - RACY_NS
    ends = [b"/" + os.fsencode(name) for name in files]
    stamps: dict[bytes, bytes] = {}
    passing: set[bytes] = set()
    parent_fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(os.fsencode(parent)) as entries:
            for entry in entries:
                name = entry.name
                if not entry.is_dir() or name in excluded:
                    continue
                if entry.is_symlink():
                    passing.add(name)
                parts = []
                for end in ends:
                    part, is_passing = _stamp(name + end, parent_fd, racy_ns)
                    parts.append(part)
                    if is_passing:
                        passing.add(name)
                stamps[name] = b"".join(parts)
    finally:
        os.close(parent_fd)
    return StoreListing(stamps, passing)


def _stamp(path: bytes, parent_fd: int, racy_ns: int) -> tuple[bytes, bool]:
    """The stamp of a file, and whether what is read of it now may not be kept."""
    try:
        told = os.stat(path, dir_fd=parent_fd, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return _ABSENT, False
    except OSError:
        return _ABSENT, True
    changed_ns = told.st_ctime_ns
    stamp = _FILE.pack(told.st_ino & _INODE, told.st_size, told.st_mtime_ns, changed_ns)
    return stamp, changed_ns >= racy_ns or not stat.S_ISREG(told.st_mode)
