"""The first schema: jobs, the states of their policies, and their tries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "joulewise_jobs",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("parameter", sa.Text, nullable=False),
        sa.Column("parameter_values", sa.Text, nullable=False),
        sa.Column("default_value", sa.BigInteger, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("max_epochs", sa.Integer, nullable=False),
        sa.Column("eta", sa.Double, nullable=False),
        sa.Column("policy", sa.Text, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("is_open", sa.Boolean, nullable=False),
        sa.Column("metric_pattern", sa.Text),
        sa.Column("recurrences", sa.Integer, nullable=False),
    )
    op.create_table(
        "joulewise_job_policies",
        sa.Column(
            "job_id",
            sa.Integer,
            sa.ForeignKey("joulewise_jobs.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("gpu_type", sa.Text, primary_key=True),
        sa.Column("max_power_w", sa.Double, nullable=False),
        sa.Column("version", sa.Integer),
        sa.Column("state", sa.Text),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("largest_value", sa.BigInteger),
    )
    op.create_table(
        "joulewise_job_tries",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("key", sa.Text, nullable=False, unique=True),
        sa.Column(
            "job_id",
            sa.Integer,
            sa.ForeignKey("joulewise_jobs.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("recurrence", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("gpu_type", sa.Text, nullable=False),
        sa.Column("value", sa.BigInteger, nullable=False),
        sa.Column("settings", sa.Text, nullable=False),
        sa.Column("budget", sa.Double),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("max_power_w", sa.Double, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("started_wall_ns", sa.BigInteger, nullable=False),
        sa.Column("lease_ends_wall_ns", sa.BigInteger, nullable=False),
        sa.Column("ended_wall_ns", sa.BigInteger),
        sa.Column("epochs", sa.Integer),
        sa.Column("cost", sa.Double),
        sa.Column("epoch_cost", sa.Double),
        sa.Column("energy_j", sa.Double),
        sa.Column("time_s", sa.Double),
        sa.Column("metric_value", sa.Double),
        sa.Column("run", sa.Text),
        sa.Column("exit_code", sa.Integer),
        sa.Column("is_simulated", sa.Boolean, nullable=False),
        sa.Column("told", sa.Text),
        sa.UniqueConstraint("job_id", "recurrence", "number"),
    )
    op.create_index(
        "joulewise_job_tries_by_status",
        "joulewise_job_tries",
        ["job_id", "gpu_type", "status"],
    )
