"""The tables are made and updated by alembic, on both databases, whoever comes first."""

import threading
from contextlib import contextmanager

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from joulewise.errors import JoulewiseError
from joulewise.optimise.recurring.store import database, open_job_store
from joulewise.optimise.recurring.store.tables import METADATA, REVISION, REVISION_TABLE
from tests.helpers.jobs import GPU_TYPE, JOB, LEASE_S
from tests.helpers.ledger_policy import LedgerFactory

MIGRATIONS = database._MIGRATIONS
NEXT = f"{int(REVISION) + 1:04}"
NEXT_MIGRATION = f"""
import sqlalchemy as sa
from alembic import op

revision = "{NEXT}"
down_revision = "{REVISION}"


def upgrade():
    op.add_column("joulewise_jobs", sa.Column("owner", sa.Text))
    op.execute("UPDATE joulewise_jobs SET owner = 'team'")
"""


def run(address, statement):
    def execute(connection):
        done = connection.exec_driver_sql(statement)
        return [tuple(row) for row in done] if done.returns_rows else []

    return database.Database(address, for_writing=True).write(execute)


@contextmanager
def newer_joulewise(folder, migration=NEXT_MIGRATION):
    """As long as this lasts, this joulewise has one migration more."""
    newer = folder / "newer"
    (newer / "versions").mkdir(parents=True)
    for path in (MIGRATIONS / "env.py", *MIGRATIONS.glob("versions/revision_*.py")):
        (newer / path.relative_to(MIGRATIONS)).write_text(path.read_text())
    (newer / "versions" / f"revision_{NEXT}.py").write_text(migration)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(database, "_MIGRATIONS", newer)
        patched.setattr(database, "REVISION", NEXT)
        yield


def make_job(address):
    store = open_job_store(address)
    store.define(JOB)
    number = store.begin_recurrence(JOB.name, GPU_TYPE, max_power_w=250.0, host="node1")
    store.ask(JOB.name, number, GPU_TYPE, host="node1", factory=LedgerFactory(), lease_s=LEASE_S)
    return store.history(JOB.name)


def test_the_schema_that_migrations_make_is_the_one_of_the_code(address):
    def differences(connection):
        options = {
            "version_table": REVISION_TABLE,
            "compare_type": True,
            "compare_server_default": True,
        }
        return compare_metadata(MigrationContext.configure(connection, opts=options), METADATA)

    open_job_store(address)
    made = database.Database(address, for_writing=True)
    assert made.read(differences) == []
    assert run(address, f"SELECT version_num FROM {REVISION_TABLE}") == [(REVISION,)]
    run(address, "ALTER TABLE joulewise_jobs ADD COLUMN more INTEGER")
    assert "more" in str(made.read(differences))  # the comparison would see it


def test_the_newest_revision_is_the_one_that_the_code_names():
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_heads() == [REVISION]
    assert REVISION.isdecimal()


def test_an_older_database_is_migrated_with_its_data(address, tmp_path):
    before = make_job(address)
    with newer_joulewise(tmp_path):
        assert open_job_store(address).history(JOB.name) == before
        assert run(address, "SELECT owner FROM joulewise_jobs") == [("team",)]
        assert run(address, f"SELECT version_num FROM {REVISION_TABLE}") == [(NEXT,)]


@pytest.mark.parametrize("for_writing", [True, False])
def test_a_newer_database_is_refused_when_it_is_opened(address, tmp_path, for_writing):
    make_job(address)
    with newer_joulewise(tmp_path):
        open_job_store(address)
    with pytest.raises(JoulewiseError) as refused:
        open_job_store(address, for_writing=for_writing)
    assert "of a newer joulewise" in refused.value.message
    assert refused.value.hint.startswith("update joulewise")


def test_a_migration_that_fails_leaves_the_database_as_it_was(address, tmp_path):
    before = make_job(address)
    broken = f"{NEXT_MIGRATION}    op.execute('SELECT version FROM nowhere')\n"
    with newer_joulewise(tmp_path, broken), pytest.raises(JoulewiseError, match="nowhere"):
        open_job_store(address)
    assert open_job_store(address).history(JOB.name) == before
    columns = database.Database(address, for_writing=True).read(
        lambda connection: sa.inspect(connection).get_columns("joulewise_jobs")
    )
    assert "owner" not in {each["name"] for each in columns}


def test_all_who_open_a_new_database_at_once_find_it_made(address):
    opened, failed = [], []
    start = threading.Barrier(8)

    def open_it():
        start.wait()
        try:
            opened.append(open_job_store(address).jobs())
        except JoulewiseError as error:
            failed.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert (opened, failed) == ([()] * 8, [])


def test_a_database_of_something_else_keeps_its_tables(postgresql):
    address = postgresql.url(name := postgresql.new_database())
    postgresql.execute("CREATE TABLE jobs (id int); CREATE TABLE alembic_version (x int)", name)
    make_job(address)
    assert postgresql.execute("SELECT * FROM jobs", name) == []
