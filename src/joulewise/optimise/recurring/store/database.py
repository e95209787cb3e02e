"""Connections to a job store, transactions that are repeated, and errors in plain words.

A connection lasts for one transaction: a training takes hours, and firewalls and servers cut what
is idle. A transaction that failed for a reason that passes (a lock, a deadlock, a server that
restarts) is begun again, so an action may be called more than once and must have no effect outside
the database.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool

from joulewise.errors import JoulewiseError, UsageError
from joulewise.optimise.recurring.store.address import redact_address, sqlite_path
from joulewise.optimise.recurring.store.tables import REVISION, REVISION_TABLE
from joulewise.store.files import network_file_system

_Result = TypeVar("_Result")

_CONNECT_S: Final = 5
"""How long a server may take to answer (chosen). It is what a training may wait to be refused."""

_SILENT_S: Final = 30
"""How long a server that was reached may not acknowledge anything before the connection counts as
lost (chosen): without a limit, that of the kernel holds, 15 minutes to 2 hours. A server that is
slow, or waits for a lock, still acknowledges. Doubled, a heartbeat may take a minute to end."""

_KEEPALIVE_S: Final = 15  # how long nothing is sent before the server is asked for a sign
_KEEPALIVE_EVERY_S: Final = 5  # and how often then

_LOCK_PATIENCE_S: Final = 300.0
"""How long a transaction is repeated because of locks. Chosen: 64 workers whose policies need 2 s
each are through in 128 s. Doubled: a store that is locked for good is reported later."""

_SERVER_PATIENCE_S: Final = 60.0
"""How long a server that was reachable before may be away (chosen: it restarts). Doubled: the end
of a training is delayed by that much more if it does not come back."""

_BUSY_S: Final = 10.0
"""How long SQLite waits for a lock by itself, before the transaction is begun again (chosen)."""

_IDLE_S: Final = 120
"""After so long without a statement, PostgreSQL ends a transaction and frees its locks: the host of
its worker has died. Chosen: twice what a policy may take for an answer."""

_MIGRATION_LOCK: Final = 0x6A6F756C  # any number that others do not use: "joul" in ASCII

_LEAST_FREE_B: Final = 128 << 10  # chosen: a transaction needs less, with all files of SQLite

_pause = time.sleep  # tests replace it
_MIGRATIONS: Final = Path(__file__).with_name("migrations")

# How a transaction begins. SQLite's writers take the lock at once: two that had both read before
# could not both go on. PostgreSQL has locks of rows.
_READ: Final = "BEGIN"
_WRITE: Final = "BEGIN IMMEDIATE"
_NONE: Final = ""

_TOO_MANY: Final = "53300"  # SQLSTATE: too many connections
_PASSING_CLASSES: Final = {"08", "40", "57"}
"""Of SQLSTATEs: connection, transaction rolled back (deadlock), operator (shutdown)."""
_REFUSED_STATES: Final = {"42501", "3F000"}  # no privilege, no schema that may be written
_WAS_IDLE: Final = "25P03"  # SQLSTATE: longer than _IDLE_S, as when our process had been stopped


class Database:
    """A job store's connections.

    ``now_ns`` is the wall clock to use in place of the server's. ``check`` is called before
    anything is written to a SQLite file, and may refuse it.
    """

    def __init__(
        self,
        address: str | Path,
        *,
        for_writing: bool,
        now_ns: Callable[[], int] | None = None,
        check: Callable[[Database, Connection], None] = lambda *_: None,
    ) -> None:
        self.shown = redact_address(address)
        self.path = sqlite_path(address)
        self._for_writing = for_writing
        self._now_ns = now_ns
        self._was_reached = False
        self._secrets: tuple[str, ...] = ()
        if self.path is None:
            self._engine = self._postgresql_engine(str(address))
        else:
            self._engine = self._sqlite_engine(self.path)
        if for_writing and self.path is not None:
            self.read(lambda connection: check(self, connection))
        self._migrate()
        self._was_reached = True

    def read(self, action: Callable[[Connection], _Result]) -> _Result:
        """Run a query on one state of the database."""
        return self._repeat(action, begin=_READ)

    def write(
        self,
        action: Callable[[Connection], _Result],
        *,
        is_wanted: Callable[[], bool] = lambda: True,
        on_silence: Callable[[str], None] = lambda _: None,
    ) -> _Result:
        """Run an action in a transaction: all of it happens, or nothing.

        It is not repeated once it is no longer wanted. ``on_silence`` is told, once, where it is
        repeated because the server does not answer.
        """
        return self._repeat(action, begin=_WRITE, is_wanted=is_wanted, on_silence=on_silence)

    def now_ns(self, connection: Connection) -> int:
        """The wall clock, in PostgreSQL the server's: the hosts' may differ."""
        if self._now_ns is not None:
            return self._now_ns()
        if self.path is not None:
            return time.time_ns()
        query = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1e6 AS bigint)"
        return int(connection.exec_driver_sql(query).scalar_one()) * 1000

    def _repeat(
        self,
        action: Callable[[Connection], _Result],
        *,
        begin: str,
        is_wanted: Callable[[], bool] = lambda: True,
        on_silence: Callable[[str], None] = lambda _: None,
    ) -> _Result:
        failed_s = None  # when it failed first
        while True:
            try:
                refused: JoulewiseError | None = None
                with self._connect(begin) as connection, connection.begin():
                    try:
                        return action(connection)
                    except JoulewiseError as error:
                        refused = error
                        raise
            except DBAPIError as error:
                if refused is not None:  # there was nothing left to undo: the connection was lost
                    raise refused from None
                patience_s, is_first = self._patience_s(error), failed_s is None
                failed_s = failed_s or time.monotonic()
                if time.monotonic() - failed_s >= patience_s or not is_wanted():
                    raise self._explained(error) from None
                if is_first and patience_s == _SERVER_PATIENCE_S:
                    on_silence(
                        f"the job store {self.shown} does not answer: it is waited for, "
                        f"{patience_s:.0f} s at most"
                    )
            # Random, so that workers who were refused together do not come back together.
            _pause(random.uniform(0.01, 0.2))  # noqa: S311

    def _connect(self, begin: str) -> Connection:
        """A connection whose transaction begins like that, as SQLite has it."""
        connection = self._engine.connect()
        if self.path is None and begin == _READ:
            return connection.execution_options(isolation_level="REPEATABLE READ")
        return connection.execution_options(begin=begin)

    def _sqlite_engine(self, path: Path) -> Engine:
        self._make_folder(path)

        def connect() -> sqlite3.Connection:
            connection = sqlite3.connect(
                f"file:{quote(os.fsencode(path.absolute()))}?{self._sqlite_mode(path)}",
                uri=True,
                timeout=_BUSY_S,
                isolation_level=None,  # transactions are begun below
                check_same_thread=False,
            )
            connection.execute("PRAGMA foreign_keys=ON")
            return connection

        engine = sa.create_engine("sqlite://", creator=connect, poolclass=NullPool)

        @sa.event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            statement = connection.get_execution_options()["begin"]
            if statement:
                connection.exec_driver_sql(statement)

        return engine

    def _make_folder(self, path: Path) -> None:
        if not self._for_writing:
            if not path.exists():
                raise JoulewiseError(
                    f"there is no job store {path}", "`joulewise job run` makes one; or give --jobs"
                )
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise JoulewiseError(
                f"the folder of the job store {path} cannot be made: {error.strerror}",
                "give a place that you can write to with --jobs",
            ) from None

    def _sqlite_mode(self, path: Path) -> str:
        if self._for_writing:
            return "mode=rwc"
        if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
            return "mode=rw"
        # Without the right to make the -shm file beside it, SQLite reads only what cannot change.
        journal = path.with_name(f"{path.name}-wal")
        return "mode=ro" if journal.exists() else "mode=ro&immutable=1"

    def _postgresql_engine(self, address: str) -> Engine:
        try:
            url = make_url(address).set(drivername="postgresql+psycopg")
        except (ArgumentError, ValueError):
            raise UsageError(
                f"{self.shown} is not a URL", "write postgresql://USER@HOST:PORT/DATABASE"
            ) from None
        self._secrets = _secrets(url)
        usual: dict[str, Any] = {
            "connect_timeout": _CONNECT_S,
            "application_name": "joulewise",
            "tcp_user_timeout": _SILENT_S * 1000,
            "keepalives_idle": _KEEPALIVE_S,
            "keepalives_interval": _KEEPALIVE_EVERY_S,
            "keepalives_count": (_SILENT_S - _KEEPALIVE_S) // _KEEPALIVE_EVERY_S,
        }
        options = {name: value for name, value in usual.items() if name not in url.query}
        options["prepare_threshold"] = None  # a pooler may give each transaction another server
        engine = sa.create_engine(url, connect_args=options, poolclass=NullPool)

        @sa.event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            connection.exec_driver_sql(
                f"SET LOCAL idle_in_transaction_session_timeout='{_IDLE_S}s'"
            )

        return engine

    def _migrate(self) -> None:
        """Make the tables, or update those of an older joulewise; refuse those of a newer one."""
        if self.path is not None and self._for_writing and network_file_system(self.path) is None:
            self._use_write_ahead_log()
        revision = self.read(_read_revision)
        self._check_revision(revision)
        if revision != REVISION:
            self.write(self._upgrade)

    def _use_write_ahead_log(self) -> None:
        """Let readers and a writer not wait for each other. The file remembers it."""

        def switch(connection: Connection) -> None:
            if connection.exec_driver_sql("PRAGMA journal_mode").scalar() != "wal":
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")

        self._repeat(switch, begin=_NONE)  # it cannot be changed inside a transaction

    def _upgrade(self, connection: Connection) -> None:
        from alembic import command
        from alembic.config import Config

        if self.path is None:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
        revision = _read_revision(connection)  # again: another process may have been faster
        self._check_revision(revision)
        if revision == REVISION:
            return
        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, REVISION)

    def _check_revision(self, revision: str | None) -> None:
        if revision is None or (revision.isdecimal() and int(revision) <= int(REVISION)):
            return
        raise JoulewiseError(
            f"the job store {self.shown} is of a newer joulewise "
            f"(its schema is {revision}, the newest known here {REVISION})",
            "update joulewise here: pip install --upgrade 'joulewise[jobs]'",
        )

    def _patience_s(self, error: DBAPIError) -> float:
        """How long to repeat a transaction that failed like this; 0 where it would fail again."""
        text = str(error.orig).lower()
        if self.path is not None:
            return _LOCK_PATIENCE_S if "locked" in text or "busy" in text else 0.0
        state = getattr(error.orig, "sqlstate", None)
        if state == _TOO_MANY or "too many clients" in text or "starting up" in text:
            return _LOCK_PATIENCE_S
        if state is None:
            is_lost = isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError)
            return _SERVER_PATIENCE_S if is_lost and self._was_reached else 0.0
        is_passing = state == _WAS_IDLE or state[:2] in _PASSING_CLASSES
        return _SERVER_PATIENCE_S if is_passing else 0.0

    def _explained(self, error: DBAPIError) -> JoulewiseError:
        reason = " ".join(str(error.orig).split("\n", maxsplit=1)[0].split())
        for secret in self._secrets:
            reason = reason.replace(secret, "***")
        store = f"the job store {self.shown}"
        if self.path is not None:
            return _explained_sqlite(store, reason, self.path)
        state = getattr(error.orig, "sqlstate", None)
        if state is None:
            return JoulewiseError(
                f"{store} cannot be reached: {reason}",
                "check its address, that the server runs and lets this user in, and the network",
            )
        if state in _REFUSED_STATES:
            return JoulewiseError(
                f"{store} refuses this user: {reason}",
                "ask who runs it for the right to read and write the tables joulewise_job…",
            )
        return JoulewiseError(f"{store} failed: {reason}", "look into the log of the server")


def _read_revision(connection: Connection) -> str | None:
    """The revision of the tables, or None where there are none."""
    if not sa.inspect(connection).has_table(REVISION_TABLE):
        return None
    revision = connection.exec_driver_sql(f"SELECT version_num FROM {REVISION_TABLE}").scalar()  # noqa: S608
    return None if revision is None else str(revision)


def _explained_sqlite(store: str, reason: str, path: Path) -> JoulewiseError:
    text = reason.lower()
    if "locked" in text or "busy" in text:
        hint = "look for a process that holds it (fuser -v FILE), or give another one with --jobs"
        return JoulewiseError(
            f"{store} has been locked by another process for {_LOCK_PATIENCE_S:.0f} s", hint
        )
    if "not a database" in text or "malformed" in text:
        return JoulewiseError(
            f"{store} is damaged, or no SQLite file: {reason}",
            "put a copy of it back, or move it away: the next `joulewise job run` makes a new one",
        )
    # Where SQLite cannot enlarge the file beside its log, it speaks of an input/output error.
    if "full" in text or ("i/o error" in text and _is_disk_full(path)):
        return JoulewiseError(
            f"{store} cannot be written: the disk is full",
            "free some space, or give a place on another disk with --jobs",
        )
    if "readonly" in text or "unable to open" in text:
        return JoulewiseError(
            f"{store} cannot be opened for writing",
            "check the permissions of the file and its folder, or give another one with --jobs",
        )
    return JoulewiseError(
        f"{store} failed: {reason}",
        "look whether it is sound (sqlite3 FILE 'PRAGMA integrity_check'), "
        "or give another one with --jobs",
    )


def _is_disk_full(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < _LEAST_FREE_B
    except OSError:
        return False


def _secrets(url: URL) -> tuple[str, ...]:
    """What must never be shown: passwords, as they are and as a URL has them."""
    values = [str(url.password)] if url.password else []
    for name, value in url.query.items():
        if "password" in name:
            values += [value] if isinstance(value, str) else value
    return tuple(form for value in values for form in {value, quote(value), quote(value, safe="")})
