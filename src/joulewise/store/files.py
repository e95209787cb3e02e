"""Writing files so that a kill or a power cut loses little: growing files, replaced files.

Reading is for regular files only: a pipe in a run directory would be waited for without end.
"""

from __future__ import annotations

import errno
import os
import stat
import zlib
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from joulewise.process.failpoints import failpoint

# A name or an argument that is not UTF-8 has surrogates (PEP 383), which no file of text can hold.
# They are written as \udcff, which is what JSON has for them.
UNENCODABLE: Final = "backslashreplace"

Prefix = tuple[int, int]
"""A length from the beginning of a file in bytes, and the CRC-32 of that part."""

MOST_PREFIXES: Final = 64
"""Prefixes of one file (chosen). Twice as many halve what damage costs, for 1.3 kB more a file."""


def add_prefix(prefixes: Sequence[Prefix], prefix: Prefix) -> list[Prefix]:
    """A new list with one more prefix; from ``MOST_PREFIXES`` on, about half of the others go.

    Those that stay are evenly spaced over the file, so that damage anywhere in it costs about the
    same: a 32nd of the file.
    """
    if len(prefixes) < MOST_PREFIXES:
        return [*prefixes, prefix]
    step_b = prefix[0] / (MOST_PREFIXES // 2)
    spaced = [prefixes[0]]
    for earlier in prefixes[1:]:
        if earlier[0] - spaced[-1][0] >= step_b:
            spaced.append(earlier)
    return [*spaced, prefix]


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; an OSError for any other kind.

    Opening a pipe without a writer would block, and a device may never end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_regular_bytes(path: Path) -> bytes:
    """The content of a regular file; an OSError for any other kind."""
    with open_regular(path) as file:
        return file.read()


def read_regular(path: Path) -> str:
    """The text of a regular file; an OSError for any other kind."""
    return read_regular_bytes(path).decode("utf-8")


def is_file(path: Path | str) -> bool:
    """Whether a regular file exists; False also where that cannot be determined.

    ``Path.is_file`` raises for a name that is too long and for a folder that may not be searched.
    """
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path | str) -> bool:
    """Whether a folder exists; False also where that cannot be determined."""
    return os.path.isdir(path)  # noqa: PTH112


def path_exists(path: Path | str) -> bool:
    """Whether anything exists there; False also where that cannot be determined."""
    return os.path.exists(path)  # noqa: PTH110


def entry_exists(path: Path | str) -> bool:
    """Whether a directory entry has that name, also a dangling or circular link."""
    return os.path.lexists(path)


def is_entry_folder(entry: os.DirEntry[Any]) -> bool:
    """Whether an entry is a folder; False where that cannot be determined (a circular link)."""
    try:
        return entry.is_dir()
    except OSError:
        return False


_LOCAL: Final = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "reiserfs"}
    | {"squashfs", "tmpfs", "xfs", "zfs"}
)
"""File systems of one machine, whose locks hold. Of any other that is not known."""

_NETWORK: Final = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.s3fs"}
    | {"fuse.sshfs", "gfs2", "gpfs", "lustre", "nfs", "nfs4", "ocfs2", "orangefs", "panfs"}
    | {"smb3", "smbfs", "virtiofs", "wekafs"}
)
"""File systems that several machines can see at once, by the names that Linux mounts them with."""


def is_on_local_disk(folder: Path) -> bool:
    """Whether a folder is on a file system of this machine; False where that is unknown."""
    return file_system(folder) in _LOCAL


def network_file_system(path: Path) -> str | None:
    """The kind of network file system that a path is on (``nfs4``), or None if on none we know."""
    kind = file_system(path)
    return kind if kind in _NETWORK else None


def file_system(path: Path) -> str:
    """The type of the file system that a path is on, as Linux mounts it; empty where unknown.

    A line of mountinfo is ``36 35 98:0 /root /mount/point options… - ext4 …``. The longest mount
    point above the path decides, because files of btrfs and overlay have another device number
    than their mount.
    """
    try:
        where = str(path.resolve())
        lines = Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
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
    return kind


class GrowingFile:
    """A file to which whole pieces are appended, or nothing. ``header`` goes before the first.

    ``prefixes`` has the length and the CRC-32 of the file as it was after its first write, after
    its last, and after up to 62 between them. ``lost`` counts pieces that were given up.
    """

    def __init__(self, path: Path, header: bytes = b"") -> None:
        self.path = path
        self.backlog: deque[bytes] = deque()  # pieces that are still to be written
        self.lost = 0
        self._header = header
        self._descriptor = -1
        self._whole_b = 0
        self._synced_b = 0
        self._crc32 = 0
        self.prefixes: list[Prefix] = []  # replaced, never changed: others may be reading it

    def add(self, piece: bytes) -> None:
        self.backlog.append(piece)

    def flush(self) -> None:
        """Write all waiting pieces; an OSError says why none of them was written."""
        if not self.backlog:
            return
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        pieces = len(self.backlog)
        head = b"" if self._whole_b else self._header
        written = head + b"".join(self.backlog)
        rest, size = memoryview(written), len(written)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            os.ftruncate(self._descriptor, self._whole_b)
            raise
        self._whole_b += size
        self._crc32 = zlib.crc32(written, self._crc32)
        self.prefixes = add_prefix(self.prefixes, (self._whole_b, self._crc32))
        for _ in range(pieces):
            self.backlog.popleft()

    def drop_oldest(self) -> int:
        """Give up the piece that has waited longest; its size in bytes."""
        self.lost += 1
        return len(self.backlog.popleft())

    def sync(self) -> None:
        """Make what was written survive a power cut."""
        if self._synced_b != self._whole_b:
            self._synced_b = self._whole_b
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def replace_file(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace a file as a whole; a reader at any moment finds the old text or the new one.

    What is not ``durable`` may be lost in a power cut: it can be computed again.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8", errors=UNENCODABLE) as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        failpoint(f"before-rename-{path.name}")
        part.replace(path)
        failpoint(f"after-rename-{path.name}")
    except OSError:
        part.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)


def replace_by_reserve(path: Path, text: str, reserve: Path) -> None:
    """Replace a file in the disk space of ``reserve``, which is renamed to it.

    The blocks of the reserve are overwritten, so that this works on a full disk. A longer text, or
    a file system that never overwrites, needs more space.
    """
    with reserve.open("r+", encoding="utf-8", errors=UNENCODABLE) as file:
        file.write(text)
        file.flush()
        file.truncate()
        os.fsync(file.fileno())
    failpoint(f"before-rename-{path.name}")
    reserve.replace(path)
    failpoint(f"after-rename-{path.name}")
    sync(path.parent)


def sync(path: Path) -> None:
    """Make a file's content, or a folder's names, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
