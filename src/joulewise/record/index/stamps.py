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
STAMP_B: Final = _FILE.size
"""Bytes of a stamp for each file."""

_ABSENT: Final = bytes(_FILE.size)
_GONE: Final = (FileNotFoundError, NotADirectoryError)
_TYPE: Final = 0o170000  # the bits of a mode that tell a file from a folder or a link


@dataclass(frozen=True)
class StoreListing:
    """Every folder of a kind with the stamp of its files.

    ``passing`` are those of which no row may be kept: they changed just now, are links, or could
    not be stat'ed.
    """

    stamps: dict[bytes, bytes]
    passing: set[bytes] = field(default_factory=set)


def list_folders(
    parent: Path, files: Sequence[str], excluded: Collection[bytes] = ()
) -> StoreListing:
    """Every folder in ``parent`` and the stamp of ``files`` in each."""
    racy_ns = time.time_ns() - RACY_NS
    ends = [b"/" + os.fsencode(name) for name in files]
    stamps: dict[bytes, bytes] = {}
    passing: set[bytes] = set()
    get_stat, pack = os.stat, _FILE.pack
    parent_fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(os.fsencode(parent)) as entries:
            for entry in entries:
                name = entry.name
                try:
                    is_folder = entry.is_dir()
                except OSError:  # such as a link that leads back to itself
                    continue
                if not is_folder or name in excluded:
                    continue
                parts = []
                is_passing = entry.is_symlink()
                # Written out, not called: of 100,000 runs each step here costs 10 to 20 ms.
                for end in ends:
                    try:
                        told = get_stat(name + end, dir_fd=parent_fd, follow_symlinks=False)
                    except OSError as error:
                        is_passing |= not isinstance(error, _GONE)
                        parts.append(_ABSENT)
                        continue
                    changed_ns = told.st_ctime_ns
                    is_passing |= changed_ns >= racy_ns or told.st_mode & _TYPE != stat.S_IFREG
                    parts.append(pack(told.st_ino, told.st_size, told.st_mtime_ns, changed_ns))
                stamps[name] = b"".join(parts)
                if is_passing:
                    passing.add(name)
    finally:
        os.close(parent_fd)
    return StoreListing(stamps, passing)


def stamp_folder(folder: Path, files: Sequence[str]) -> tuple[bytes, bool]:
    """The stamp of one folder, and whether what is read of it now may not be kept."""
    racy_ns = time.time_ns() - RACY_NS
    parts = []
    text = os.fspath(folder)  # a Path for each file would cost more than to stat it
    is_passing = folder.is_symlink()
    for name in files:
        try:
            told = os.lstat(f"{text}/{name}")
        except OSError as error:
            is_passing |= not isinstance(error, _GONE)
            parts.append(_ABSENT)
            continue
        is_passing |= told.st_ctime_ns >= racy_ns or not stat.S_ISREG(told.st_mode)
        parts.append(_FILE.pack(told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns))
    return b"".join(parts), is_passing
