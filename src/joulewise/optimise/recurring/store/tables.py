"""The schema of a job store, as SQLAlchemy has it.

The tables are made and updated by ``migrations/``, never from here; a test compares the two. Their
names begin with ``joulewise``, because a team's database may contain other things.

Data with a structure of their own (settings, the state of a policy) are JSON in a text column, not
of type JSON: a state may contain an infinity, which PostgreSQL refuses in JSON.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

REVISION: Final = "0001"
"""The newest migration. Revisions are numbers, so that an older joulewise knows a newer one."""

REVISION_TABLE: Final = "joulewise_jobs_revision"

METADATA: Final = MetaData()

JOBS: Final = Table(
    "joulewise_jobs",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("parameter", Text, nullable=False),
    Column("parameter_values", Text, nullable=False),  # a JSON list
    Column("default_value", BigInteger, nullable=False),
    Column("target", Text, nullable=False),
    Column("max_epochs", Integer, nullable=False),
    Column("eta", Double, nullable=False),
    Column("policy", Text, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("is_open", Boolean, nullable=False),  # the values have no end
    Column("metric_pattern", Text),  # None: the metric is logged
    Column("recurrences", Integer, nullable=False),  # how many were begun
)

POLICIES: Final = Table(
    "joulewise_job_policies",
    METADATA,
    Column("job_id", ForeignKey(JOBS.c.id, ondelete="CASCADE"), primary_key=True),
    Column("gpu_type", Text, primary_key=True),
    Column("max_power_w", Double, nullable=False),
    Column("version", Integer),
    Column("state", Text),  # None: is made again from the tries
    Column("revision", Integer, nullable=False),
    Column("largest_value", BigInteger),  # None: not searched
)

TRIES: Final = Table(
    "joulewise_job_tries",
    METADATA,
    Column("id", Integer, primary_key=True),  # the order in which tries were started
    Column("key", Text, nullable=False, unique=True),
    Column("job_id", ForeignKey(JOBS.c.id, ondelete="CASCADE"), nullable=False),
    Column("recurrence", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    Column("gpu_type", Text, nullable=False),
    Column("value", BigInteger, nullable=False),  # of the job's parameter
    Column("settings", Text, nullable=False),  # what else was set, a JSON object
    Column("budget", Double),
    Column("status", Text, nullable=False),
    Column("max_power_w", Double, nullable=False),
    Column("host", Text, nullable=False),
    Column("started_wall_ns", BigInteger, nullable=False),
    Column("lease_ends_wall_ns", BigInteger, nullable=False),
    Column("ended_wall_ns", BigInteger),
    Column("epochs", Integer),
    Column("cost", Double),
    Column("epoch_cost", Double),
    Column("energy_j", Double),
    Column("time_s", Double),
    Column("metric_value", Double),
    Column("run", Text),
    Column("exit_code", Integer),
    Column("is_simulated", Boolean, nullable=False),
    Column("told", Text),  # the status that the saved state of the policy knows, as running
    UniqueConstraint("job_id", "recurrence", "number"),
    Index("joulewise_job_tries_by_status", "job_id", "gpu_type", "status"),
)
