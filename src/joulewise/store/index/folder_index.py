"""Querying an index: the store is listed, rows that changed are read again, and stored.

A *stamp* (inode, size and times of the files of a folder) shows whether a row is up to date.
"""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import struct
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from joulewise.store.index.conditions import ALWAYS, SqlCondition
from joulewise.store.index.database import (
    MEMORY,
    DamagedIndexError,
    FolderKind,
    IndexDatabase,
    Row,
    discard,
    index_files,
    is_unusable,
    make_row,
    opened_database,
)
from joulewise.store.index.progress import ProgressSlot
from joulewise.units import NS_PER_S

RACY_NS: Final = 2 * NS_PER_S
"""A file that changed less than this ago may change again with the same times.

2 s is the coarsest step of file times in use (FAT); ext4, XFS and NFS have milliseconds. Doubled,
new runs are read again for 2 s longer.
"""

_FILE: Final = struct.Struct("=QQqq")  # inode, size, modification time, change time
STAMP_B: Final = _FILE.size
"""Size of the stamp of one file in bytes."""

_ABSENT: Final = bytes(_FILE.size)
_GONE: Final = (FileNotFoundError, NotADirectoryError)
_TYPE: Final = 0o170000  # the bits of a mode that tell a file from a folder or a link


@dataclass(frozen=True)
class StoreListing:
    """Every folder of a kind with the stamp of its files.

    ``passing`` are those of which no row may be stored: they changed just now, are links, or could
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
                except OSError:  # such as a circular link
                    continue
                if not is_folder or name in excluded:
                    continue
                parts = []
                is_passing = entry.is_symlink()
                # Not a function: with 100,000 runs each step here costs 10 to 20 ms.
                for end in ends:
                    try:
                        status = get_stat(name + end, dir_fd=parent_fd, follow_symlinks=False)
                    except OSError as error:
                        is_passing |= not isinstance(error, _GONE)
                        parts.append(_ABSENT)
                        continue
                    changed_ns = status.st_ctime_ns
                    is_passing |= changed_ns >= racy_ns or status.st_mode & _TYPE != stat.S_IFREG
                    parts.append(
                        pack(status.st_ino, status.st_size, status.st_mtime_ns, changed_ns)
                    )
                stamps[name] = b"".join(parts)
                if is_passing:
                    passing.add(name)
    finally:
        os.close(parent_fd)
    return StoreListing(stamps, passing)


def stamp_folder(folder: Path, files: Sequence[str]) -> tuple[bytes, bool]:
    """The stamp of one folder, and whether a row made from it now may not be stored."""
    racy_ns = time.time_ns() - RACY_NS
    parts = []
    text = os.fspath(folder)  # a Path for each file would cost more than to stat it
    is_passing = folder.is_symlink()
    for name in files:
        try:
            status = os.lstat(f"{text}/{name}")
        except OSError as error:
            is_passing |= not isinstance(error, _GONE)
            parts.append(_ABSENT)
            continue
        is_passing |= status.st_ctime_ns >= racy_ns or not stat.S_ISREG(status.st_mode)
        times_ns = status.st_mtime_ns, status.st_ctime_ns
        parts.append(_FILE.pack(status.st_ino, status.st_size, *times_ns))
    return b"".join(parts), is_passing


_T = TypeVar("_T")

SMALL_STORE: Final = 64
"""A store with no more runs than this has no index file: reading all takes 20 ms (chosen)."""

_BATCH: Final = 4096
"""Folders that are read between two commits (chosen): an interruption loses 2 s of work."""

_SLOW: Final = 500  # folders, which take about 0.2 s: from here on progress is shown (chosen)
_STEP: Final = 50  # folders between two updates of the progress (chosen)


@dataclass(frozen=True)
class ListPage:
    """Which part of a list: ``order`` is SQL; without a ``limit`` all of it."""

    order: str
    limit: int | None = None
    offset: int = 0


class FolderIndex:
    """The rows of one kind of folder in a store, as they are now."""

    def __init__(self, database: IndexDatabase, data: Callable[[bytes], dict[str, Any]]) -> None:
        self._database = database
        self._data = data

    def count(self, condition: SqlCondition = ALWAYS) -> int:
        sql = f"SELECT count(*) FROM listed WHERE {condition.sql}"  # noqa: S608
        return int(self._database.query(sql, condition.parameters)[0][0])

    def counts(self, conditions: Sequence[SqlCondition]) -> list[int]:
        """How many rows meet each condition, in one pass."""
        sums = ", ".join(f"total(({condition.sql}) IS TRUE)" for condition in conditions)
        parameters = [value for condition in conditions for value in condition.parameters]
        rows = self._database.query(f"SELECT {sums} FROM listed", parameters)  # noqa: S608
        return [int(number) for number in rows[0]]

    def select(self, condition: SqlCondition, page: ListPage) -> list[tuple[str, dict[str, Any]]]:
        """The names of the selected folders with their data."""
        limit = -1 if page.limit is None else page.limit
        rows = self._database.query(
            f"SELECT folder FROM listed WHERE {condition.sql} "  # noqa: S608
            f"ORDER BY {page.order} LIMIT ? OFFSET ?",
            (*condition.parameters, limit, page.offset),
        )
        return [(os.fsdecode(folder), self._data(folder)) for (folder,) in rows]


def query_index(
    store: Path,
    kind: FolderKind,
    use: Callable[[FolderIndex], _T],
    *,
    is_first_file_enough: bool = False,
) -> _T:
    """Bring the index of a store up to date, call ``use`` with it and return its result.

    ``is_first_file_enough``: no condition or order depends on any but the first file of a folder.
    Then the other files are stat'ed only in the folders that are selected.

    A store that cannot be listed is an OSError. ``use`` is called again where the index turns out
    to be damaged, or cannot be used at all and another takes its place.
    """
    parent = store / kind.parent if kind.parent else store
    files = kind.files[:1] if is_first_file_enough else kind.files
    listing = list_folders(parent, files, kind.excluded)
    update = _Update(parent, kind, listing, len(files) * STAMP_B)
    if len(listing.stamps) * kind.reading_cost > SMALL_STORE:
        for file in index_files(store, os.environ):
            result = _try_file(update, file, use)
            if result is not None:
                return result[0]
    return update.run(MEMORY, use)


def _try_file(update: _Update, file: Path, use: Callable[[FolderIndex], _T]) -> tuple[_T] | None:
    """The result of ``use`` with the index in a file, made again if damaged; None if unusable."""
    for _ in range(2):
        try:
            return (update.run(file, use),)
        except (sqlite3.Error, DamagedIndexError, OSError) as error:  # noqa: PERF203
            if not _discard_damaged(file, error):
                return None
    return None


def _discard_damaged(file: Path, error: Exception) -> bool:
    """Delete a damaged index, but not one that is only out of reach; whether it is deleted."""
    if isinstance(error, OSError) or (isinstance(error, sqlite3.Error) and is_unusable(error)):
        return False
    try:
        discard(file)
    except OSError:
        return False
    return True


class _Update:
    """Brings an index up to date with a listing; rows that were read serve for another try, too."""

    def __init__(self, parent: Path, kind: FolderKind, listing: StoreListing, stamp_b: int) -> None:
        self._parent = parent
        self._kind = kind
        self._listing = listing
        self._stamp_b = stamp_b
        self._is_partial = stamp_b < len(kind.files) * STAMP_B
        self._known: dict[bytes, bytes] = {}
        self._rows: dict[bytes, tuple[Row, bool]] = {}
        self._late: list[Row] = []

    def run(self, file: Path, use: Callable[[FolderIndex], _T]) -> _T:
        with opened_database(file, self._kind) as database:
            try:
                self._begin(database, is_written=True)
            except sqlite3.OperationalError as error:
                if not is_unusable(error) or len(self._rows) > _SLOW:
                    raise  # so many rows are better written elsewhere than made on each use
                database.rollback()
                self._begin(database, is_written=False)
            self._late = []
            result = use(FolderIndex(database, lambda folder: self._data(database, folder)))
            try:
                if self._late:
                    database.write(self._late)
                database.commit()
            except (sqlite3.Error, OSError):  # the next command will try again
                database.rollback()
            return result

    def _begin(self, database: IndexDatabase, *, is_written: bool) -> None:
        """Begin a transaction in which the index is up to date, in the file or beside it."""
        known, changed = self._compare(database)
        if is_written and len(changed) > _SLOW:
            database.commit()
            self._write_batches(database, changed)
            known, changed = self._compare(database)
        rows = list(self._read(changed))
        gone = known.keys() - self._listing.stamps.keys()
        lasting = [row for row, is_lasting in rows if is_lasting]
        passing = [row for row, is_lasting in rows if not is_lasting]
        database.make_overlay()
        if is_written:
            stale = [row[0] for row in passing if row[0] in known]
            if lasting or gone or stale:
                database.write(lasting, [*gone, *stale])
            database.overlay(passing, ())
        else:
            database.overlay([*lasting, *passing], gone)
        self._overlay_open(database)

    def _compare(self, database: IndexDatabase) -> tuple[dict[bytes, bytes], list[bytes]]:
        """Begin a transaction; the stamps that the index has, and the folders to read."""
        database.begin()
        self._known = database.stamps()
        return self._known, self._changed(self._known)

    def _write_batches(self, database: IndexDatabase, changed: Sequence[bytes]) -> None:
        """Write in parts, so that other commands wait less and an interruption loses little."""
        rows = self._read(changed)
        while batch := list(islice(rows, _BATCH)):
            database.begin()
            database.write([row for row, is_lasting in batch if is_lasting])
            database.commit()

    def _overlay_open(self, database: IndexDatabase) -> None:
        stamps = self._listing.stamps
        rows = [
            make_row(folder, stamps[folder], self._kind.current(self._path(folder), data))
            for folder, data in database.open_rows()
        ]
        database.overlay(rows, ())

    def _changed(self, known: dict[bytes, bytes]) -> list[bytes]:
        """The folders to read, by name: folders that lie together on disk were made together."""
        if self._is_partial:
            known = {name: stamp[: self._stamp_b] for name, stamp in known.items()}
        get = known.get
        changed = {name for name, stamp in self._listing.stamps.items() if get(name) != stamp}
        return sorted(changed | self._listing.passing.intersection(known))

    def _read(self, folders: Sequence[bytes]) -> Iterator[tuple[Row, bool]]:
        unread = sum(folder not in self._rows for folder in folders)
        if unread <= _SLOW:
            yield from map(self._row, folders)
            return
        with ProgressSlot.observer(unread) as advance:
            for number, folder in enumerate(folders, 1):
                yield self._row(folder)
                if number % _STEP == 0:
                    advance(_STEP)

    def _row(self, folder: bytes) -> tuple[Row, bool]:
        if folder not in self._rows:
            stamp, is_passing = self._listing.stamps[folder], folder in self._listing.passing
            if self._is_partial:  # before it is read, so that a change meanwhile is noticed
                stamp, is_passing = stamp_folder(self._path(folder), self._kind.files)
            record = self._kind.read(self._path(folder))
            row = make_row(folder, stamp, record)
            self._rows[folder] = row, record.is_lasting and not is_passing
        return self._rows[folder]

    def _data(self, database: IndexDatabase, folder: bytes) -> dict[str, Any]:
        """The data of a selected folder, after all its files were stat'ed."""
        if not self._is_partial or folder in self._rows:
            return database.data(folder)
        stamp, is_passing = stamp_folder(self._path(folder), self._kind.files)
        if stamp == self._known.get(folder) and not is_passing:
            return database.data(folder)
        row, is_lasting = self._row(folder)
        if is_lasting:
            self._late.append(row)
        data: dict[str, Any] = json.loads(row[4])
        is_open = row[2]
        return dict(self._kind.current(self._path(folder), data).data) if is_open else data

    def _path(self, folder: bytes) -> Path:
        return self._parent / os.fsdecode(folder)
