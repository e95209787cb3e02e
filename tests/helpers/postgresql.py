"""A real PostgreSQL server in a temporary folder, on the loopback and on a socket of its own.

PostgreSQL refuses to run as root, and needs an account for the user that it runs as: root starts it
as ``postgres``, which Debian's package makes, anybody else as themselves.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from joulewise.process.linux import die_with_parent

PASSWORD = "s3cret&word"  # of the user `team`; has a character that a URL must quote
_START_S = 60.0  # chosen: a start takes 0.2 s on an idle machine
_HBA = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
_DATABASES = itertools.count()


def missing() -> str:
    """Why no server can be started here; empty where one can."""
    if _programs() is None:
        return "PostgreSQL is not installed (script/system-packages)"
    try:
        pwd.getpwnam("postgres") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    except KeyError:
        return "PostgreSQL needs a user with an account"
    return ""


@dataclass
class PostgresServer:
    """A running server. ``url`` is of its socket, where everybody may be everybody."""

    folder: Path
    port: int
    _program: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}&port={self.port}"

    def password_url(self, database: str = "postgres", password: str = "s3cret%26word") -> str:
        """Over the loopback, with the password of the user ``team`` as a URL has it."""
        return f"postgresql://team:{password}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def new_database(self) -> str:
        """Make an empty database that the user ``team`` owns; its name."""
        name = f"jobs{next(_DATABASES)}"
        self.execute(f"CREATE DATABASE {name} OWNER team")
        return name

    def start(self) -> None:
        parent = os.getpid()
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program / "postgres", "-D", self.folder / "data"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=lambda: die_with_parent(parent),  # noqa: PLW1509 - it only makes a call
                **_account(),
            )  # fmt: skip
        until_s = time.monotonic() + _START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until_s:
                raise RuntimeError((self.folder / "log").read_text())
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        """Disconnect everybody and shut down."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # fast shutdown
            self._process.wait()
            self._process = None


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Start a server with a user ``team``; it is stopped and deleted at the end."""
    program = _programs()
    assert program is not None
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # a socket's path is short
    server = PostgresServer(folder, _free_port(), program)
    try:
        if os.geteuid() == 0:
            account = pwd.getpwnam("postgres")
            os.chown(folder, account.pw_uid, account.pw_gid)
        folder.chmod(0o755)
        initdb = [program / "initdb", "-D", folder / "data", "-U", "postgres"]
        subprocess.run(
            [*initdb, "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"],
            check=True, capture_output=True, cwd=folder, **_account(),
        )  # fmt: skip
        (folder / "data" / "pg_hba.conf").write_text(_HBA)
        with (folder / "data" / "postgresql.conf").open("a") as configuration:
            configuration.write(
                f"listen_addresses = '127.0.0.1'\nport = {server.port}\n"
                f"unix_socket_directories = '{folder}'\nmax_connections = 120\nfsync = off\n"
            )
        server.start()
        server.execute(f"CREATE USER team PASSWORD '{PASSWORD}'")
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path | None:
    """The folder of the server's programs, those of the newest version."""
    versions = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    newest = max(versions, key=lambda path: int(path.parts[-3]), default=None)
    if newest is not None:
        return newest.parent
    on_path = shutil.which("postgres")
    return Path(on_path).parent if on_path else None


def _account() -> dict[str, object]:
    """Arguments of ``Popen`` for the account that the server runs as."""
    if os.geteuid() != 0:
        return {}
    account = pwd.getpwnam("postgres")
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
