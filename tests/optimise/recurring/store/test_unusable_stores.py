"""Stores that cannot be used: one line of what is wrong, one of what to do, and no password."""

import os
import socket
import sqlite3
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from joulewise.errors import JoulewiseError, UsageError
from joulewise.optimise.recurring.store import (
    database,
    job_store,
    job_store_address,
    open_job_store,
)
from joulewise.optimise.recurring.store.address import redact_address, sqlite_path
from joulewise.optimise.recurring.store.job_store import JobStore
from tests.helpers.jobs import GPU_TYPE, JOB, LEASE_S, result
from tests.helpers.ledger_policy import LedgerFactory
from tests.helpers.mounts import mounted_tmpfs
from tests.helpers.postgresql import PASSWORD

QUOTED = "s3cret%26word"
ROOT_ONLY = "SQLite resolves the path into another user's namespace, to a file outside of it"


def refusal(address, **options):
    with pytest.raises(JoulewiseError) as refused:
        open_job_store(address, **options)
    assert "\n" not in refused.value.message + refused.value.hint
    assert refused.value.hint
    return refused.value


def fill(path):
    """Write a file until the disk is full."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1024))


class TestAddresses:
    def test_the_option_goes_before_the_variable_and_that_before_the_run_store(self):
        environ = {"JOULEWISE_JOBS": "postgresql://host/team"}
        assert job_store_address("mine.sqlite", Path("runs"), environ) == "mine.sqlite"
        assert job_store_address(None, Path("runs"), environ) == "postgresql://host/team"
        assert job_store_address(None, Path("runs"), {}) == "runs/jobs.sqlite"

    @pytest.mark.parametrize(
        ("address", "path"),
        [
            ("jobs.sqlite", Path("jobs.sqlite")),
            (Path("x y"), Path("x y")),
            ("sqlite:///jobs.sqlite", Path("jobs.sqlite")),
            ("sqlite:////srv/jobs.sqlite", Path("/srv/jobs.sqlite")),
            ("postgresql://host/team", None),
            ("postgres://host/team", None),
            ("run:3/jobs.sqlite", Path("run:3/jobs.sqlite")),
            ("./sqlite:jobs", Path("sqlite:jobs")),
        ],
    )
    def test_a_path_and_a_url_are_told_apart(self, address, path):
        assert sqlite_path(address) == path

    @pytest.mark.parametrize(
        "address",
        [
            f"mysql://joe:{QUOTED}@host/team",
            "sqlite://",
            "postgresql://",
            f"host=db user=joe password={PASSWORD}",
            f"postgresql://joe:{QUOTED}@host:port/team",
            "postgresql:/joe:s3cret@host/team",
            "postgresql:joe:s3cret",
            "postgresql+psycopg:/joe:s3cret/team",
            "POSTGRESQL:joe:s3cret",
            "mysql:joe:s3cret@host/team",
            "sqlite:jobs.sqlite",
            "postgresql://joe:s3cret/team",
            "postgresql://joe:5s3cret",
            "postgresql://joe:s3c/s3cret/team",
            "postgresql://joe:#s3cret?/team",
            "postgresql://joe:1234,joe:s3cret/team",
            "postgresql://[::1]:s3cret/team",
        ],
    )
    def test_what_is_neither_is_refused(self, address):
        error = refusal(address)
        assert isinstance(error, UsageError)
        assert "s3cret" not in str(error)

    @pytest.mark.parametrize(
        "address",
        [
            f"postgresql://joe:{QUOTED}@db.example:5432/team",
            "postgresql://joe:s3cret/word@db.example:5432/team",
            "postgresql://joe:s3cret@word@db.example:5432/team",
            "postgresql://joe@db.example:5432/team?password=s3cret",
            "postgresql://db.example:5432/team?user=joe&password=s3cret&sslmode=require",
        ],
    )
    def test_a_password_is_never_shown(self, address):
        shown = redact_address(address)
        assert "s3cret" not in shown
        assert "word@" not in shown
        assert shown.startswith("postgresql://")
        assert "db.example:5432/team" in shown

    @pytest.mark.parametrize(
        "address",
        [
            "postgresql://db.example:5432/team",
            "postgresql://db.example,other.example:5433/team",
            "postgresql://[::1]:5432/team",
            "postgresql://[::1]/team",
            "postgresql:///team?host=/run/postgresql",
            "sqlite:////srv/run:3/jobs.sqlite",
            "run:3/jobs.sqlite",
        ],
    )
    def test_one_without_a_password_is_shown_as_it_is(self, address):
        assert redact_address(address) == address


class TestSqlite:
    def test_a_file_that_is_no_database(self, tmp_path):
        path = tmp_path / "jobs.sqlite"
        path.write_bytes(b"not a database, but long enough to be read as one" * 100)
        assert "damaged" in refusal(path).message
        assert path.read_bytes().startswith(b"not a database")

    def test_a_database_with_damaged_pages(self, tmp_path):
        path = tmp_path / "jobs.sqlite"
        open_job_store(path).define(JOB)
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
        content = bytearray(path.read_bytes())
        content[4096:] = os.urandom(len(content) - 4096)
        path.write_bytes(content)
        with pytest.raises(JoulewiseError, match="damaged"):
            open_job_store(path).jobs()

    def test_none_where_one_is_only_read(self, tmp_path):
        assert "no job store" in refusal(tmp_path / "jobs.sqlite", for_writing=False).message
        assert list(tmp_path.iterdir()) == []

    def test_a_folder_in_its_place(self, tmp_path):
        assert "cannot be opened" in refusal(tmp_path).message

    def test_a_path_that_the_system_refuses(self, tmp_path):
        refused = refusal(tmp_path / ("x" * 300), for_writing=False)
        assert "cannot be opened: File name too long" in refused.message

    def test_a_file_in_place_of_its_folder(self, tmp_path):
        (tmp_path / "file").touch()
        assert "folder" in refusal(tmp_path / "file" / "jobs.sqlite").message

    @pytest.mark.skipif(os.geteuid() != 0, reason=ROOT_ONLY)
    def test_a_full_disk(self, tmp_path):
        folder = tmp_path / "small"
        folder.mkdir()
        with mounted_tmpfs(folder, "size=256k,mode=777") as disk:
            store = open_job_store(disk / "jobs.sqlite")
            store.define(JOB)
            number = store.begin_recurrence(JOB.name, GPU_TYPE, max_power_w=250.0, host="node1")
            started = store.ask(
                JOB.name, number, GPU_TYPE, host="node1", factory=LedgerFactory(), lease_s=LEASE_S
            )
            fill(disk / "filler")
            with pytest.raises(JoulewiseError, match="disk is full"):
                store.tell(started.key, result(5.0))
            (disk / "filler").unlink()
            assert store.tell(started.key, result(5.0))

    @pytest.mark.skipif(os.geteuid() != 0, reason=ROOT_ONLY)
    def test_a_disk_that_can_only_be_read(self, tmp_path):
        folder = tmp_path / "disk"
        folder.mkdir()
        with mounted_tmpfs(folder, "size=1m,mode=777") as disk:
            store = open_job_store(disk / "jobs.sqlite")
            store.define(JOB)
            subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
            assert "cannot be opened for writing" in refusal(disk / "jobs.sqlite").message
            assert "cannot be opened for writing" in refusal(disk / "other.sqlite").message
            reader = open_job_store(disk / "jobs.sqlite", for_writing=False)
            assert reader.jobs() == (JOB,)

    def test_one_that_is_locked_for_good(self, tmp_path, monkeypatch):
        monkeypatch.setattr(database, "_BUSY_S", 0.01)
        path = tmp_path / "jobs.sqlite"
        store = open_job_store(path)
        monkeypatch.setattr(database, "_LOCK_PATIENCE_S", 0.0)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(JoulewiseError, match="locked by another process"):
            store.define(JOB)
        other.close()
        store.define(JOB)

    def test_a_network_file_system_and_a_second_host(self, tmp_path, monkeypatch, clock):
        path = tmp_path / "jobs.sqlite"
        monkeypatch.setattr(job_store, "network_file_system", lambda _: "nfs4")
        store = JobStore.open(path, now_ns=clock)
        store.define(JOB)

        def begin(host):
            number = store.begin_recurrence(JOB.name, GPU_TYPE, max_power_w=250.0, host=host)
            return store.ask(
                JOB.name, number, GPU_TYPE, host=host, factory=LedgerFactory(), lease_s=LEASE_S
            )

        for _ in range(2):  # a host may run several
            started = begin("node1")
        monkeypatch.setattr(socket, "gethostname", lambda: "node2")
        content = path.read_bytes()
        with pytest.raises(UsageError, match=r"nfs4.*node1") as refused:
            JobStore.open(path, now_ns=clock)
        assert "PostgreSQL" in refused.value.hint
        assert path.read_bytes() == content
        JobStore.open(path, for_writing=False, now_ns=clock).jobs()
        with pytest.raises(UsageError, match=r"nfs4.*node1"):
            begin("node2")
        clock.advance(LEASE_S + 1)  # the one was lost, and the other ends
        store.tell(started.key, result(5.0))
        JobStore.open(path, now_ns=clock)
        assert begin("node2").recurrence == 3

    def test_a_network_file_system_has_no_write_ahead_log(self, tmp_path, monkeypatch):
        modes = {}
        for kind in (None, "nfs4"):
            monkeypatch.setattr(database, "network_file_system", lambda _, kind=kind: kind)
            path = tmp_path / f"{kind}.sqlite"
            open_job_store(path)
            modes[kind] = sqlite3.connect(path).execute("PRAGMA journal_mode").fetchone()[0]
        assert modes == {None: "wal", "nfs4": "delete"}


class TestPostgresql:
    def test_a_server_that_is_not_there(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            error = refusal(f"postgresql://joe:{QUOTED}@127.0.0.1:{port}/team")
        assert "cannot be reached" in error.message
        assert "s3cret" not in str(error)

    def test_a_server_that_does_not_answer_is_not_waited_for(self, monkeypatch):
        monkeypatch.setattr(database, "_CONNECT_S", 2)  # the least that libpq takes
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            error = refusal(f"postgresql://joe@127.0.0.1:{silent.getsockname()[1]}/team")
        assert "cannot be reached" in error.message

    @pytest.mark.parametrize(
        ("given", "timeout_ms"), [("", 30_000), ("?tcp_user_timeout=7000", 7000)]
    )
    def test_a_server_that_falls_silent_later_is_not_waited_for(
        self, postgresql, given, timeout_ms
    ):
        """The kernel's own limit is 15 minutes where we wrote, and 2 hours where we read."""

        def read_options(connection):
            pgconn = connection.connection.driver_connection.pgconn
            with socket.socket(fileno=os.dup(pgconn.socket)) as link:
                return {name: link.getsockopt(socket.IPPROTO_TCP, option) for name, option in (
                    ("timeout_ms", socket.TCP_USER_TIMEOUT), ("idle_s", socket.TCP_KEEPIDLE),
                    ("every_s", socket.TCP_KEEPINTVL), ("times", socket.TCP_KEEPCNT),
                )}  # fmt: skip

        address = postgresql.password_url(postgresql.new_database()) + given
        options = database.Database(address, for_writing=True).read(read_options)
        assert options == {"timeout_ms": timeout_ms, "idle_s": 15, "every_s": 5, "times": 3}

    def test_a_wrong_password_is_not_shown(self, postgresql):
        address = postgresql.password_url(postgresql.new_database(), password="wr0ng%26word")
        error = refusal(address)
        assert "cannot be reached" in error.message
        assert "wr0ng" not in str(error)

    def test_a_database_that_is_not_there(self, postgresql):
        assert "nowhere" in refusal(postgresql.url("nowhere")).message

    def test_a_user_without_the_right_to_make_tables(self, postgresql):
        name = postgresql.new_database()
        postgresql.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC, team", name)
        postgresql.execute(f"ALTER DATABASE {name} OWNER TO postgres", name)
        error = refusal(postgresql.password_url(name))
        assert "refuses this user" in error.message

    def test_a_user_who_may_only_read_can_look(self, postgresql):
        name = postgresql.new_database()
        open_job_store(postgresql.url(name)).define(JOB)
        postgresql.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO team", name)
        reader = open_job_store(postgresql.password_url(name), for_writing=False)
        assert reader.jobs() == (JOB,)
        with pytest.raises(JoulewiseError, match="refuses this user"):
            reader.forget(JOB.name)

    def test_a_password_stays_out_of_the_store_and_its_errors(self, postgresql):
        name = postgresql.new_database()
        store = open_job_store(postgresql.password_url(name))
        assert "s3cret" not in store.shown
        store.define(JOB)
        postgresql.execute("DROP TABLE joulewise_job_tries", name)
        with pytest.raises(JoulewiseError) as failed:
            store.histories()
        assert "s3cret" not in str(failed.value)
        assert failed.value.__suppress_context__


class TestServersThatGoAway:
    def test_a_restart_in_between_is_not_noticed(self, postgresql):
        store = open_job_store(postgresql.url(postgresql.new_database()))
        store.define(JOB)
        postgresql.stop()
        postgresql.start()
        store.define(JOB)

    def test_an_outcome_waits_for_the_server(self, postgresql):
        store = open_job_store(postgresql.url(postgresql.new_database()))
        store.define(JOB)
        number = store.begin_recurrence(JOB.name, GPU_TYPE, max_power_w=250.0, host="node1")
        started = store.ask(
            JOB.name, number, GPU_TYPE, host="node1", factory=LedgerFactory(), lease_s=LEASE_S
        )
        postgresql.stop()
        naps = []

        def nap(_):
            naps.append(None)
            if len(naps) == 3:
                postgresql.start()

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(database, "_pause", nap)
            assert store.tell(started.key, result(5.0))
        assert len(naps) >= 3

    def test_one_that_stays_away_is_an_error(self, postgresql, monkeypatch):
        store = open_job_store(postgresql.url(postgresql.new_database()))
        monkeypatch.setattr(database, "_SERVER_PATIENCE_S", 0.0)
        postgresql.stop()
        try:
            with pytest.raises(JoulewiseError, match="cannot be reached"):
                store.define(JOB)
        finally:
            postgresql.start()

    def test_a_worker_that_dies_inside_a_transaction_frees_its_lock(self, postgresql, monkeypatch):
        """The server ends the transaction of a host that fell silent."""
        monkeypatch.setattr(database, "_IDLE_S", 1)
        address = postgresql.url(postgresql.new_database())
        silent, living = open_job_store(address), open_job_store(address)
        living.define(JOB)
        number = living.begin_recurrence(JOB.name, GPU_TYPE, max_power_w=250.0, host="node1")

        class SilentFactory(LedgerFactory):
            def __call__(self, **arguments):
                monkeypatch.setattr(database, "_SERVER_PATIENCE_S", 0.0)
                living.ask(  # waits for the lock, which is free when our transaction is ended
                    JOB.name, number, GPU_TYPE,
                    host="node2", factory=LedgerFactory(), lease_s=LEASE_S,
                )  # fmt: skip
                return super().__call__(**arguments)

        with pytest.raises(JoulewiseError):
            silent.ask(
                JOB.name, number, GPU_TYPE, host="node1", factory=SilentFactory(), lease_s=LEASE_S
            )
        (stored,) = living.history(JOB.name).tries
        assert stored.host == "node2"


@pytest.mark.parametrize("library", ["sqlalchemy", "alembic", "psycopg"])
def test_without_the_extra_it_says_what_to_install(library, tmp_path):
    script = (
        "import sys\n"
        f"sys.modules[{library!r}] = None\n"
        "from joulewise.optimise.recurring.store import open_job_store\n"
        "from joulewise.errors import JoulewiseError\n"
        "try:\n"
        "    open_job_store(sys.argv[1])\n"
        "except JoulewiseError as error:\n"
        "    print(error.message, error.hint, sep='|')\n"
    )
    address = "postgresql://127.0.0.1:1/x" if library == "psycopg" else tmp_path / "jobs.sqlite"
    done = subprocess.run(
        [sys.executable, "-c", script, address], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"recurring jobs need {library}|pip install 'joulewise[jobs]'\n"
