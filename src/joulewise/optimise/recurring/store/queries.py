"""The statements of a job store, each inside a transaction of the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from joulewise.data.jobs import JobDefinition, JobHistory, JobTry, TryStatus
from joulewise.errors import UsageError, did_you_mean
from joulewise.optimise.recurring.job_definition import Learned
from joulewise.optimise.recurring.store import rows
from joulewise.optimise.recurring.store.policy_calls import PolicyInputs
from joulewise.optimise.recurring.store.tables import JOBS, POLICIES, TRIES

RUNNING: Final = TryStatus.RUNNING.value
EXPIRED: Final = TryStatus.EXPIRED.value


def lock_for_change(query: sa.Select[Any]) -> sa.Select[Any]:
    """Lock a job's row against other changes of it; its policies can be asked meanwhile."""
    return query.with_for_update(key_share=True)


def lock_for_deletion(query: sa.Select[Any]) -> sa.Select[Any]:
    """Lock a job's row when nobody asks its policies, and against all who would."""
    return query.with_for_update()


def _lock_against_deletion(query: sa.Select[Any]) -> sa.Select[Any]:
    return query.with_for_update(read=True, key_share=True)


def read_job(
    connection: Connection,
    name: str,
    lock: Callable[[sa.Select[Any]], sa.Select[Any]] = lambda query: query,
) -> Row[Any]:
    """The row of a job; a UsageError where there is none."""
    found = connection.execute(lock(sa.select(JOBS).where(JOBS.c.name == name))).first()
    if found is None:
        names = connection.execute(sa.select(JOBS.c.name)).scalars().all()
        raise UsageError(
            f"there is no job {name}", f"{did_you_mean(name, names)}`joulewise job ls` lists them"
        )
    return found


def lock_policy(connection: Connection, job: str, gpu_type: str) -> tuple[Row[Any], Row[Any]]:
    """The rows of a job and of its policy, which nobody else can change until we commit."""
    found = read_job(connection, job, _lock_against_deletion)
    policy_row = read_policy(connection, found, gpu_type, lock=sa.Select.with_for_update)
    return read_job(connection, job), policy_row  # again: `define` may have added values


def lock_policies(connection: Connection, job: Row[Any]) -> None:
    """Lock the rows of all policies of a job, so that none is asked until we commit."""
    policies = sa.select(POLICIES.c.gpu_type).where(POLICIES.c.job_id == job.id)
    connection.execute(policies.order_by(POLICIES.c.gpu_type).with_for_update()).all()


def what_was_learned(connection: Connection, job: Row[Any], now_ns: int) -> Learned:
    """What the tries of a job have taught, or may: those that run have begun under its target."""
    is_lost = (TRIES.c.status == RUNNING) & (TRIES.c.lease_ends_wall_ns < now_ns)
    of_job = sa.select(TRIES.c.status).where(TRIES.c.job_id == job.id, ~is_lost).distinct()
    statuses = set(connection.execute(of_job).scalars()) - {EXPIRED, TryStatus.FAILED.value}
    if statuses - {TryStatus.CRASHED.value}:
        return Learned.COSTS
    return Learned.MEMORY if statuses else Learned.NOTHING


def change_job(
    connection: Connection, job: Row[Any], before: JobDefinition, after: JobDefinition
) -> None:
    """Store another definition. A policy knows the one that it was made for: each is made again."""
    of_job = JOBS.c.id == job.id
    connection.execute(sa.update(JOBS).where(of_job).values(rows.definition_row(after)))
    changed: dict[str, Any] = {"state": None}
    searched = [(one.parameter, one.values, one.is_open) for one in (before, after)]
    if searched[0] != searched[1]:
        changed["largest_value"] = None  # it was searched among other values
    connection.execute(sa.update(POLICIES).where(POLICIES.c.job_id == job.id).values(changed))


def limit_values(connection: Connection, job: Row[Any], gpu_type: str, largest: int) -> None:
    """Store the largest value of a job on a GPU type; its policy is made again without the rest."""
    of_type = (POLICIES.c.job_id == job.id, POLICIES.c.gpu_type == gpu_type)
    connection.execute(
        sa.update(POLICIES).where(*of_type).values(largest_value=largest, state=None)
    )


def read_policy(
    connection: Connection,
    job: Row[Any],
    gpu_type: str,
    lock: Callable[[sa.Select[Any]], sa.Select[Any]] = lambda query: query,
) -> Row[Any]:
    """The row of a job's policy on a GPU type; a UsageError where there is none."""
    query = sa.select(POLICIES).where(POLICIES.c.job_id == job.id, POLICIES.c.gpu_type == gpu_type)
    found = connection.execute(lock(query)).first()
    if found is None:
        raise UsageError(
            f"job {job.name} has not been run on {gpu_type}",
            f"`joulewise job show {job.name}` lists where it was",
        )
    return found


def insert_if_new(connection: Connection, table: sa.Table, row: dict[str, Any]) -> None:
    """Insert a row unless there is one with the same key."""
    insert: Any
    if connection.dialect.name == "sqlite":
        from sqlalchemy.dialects.sqlite import insert
    else:
        from sqlalchemy.dialects.postgresql import insert
    connection.execute(insert(table).values(row).on_conflict_do_nothing())


def read_policy_inputs(connection: Connection, job: Row[Any], policy_row: Row[Any]) -> PolicyInputs:
    """What the policy is made from."""
    is_own = TRIES.c.gpu_type == policy_row.gpu_type
    is_told = sa.func.coalesce(TRIES.c.told, "") == TRIES.c.status
    is_open = ~is_told | (TRIES.c.status == RUNNING)
    open_tries = tries_of(job).where(is_own, is_open).order_by(TRIES.c.id)
    open_rows = connection.execute(open_tries).all()
    untold = _in_order(rows.try_of(row, job) for row in open_rows if row.told != row.status)
    running = [rows.try_of(row, job) for row in open_rows if row.told == row.status]

    def load_tries() -> tuple[JobTry, ...]:
        # What has ended since the first query stands in neither as such: it is told next time.
        ended = tries_of(job).where(~is_own | is_told, TRIES.c.status != RUNNING)
        others = read_tries(connection, ended.order_by(TRIES.c.id), job)
        return _in_order((*others, *untold, *running))

    return PolicyInputs(
        definition=rows.limited_definition(rows.definition_of(job), policy_row.largest_value),
        gpu_type=policy_row.gpu_type,
        max_power_w=policy_row.max_power_w,
        state=policy_row.state,
        version=policy_row.version,
        untold=untold,
        in_flight=frozenset(row.key for row in open_rows if row.told == RUNNING),
        load_tries=load_tries,
    )


def _in_order(tries: Iterable[JobTry]) -> tuple[JobTry, ...]:
    """Those that ended in that order, and then those that run."""
    return tuple(sorted(tries, key=lambda one: (one.ended_wall_ns is None, one.ended_wall_ns or 0)))


def save_policy(
    connection: Connection, job: Row[Any], inputs: PolicyInputs, state: str, version: int
) -> None:
    """Store the state of a policy, and note which tries it contains, and how they stand there.

    They are noted by the status that each try had when it was told: one that was expired then, and
    is told of in this moment, is told to the policy next time.
    """
    connection.execute(
        sa.update(POLICIES)
        .where(POLICIES.c.job_id == job.id, POLICIES.c.gpu_type == inputs.gpu_type)
        .values(state=state, version=version, revision=POLICIES.c.revision + 1)
    )
    told = [{"try_key": each.key, "told_status": each.status.value} for each in inputs.untold]
    if told:
        update = sa.update(TRIES).where(TRIES.c.key == sa.bindparam("try_key"))
        connection.execute(update.values(told=sa.bindparam("told_status")), told)


def tries_of(job: Row[Any]) -> sa.Select[Any]:
    return sa.select(TRIES).where(TRIES.c.job_id == job.id)


def read_tries(
    connection: Connection, query: sa.Select[Any], job: Row[Any], now_ns: int | None = None
) -> tuple[JobTry, ...]:
    return tuple(rows.try_of(row, job, now_ns) for row in connection.execute(query))


def read_history(connection: Connection, job: Row[Any], now_ns: int) -> JobHistory:
    """All that is known of a job."""
    states = sa.select(POLICIES).where(POLICIES.c.job_id == job.id).order_by(POLICIES.c.gpu_type)
    return JobHistory(
        definition=rows.definition_of(job),
        tries=read_tries(connection, tries_of(job).order_by(TRIES.c.id), job, now_ns),
        policy_states=tuple(rows.policy_state_of(row) for row in connection.execute(states)),
    )


def find_other_host(connection: Connection, host: str, now_ns: int) -> str | None:
    """Another host that runs a try now; None where there is none."""
    is_running = (TRIES.c.status == RUNNING) & (TRIES.c.lease_ends_wall_ns >= now_ns)
    query = sa.select(TRIES.c.host).where(TRIES.c.host != host, is_running).limit(1)
    other = connection.execute(query).scalar()
    return None if other is None else str(other)


def read_try(connection: Connection, job: Row[Any], key: str) -> JobTry | None:
    row = connection.execute(sa.select(TRIES).where(TRIES.c.key == key)).first()
    return None if row is None else rows.try_of(row, job)


def insert_try(
    connection: Connection,
    job: Row[Any],
    policy_row: Row[Any],
    *,
    recurrence: int,
    **columns: Any,
) -> JobTry:
    """Start the next try of a recurrence; ``told`` where the state of the policy has it."""
    of_recurrence = (TRIES.c.job_id == job.id, TRIES.c.recurrence == recurrence)
    last = connection.execute(sa.select(sa.func.max(TRIES.c.number)).where(*of_recurrence))
    insert = sa.insert(TRIES).values(
        job_id=job.id,
        recurrence=recurrence,
        number=(last.scalar() or 0) + 1,
        gpu_type=policy_row.gpu_type,
        settings="{}",
        status=RUNNING,
        max_power_w=policy_row.max_power_w,
        **columns,
    )
    connection.execute(insert)
    query = sa.select(TRIES).where(TRIES.c.key == columns["key"])
    return rows.try_of(connection.execute(query).one(), job)


def expire(connection: Connection, now_ns: int, job: Row[Any], gpu_type: str) -> None:
    """End the tries of a policy whose lease is over."""
    of_policy = (TRIES.c.job_id == job.id, TRIES.c.gpu_type == gpu_type)
    is_lost = (TRIES.c.status == RUNNING, TRIES.c.lease_ends_wall_ns < now_ns)
    lost = sa.update(TRIES).where(*of_policy, *is_lost)
    connection.execute(lost.values(status=EXPIRED, ended_wall_ns=now_ns))
