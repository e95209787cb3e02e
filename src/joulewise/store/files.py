"""Files that only grow, files that are replaced as a whole, and neither lost by a power cut."""

from __future__ import annotations

import errno
import os
import stat
import zlib
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from joulewise.process.failpoints import point

# A name or an argument that is not UTF-8 has surrogates (PEP 383), which no file of text can hold.
# They are written as \udcff, which is what JSON has for them.
UNENCODABLE: Final = "backslashreplace"

Prefix = tuple[int, int]
"""How many bytes from the beginning of a file, and their CRC-32."""

MOST_PREFIXES: Final = 64
"""Of a file. With twice as many, half as much is lost around damage, for 1.3 kB more a file."""


def add_prefix(prefixes: Sequence[Prefix], prefix: Prefix) -> list[Prefix]:
    """A new list with one prefix more; where they are many, with about half of the others.

    Those that stay are evenly spaced over the file, so that damage anywhere in it costs about as
    much: a 32nd of the file.
    """
    if len(prefixes) < MOST_PREFIXES:
        return [*prefixes, prefix]
    step_b = prefix[0] / (MOST_PREFIXES // 2)
    spaced = [prefixes[0]]
    for each in prefixes[1:]:
        if each[0] - spaced[-1][0] >= step_b:
            spaced.append(each)
    return [*spaced, prefix]


def open_regular(path: Path) -> BinaryIO:
    """A regular file, open for reading; an OSError for any other kind.

    A pipe without a writer would be waited for without end, and a device may never come to one.
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
    """Its text."""
    return read_regular_bytes(path).decode("utf-8")


def is_file(path: Path | str) -> bool:
    """Whether a regular file is there; False also where that cannot be found out.

    ``Path.is_file`` raises for a name that is too long and for a folder that may not be searched.
    """
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path | str) -> bool:
    """The same of a folder."""
    return os.path.isdir(path)  # noqa: PTH112


def path_exists(path: Path | str) -> bool:
    """Whether anything is there; False also where that cannot be found out."""
    return os.path.exists(path)  # noqa: PTH110


def is_there(path: Path | str) -> bool:
    """Whether a directory entry has that name, also a link that leads nowhere or to itself."""
    return os.path.lexists(path)


def is_entry_folder(entry: os.DirEntry[Any]) -> bool:
    """Whether an entry is a folder; False for a link that leads back to itself, for example."""
    try:
        return entry.is_dir()
    except OSError:
        return False


class GrowingFile:
    """A file that takes whole pieces or nothing. It begins with ``header`` once it has a piece.

    ``prefixes`` has the CRC-32 of what had been written at several times, with how many bytes that
    was: of the first write and of the last, and of up to 62 between them.
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
        """Write what waits, or raise the OSError that says why none of it was written."""
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
        """Give up the piece that has waited longest; how large it was."""
        self.lost += 1
        return len(self.backlog.popleft())

    def sync(self) -> None:
        if self._synced_b != self._whole_b:
            self._synced_b = self._whole_b
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def replace_file(path: Path, text: str, *, durable: bool = True) -> None:
    """Put ``text`` in place of what is there; a reader meanwhile finds the one or the other.

    What is not ``durable`` may be gone after a power cut: it can be made again.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8", errors=UNENCODABLE) as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        point(f"before-rename-{path.name}")
        part.replace(path)
        point(f"after-rename-{path.name}")
    except OSError:
        part.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)


def replace_by_reserve(path: Path, text: str, reserve: Path) -> None:
    """The same as :func:`replace_file` in the room that ``reserve`` takes, which is gone then.

    Its blocks are written over, so that nobody else can take them on a full disk. A text that is
    longer, or a file system that never writes over, needs more room.
    """
    with reserve.open("r+", encoding="utf-8", errors=UNENCODABLE) as file:
        file.write(text)
        file.flush()
        file.truncate()
        os.fsync(file.fileno())
    point(f"before-rename-{path.name}")
    reserve.replace(path)
    point(f"after-rename-{path.name}")
    sync(path.parent)


def sync(path: Path) -> None:
    """Have a file's content, or a folder's names, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
