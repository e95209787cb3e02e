"""The largest value of a job's parameter on a GPU type, as the search for what fits found it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("joulewise_job_policies", sa.Column("largest_value", sa.BigInteger))
