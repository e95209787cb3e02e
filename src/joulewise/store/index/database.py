"""The SQLite file of an index: where it lies, its tables, its seal, and its verification.

A table holds one kind of folder, runs or sweeps.

The file is sealed: after each commit its modification time is set to a value that is stored inside.
Where they differ, somebody else has written to it, or we were killed in between: then the checksum
of every row is verified.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sqlite3
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from joulewise.process.linux import boot_id
from joulewise.store.files import is_on_local_disk
from joulewise.store.index.conditions import add_functions
from joulewise.store.layout import INDEX
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


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
    - ``fields``: names and types of what the data of a row hold: a new one makes all rows again
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
    fields: tuple[tuple[str, str], ...] = ()
    reading_cost: int = 1


def fields_of(*classes: type[DataclassInstance]) -> tuple[tuple[str, str], ...]:
    """Names and types of the fields of these dataclasses, for ``FolderKind.fields``."""
    return tuple((field.name, str(field.type)) for each in classes for field in fields(each))


ENDINGS: Final = ("", "-journal", "-wal", "-shm")
"""The ends of the names of an index's file and of those that SQLite makes beside it."""


def index_files(store: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """The paths where the index may lie, the best first; none where only memory is left."""
    inside = store / INDEX
    is_usable = os.access(store, os.W_OK | os.X_OK) and is_on_local_disk(store)
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


MEMORY: Final = Path(":memory:")

_FORMAT: Final = 1
"""Version of the tables; a file of another one is made again."""

_BUSY_S: Final = 2.0
"""How long another process is waited for while it writes. Chosen: a batch takes 0.1 s. After that
a list goes on without the file; twice as long delays such a list by 2 s more."""

_SEAL_NS: Final = 2 * NS_PER_S  # the coarsest step of modification times in use (FAT)
# Between the commit and the seal of another process are microseconds. Chosen: 0.1 s in all, after
# which every row is verified.
_SEAL_CHECKS: Final = 10
_SEAL_PAUSE_S: Final = 0.01

Row = tuple[bytes, bytes, int, tuple[Any, ...], bytes]
"""Folder, stamp, whether it is open, values of the kind's columns, data."""


class DamagedIndexError(Exception):
    """The file is not an index of this version, or is damaged: it has to be made again."""


def make_row(folder: bytes, stamp: bytes, record: Record) -> Row:
    data = json.dumps(record.data, separators=(",", ":")).encode("ascii")
    return folder, stamp, int(record.is_open), record.values, data


class IndexDatabase:
    """One connection to an index, for one kind of folder.

    Errors are sqlite3.Error, or DamagedIndexError.
    """

    def __init__(self, file: Path, kind: FolderKind) -> None:
        self._file = None if file == MEMORY else file
        self._kind = kind
        self._names = tuple(kind.columns)
        self._is_changed = False
        # We begin transactions ourselves, so that a query sees one state of the file.
        self._connection = sqlite3.connect(
            os.fspath(file), timeout=_BUSY_S, isolation_level=None, check_same_thread=True
        )
        try:
            add_functions(self._connection)
            for pragma in ("synchronous=OFF", "temp_store=MEMORY", "cache_spill=OFF"):
                self._connection.execute(f"PRAGMA {pragma}")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; what was not committed is undone."""
        self._connection.close()

    def begin(self) -> None:
        """Begin a transaction: from here on one state of the file, with verified rows."""
        self._connection.execute("BEGIN")
        if not self._has_tables():
            self._make_tables()
        elif self._file is not None and not self._is_sealed():
            self._verify()

    def commit(self) -> None:
        """End the transaction and seal the file, if anything was written."""
        if not self._is_changed or self._file is None:
            self._connection.execute("COMMIT")
            return
        seal_ns = time.time_ns() // _SEAL_NS * _SEAL_NS
        self._set_meta("seal", seal_ns)
        self._set_meta("boot", boot_id())
        self._connection.execute("COMMIT")
        self._is_changed = False
        os.utime(self._file, ns=(seal_ns, seal_ns))

    def rollback(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.execute("ROLLBACK")
        self._is_changed = False

    def stamps(self) -> dict[bytes, bytes]:
        """The stamp of each folder that the file has a row of."""
        return dict(self._connection.execute(f"SELECT folder, stamp FROM {self._kind.table}"))  # noqa: S608

    def write(self, rows: Iterable[Row], gone: Iterable[bytes] = ()) -> None:
        """Insert or replace ``rows``, and delete those of the folders that are ``gone``."""
        table = self._kind.table
        self._delete(table, gone)
        self._insert(f"main.{table}", f"main.{table}_data", rows)

    def _delete(self, table: str, folders: Iterable[bytes]) -> None:
        self._is_changed = True
        gone = [(folder,) for folder in folders]
        for name in (table, f"{table}_data"):
            self._connection.executemany(f"DELETE FROM {name} WHERE folder = ?", gone)  # noqa: S608

    def overlay(self, rows: Iterable[Row], hidden: Iterable[bytes]) -> None:
        """Show ``rows`` in place of the file's own, and nothing of the folders ``hidden``.

        They are in memory, for this connection alone.
        """
        rows = list(rows)
        replaced = [(row[0],) for row in rows]
        names = [*replaced, *((folder,) for folder in hidden)]
        self._connection.executemany("INSERT OR IGNORE INTO temp.hidden VALUES (?)", names)
        for name in ("fresh", "fresh_data"):
            self._connection.executemany(f"DELETE FROM temp.{name} WHERE folder = ?", replaced)  # noqa: S608
        self._insert("temp.fresh", "temp.fresh_data", rows)

    def make_overlay(self) -> None:
        """Make the view ``listed``: the file's rows without the hidden ones, and the fresh ones."""
        table, columns = self._kind.table, self._columns()
        listed = ", ".join(("folder", "is_open", *self._names))
        both = (
            f"SELECT {listed} FROM main.{table} "  # noqa: S608
            "WHERE folder NOT IN (SELECT folder FROM temp.hidden) "
            f"UNION ALL SELECT {listed} FROM temp.fresh"
        )
        for statement in (
            "CREATE TEMP TABLE IF NOT EXISTS hidden (folder BLOB PRIMARY KEY) WITHOUT ROWID",
            f"CREATE TEMP TABLE IF NOT EXISTS fresh ({columns})",
            "CREATE TEMP TABLE IF NOT EXISTS fresh_data (folder BLOB PRIMARY KEY, data BLOB)",
            "DELETE FROM temp.hidden",
            "DELETE FROM temp.fresh",
            "DELETE FROM temp.fresh_data",
            f"CREATE TEMP VIEW IF NOT EXISTS listed AS {both}",
        ):
            self._connection.execute(statement)

    def open_rows(self) -> list[tuple[bytes, Mapping[str, Any]]]:
        """The rows of which a part is read again on each use, with their data."""
        open_folders = self._connection.execute(
            "SELECT folder FROM listed WHERE is_open"
        ).fetchall()
        return [(folder, self.data(folder)) for (folder,) in open_folders]

    def data(self, folder: bytes) -> dict[str, Any]:
        """The data of a folder's row; a DamagedIndexError where there is none."""
        for table in ("temp.fresh_data", f"main.{self._kind.table}_data"):
            query = f"SELECT data FROM {table} WHERE folder = ?"  # noqa: S608
            row = self._connection.execute(query, (folder,)).fetchone()
            if row is not None:
                data: dict[str, Any] = json.loads(row[0])
                return data
        raise DamagedIndexError

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, parameters).fetchall()

    def _insert(self, table: str, data_table: str, rows: Iterable[Row]) -> None:
        rows = list(rows)
        holes = ", ".join("?" * (4 + len(self._names)))
        self._connection.executemany(
            f"INSERT OR REPLACE INTO {table} VALUES ({holes})",  # noqa: S608
            [(*row[:3], _checksum(row), *row[3]) for row in rows],
        )
        self._connection.executemany(
            f"INSERT OR REPLACE INTO {data_table} VALUES (?, ?)",  # noqa: S608
            [(row[0], row[4]) for row in rows],
        )

    def _columns(self) -> str:
        own = ", ".join(f"{name} {kind}" for name, kind in self._kind.columns.items())
        return (
            "folder BLOB PRIMARY KEY, stamp BLOB NOT NULL, is_open INTEGER NOT NULL, "
            f"checksum INTEGER NOT NULL, {own}"
        )

    def _signature(self) -> str:
        kind = self._kind
        made = f"{_FORMAT} {kind.version} {kind.formats} {kind.fields}"
        return f"{made} {self._columns()} {kind.order}"

    def _has_tables(self) -> bool:
        """Whether the tables exist as this version makes them; those of another one are dropped."""
        names = self._table_names()
        if not names:
            return False
        if "meta" not in names:
            raise DamagedIndexError
        table = self._kind.table
        if {table, f"{table}_data"} <= names and self._meta(table) == self._signature():
            return True
        for name in (table, f"{table}_data"):
            self._connection.execute(f"DROP TABLE IF EXISTS {name}")
        return False

    def _make_tables(self) -> None:
        table = self._kind.table
        self._is_changed = True
        for statement in (
            "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value)",
            f"CREATE TABLE {table} ({self._columns()})",
            f"CREATE TABLE {table}_data (folder BLOB PRIMARY KEY, data BLOB NOT NULL)",
            # Each holds all that a frequent query needs: the wide table is not read for it.
            f"CREATE INDEX {table}_stamps ON {table} (folder, stamp)",
            f"CREATE INDEX {table}_order ON {table} ({', '.join(self._kind.order)}, is_open)",
        ):
            self._connection.execute(statement)
        self._set_meta(table, self._signature())

    def _meta(self, key: str) -> Any:
        rows = self.query("SELECT value FROM meta WHERE key = ?", (key,))
        return rows[0][0] if rows else None

    def _set_meta(self, key: str, value: Any) -> None:
        self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def _is_sealed(self) -> bool:
        """Whether only joulewise has written to the file, and in this boot of the machine."""
        if self._meta("boot") != boot_id() or self._file is None:
            return False
        for _ in range(_SEAL_CHECKS):
            if self._file.stat().st_mtime_ns == self._meta("seal"):
                return True
            time.sleep(_SEAL_PAUSE_S)  # a process that has just committed seals it in a moment
        return False

    def _verify(self) -> None:
        """Delete the rows whose checksum is wrong, so that they are made again.

        Of all kinds of folders, because the seal that follows covers the whole file.
        """
        if self.query("PRAGMA integrity_check(1)") != [("ok",)]:
            raise DamagedIndexError
        for table in self._tables():
            bad = [folder for folder, is_good in self._check_rows(table) if not is_good]
            orphans = (
                f"SELECT folder FROM {table}_data "  # noqa: S608
                f"WHERE folder NOT IN (SELECT folder FROM {table})"
            )
            self._delete(table, [*bad, *(folder for (folder,) in self.query(orphans))])

    def _tables(self) -> list[str]:
        """The tables of all kinds in the file; names that no joulewise made are damage."""
        names = self._table_names() - {"meta"}
        tables = sorted(name for name in names if f"{name}_data" in names)
        if not all(name.isidentifier() for name in names) or len(names) != 2 * len(tables):
            raise DamagedIndexError
        return tables

    def _table_names(self) -> set[str]:
        return {
            name
            for (name,) in self.query("SELECT name FROM main.sqlite_master WHERE type = 'table'")
        }

    def _check_rows(self, table: str) -> Iterator[tuple[bytes, bool]]:
        rows = self._connection.execute(
            f"SELECT own.*, held.data FROM {table} AS own "  # noqa: S608
            f"LEFT JOIN {table}_data AS held ON held.folder = own.folder"
        )
        for folder, stamp, is_open, checksum, *values, data in rows:
            row = (folder, stamp, is_open, tuple(values), data)
            yield folder, data is not None and _checksum(row) == checksum


@contextmanager
def opened_database(file: Path, kind: FolderKind) -> Iterator[IndexDatabase]:
    database = IndexDatabase(file, kind)
    try:
        yield database
    finally:
        database.close()


def discard(file: Path) -> None:
    """Delete an index; an OSError where that cannot be done."""
    for end in ENDINGS:
        file.with_name(file.name + end).unlink(missing_ok=True)


def is_unusable(error: sqlite3.Error) -> bool:
    """Whether the file is locked, not writable, full or cannot be opened, rather than damaged."""
    words = ("locked", "readonly", "full", "unable to open", "disk i/o")
    message = str(error).lower()
    return isinstance(error, sqlite3.OperationalError) and any(word in message for word in words)


def _checksum(row: Row) -> int:
    return zlib.crc32(repr(row).encode("utf-8", "surrogatepass"))
