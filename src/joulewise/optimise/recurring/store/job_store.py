"""What a recurring job does with its store: define, begin, ask, renew, tell; show and forget.

A try goes ``ask`` (running, with a lease) -> ``renew`` again and again -> ``tell``. Where its
worker is lost, it ends as expired at the next ``ask`` after its lease; if the worker was only away
and tells after all, that still counts, once.

Locks, always taken in this order, so that no two transactions wait for each other: the job's row
(shared), the row of its policy on a GPU type, the rows of tries. In SQLite a transaction that
writes has the whole file.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from joulewise.data.codec import encode
from joulewise.data.jobs import (
    JobDefinition,
    JobHistory,
    JobSummary,
    JobTry,
    TryOutcome,
)
from joulewise.errors import JoulewiseError, UsageError
from joulewise.optimise.recurring.job_definition import check_definition, merge_definitions
from joulewise.optimise.recurring.policy.interface import PolicyFactory, RecurringPolicy
from joulewise.optimise.recurring.store import policy_calls, queries, rows
from joulewise.optimise.recurring.store.database import Database
from joulewise.optimise.recurring.store.tables import JOBS, POLICIES, TRIES
from joulewise.store.files import network_file_system
from joulewise.units import NS_PER_S


class JobStore:
    """The jobs of a database. Its methods may be called from any process and host at once."""

    def __init__(self, database: Database, warn: Callable[[str], None]) -> None:
        self._database = database
        self._warn = warn

    @classmethod
    def open(
        cls,
        address: str | Path,
        *,
        for_writing: bool = True,
        warn: Callable[[str], None] | None = None,
        now_ns: Callable[[], int] | None = None,
    ) -> JobStore:
        """Open a SQLite file or a PostgreSQL database, and update its tables if they are older.

        Args:
            address: A path, ``sqlite:///PATH`` or ``postgresql://USER@HOST/DATABASE``.
            for_writing: Whether to make the file where there is none; False for ``show``.
            warn: Is told of what goes on in spite of a defect, in a sentence.
            now_ns: The wall clock in place of the store's own.

        Raises:
            JoulewiseError: It cannot be reached or read, or is of a newer joulewise.
        """
        database = Database(address, for_writing=for_writing, now_ns=now_ns)
        return cls(database, warn or (lambda _: None))

    @property
    def shown(self) -> str:
        """Its path or URL, without user and password."""
        return self._database.shown

    def define(self, definition: JobDefinition) -> JobDefinition:
        """Make a job, or change the one of that name; returns it as stored.

        Before a try has taught anything, anything may change; later, values may be added, and
        policy and seed be others. Any other difference is a UsageError.
        """
        check_definition(definition)
        definition = replace(definition, values=tuple(sorted(set(definition.values))))

        def change(connection: Connection) -> JobDefinition:
            row = rows.definition_row(definition)
            query = queries.lock_for_change(sa.select(JOBS).where(JOBS.c.name == definition.name))
            stored = connection.execute(query).first()
            if stored is None:
                queries.insert_if_new(connection, JOBS, {**row, "recurrences": 0})
                return change(connection)  # compare with it: another may have been faster
            before = rows.definition_of(stored)
            if definition == before:
                return before
            queries.lock_policies(connection, stored)  # so that no try is started meanwhile
            learned = queries.what_was_learned(
                connection, stored, self._database.now_ns(connection)
            )
            merged = merge_definitions(before, definition, learned)
            queries.change_job(connection, stored, before, merged)
            return merged

        return self._database.write(change)

    def limit_values(self, job: str, gpu_type: str, largest: int) -> None:
        """Leave out the values of a job above ``largest`` on a GPU type, except its default.

        It is what a search for what fits in memory found; stored, so that it is made once.
        """

        def change(connection: Connection) -> None:
            found, _ = queries.lock_policy(connection, job, gpu_type)
            queries.limit_values(connection, found, gpu_type, largest)

        self._database.write(change)

    def begin_recurrence(self, job: str, gpu_type: str, *, max_power_w: float, host: str) -> int:
        """Count one more recurrence of a job; its number, from 1.

        ``max_power_w`` is that of all its GPUs. What a GPU type was first used with is kept.
        """

        def change(connection: Connection) -> int:
            found = queries.read_job(connection, job, queries.lock_for_change)
            self._refuse_shared_file(connection, host)
            number = int(found.recurrences) + 1
            connection.execute(
                sa.update(JOBS).where(JOBS.c.id == found.id).values(recurrences=number)
            )
            first = {"job_id": found.id, "gpu_type": gpu_type, "max_power_w": max_power_w}
            queries.insert_if_new(connection, POLICIES, {**first, "revision": 0})
            return number

        return self._database.write(change)

    def ask(
        self,
        job: str,
        recurrence: int,
        gpu_type: str,
        *,
        host: str,
        factory: PolicyFactory,
        lease_s: float,
        is_simulated: bool = False,
    ) -> JobTry:
        """Ask the job's policy what to try next; the try is running from now on.

        Unless the lease is renewed within ``lease_s``, the worker is lost. Raises PolicyError where
        the policy fails; nothing has changed then, and :meth:`start_try` can take the default.
        """
        key = str(uuid.uuid4())

        def change(connection: Connection) -> JobTry:
            found, policy_row = queries.lock_policy(connection, job, gpu_type)
            started = queries.read_try(connection, found, key)
            if started is not None:
                return started  # the answer to our commit was lost
            now_ns = self._database.now_ns(connection)
            queries.expire(connection, now_ns, found.id, gpu_type)
            inputs = queries.read_policy_inputs(connection, found, policy_row)
            policy = policy_calls.current_policy(factory, inputs, self._warn)
            value, budget = policy_calls.ask_policy(policy, inputs.definition)
            state, version = policy_calls.save_state(factory, policy, inputs.definition)
            queries.save_policy(connection, found, inputs, state, version)
            return queries.insert_try(
                connection,
                found,
                policy_row,
                key=key,
                recurrence=recurrence,
                value=value,
                budget=budget,
                host=host,
                started_wall_ns=now_ns,
                lease_ends_wall_ns=now_ns + round(lease_s * NS_PER_S),
                is_simulated=is_simulated,
            )

        return self._database.write(change)

    def start_try(
        self,
        job: str,
        recurrence: int,
        gpu_type: str,
        *,
        host: str,
        value: int,
        lease_s: float,
        is_simulated: bool = False,
    ) -> JobTry:
        """Start a try that the policy was not asked for; it is told of its outcome all the same."""
        key = str(uuid.uuid4())

        def change(connection: Connection) -> JobTry:
            found, policy_row = queries.lock_policy(connection, job, gpu_type)
            started = queries.read_try(connection, found, key)
            if started is not None:
                return started  # the answer to our commit was lost
            now_ns = self._database.now_ns(connection)
            return queries.insert_try(
                connection,
                found,
                policy_row,
                key=key,
                recurrence=recurrence,
                value=value,
                budget=None,
                host=host,
                started_wall_ns=now_ns,
                lease_ends_wall_ns=now_ns + round(lease_s * NS_PER_S),
                is_simulated=is_simulated,
            )

        return self._database.write(change)

    def renew(self, try_key: str, lease_s: float) -> bool:
        """Say that the worker of a try is alive. False where the try is no longer running.

        It may then have expired while its host was away, and can still be told of.
        """

        def change(connection: Connection) -> bool:
            ends_ns = self._database.now_ns(connection) + round(lease_s * NS_PER_S)
            done = connection.execute(
                sa.update(TRIES)
                .where(TRIES.c.key == try_key, TRIES.c.status == queries.RUNNING)
                .values(lease_ends_wall_ns=ends_ns)
            )
            return done.rowcount == 1

        return self._database.write(change)

    def tell(self, try_key: str, outcome: TryOutcome) -> bool:
        """Store how a try ended. False where that is known already: nothing is changed then.

        The policy hears of it at the next :meth:`ask`, or in :meth:`policy`.
        """
        if outcome.status.value in {queries.RUNNING, queries.EXPIRED}:
            raise ValueError(f"a worker cannot tell that its try is {outcome.status.value}")
        row = rows.outcome_row(outcome)

        def change(connection: Connection) -> bool:
            done = connection.execute(
                sa.update(TRIES)
                .where(
                    TRIES.c.key == try_key, TRIES.c.status.in_([queries.RUNNING, queries.EXPIRED])
                )
                .values({**row, "ended_wall_ns": self._database.now_ns(connection)})
            )
            if done.rowcount == 1:
                return True
            if connection.execute(sa.select(TRIES.c.id).where(TRIES.c.key == try_key)).first():
                return False
            raise JoulewiseError(
                "the job of this try was forgotten while it ran, so its outcome is not stored",
                "the next recurrence defines the job again",
            )

        return self._database.write(change)

    def expire(self) -> int:
        """End the tries of all lost workers as expired; how many there were."""
        return self._database.write(
            lambda connection: queries.expire(connection, self._database.now_ns(connection))
        )

    def policy(self, job: str, gpu_type: str, factory: PolicyFactory) -> RecurringPolicy:
        """The policy as of now, told of all tries that ended; nothing that it does is stored."""

        def query(connection: Connection) -> RecurringPolicy:
            found = queries.read_job(connection, job)
            inputs = queries.read_policy_inputs(
                connection, found, queries.read_policy(connection, found, gpu_type)
            )
            return policy_calls.current_policy(factory, inputs, self._warn)

        return self._database.read(query)

    def jobs(self) -> tuple[JobSummary, ...]:
        """All jobs, by name."""

        def query(connection: Connection) -> tuple[JobSummary, ...]:
            is_running = sa.case((TRIES.c.status == queries.RUNNING, 1), else_=0)
            last_ns = sa.func.max(sa.func.coalesce(TRIES.c.ended_wall_ns, TRIES.c.started_wall_ns))
            counts = {
                row.job_id: row
                for row in connection.execute(
                    sa.select(
                        TRIES.c.job_id,
                        sa.func.count().label("tries"),
                        sa.func.sum(is_running).label("running"),
                        last_ns.label("last_wall_ns"),
                    ).group_by(TRIES.c.job_id)
                )
            }
            return tuple(
                JobSummary(
                    definition=rows.definition_of(job),
                    recurrences=job.recurrences,
                    tries=int(count.tries - count.running) if count else 0,
                    running=int(count.running) if count else 0,
                    last_wall_ns=count.last_wall_ns if count else None,
                )
                for job in connection.execute(sa.select(JOBS).order_by(JOBS.c.name))
                for count in [counts.get(job.id)]
            )

        return self._database.read(query)

    def history(self, name: str) -> JobHistory:
        """All that is known of a job; a UsageError where there is none of that name."""

        def query(connection: Connection) -> JobHistory:
            job = queries.read_job(connection, name)
            states = sa.select(POLICIES).where(POLICIES.c.job_id == job.id)
            return JobHistory(
                definition=rows.definition_of(job),
                tries=queries.read_tries(
                    connection, queries.tries_of(job).order_by(TRIES.c.id), job
                ),
                policy_states=tuple(
                    rows.policy_state_of(row)
                    for row in connection.execute(states.order_by(POLICIES.c.gpu_type))
                ),
            )

        return self._database.read(query)

    def forget(self, name: str) -> int:
        """Delete a job with all that was learned; how many tries it had."""

        def change(connection: Connection) -> int:
            job = queries.read_job(connection, name, queries.lock_for_deletion)
            count = sa.select(sa.func.count()).where(TRIES.c.job_id == job.id)
            tries = connection.execute(count.select_from(TRIES)).scalar_one()
            connection.execute(sa.delete(JOBS).where(JOBS.c.id == job.id))
            return int(tries)

        return self._database.write(change)

    def export(self, name: str) -> list[dict[str, Any]]:
        """The tries of a job as flat rows with the same keys, for CSV or JSON.

        Each axis of the settings is a column of its own, ``settings.batch_size``.
        """
        history = self.history(name)
        axes = dict.fromkeys(axis for each in history.tries for axis in each.settings)
        return [_flat(history.definition, each, axes) for each in history.tries]

    def _refuse_shared_file(self, connection: Connection, host: str) -> None:
        """Locks of SQLite do not hold between machines on a network file system."""
        kind = self._database.path and network_file_system(self._database.path)
        if not kind:
            return
        query = sa.select(TRIES.c.host).where(TRIES.c.host != host).limit(1)
        other = connection.execute(query).scalar()
        if other is not None:
            raise UsageError(
                f"{self.shown} is on a network file system ({kind}) and was used by {other}, too: "
                "there, two hosts at once can damage a SQLite file",
                "give a PostgreSQL database with --jobs, or use one host only",
            )


def _flat(definition: JobDefinition, job_try: JobTry, axes: Iterable[str]) -> dict[str, Any]:
    encoded: Mapping[str, Any] = encode(job_try)
    flat: dict[str, Any] = {}
    for field in fields(job_try):
        if field.name == "settings":
            flat |= {f"settings.{axis}": job_try.settings.get(axis) for axis in axes}
        else:
            flat[field.name] = encoded[field.name]
    return flat | {"target": definition.target.text, "eta": definition.eta}
