"""Run by alembic: migrates with the connection, and inside the transaction, of the caller."""

from __future__ import annotations

from alembic import context

from joulewise.optimise.recurring.store.tables import METADATA, REVISION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=REVISION_TABLE,
)
context.run_migrations()
