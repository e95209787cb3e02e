"""What a recurring job does with its store: define, begin, ask, renew, tell; show and forget.

A try goes ``ask`` (running, with a lease) -> ``renew`` again and again -> ``tell``. Where its
worker is lost, it ends as expired at the next ``ask`` after its lease; if the worker was only away
and tells after all, that still counts, once.

Locks, always taken in this order, so that no two transactions wait for each other: the job's row
(shared), the row of its policy on a GPU type, the rows of tries. In SQLite a transaction that
writes has the whole file.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from joulewise.data.codec import encode
from joulewise.data.jobs import (
    JobDefinition,
    JobHistory,
    JobTry,
    TryOutcome,
)
from joulewise.errors import ForgottenJobError, UsageError
from joulewise.optimise.recurring.job_definition import check_definition, merge_definitions
from joulewise.optimise.recurring.policy.interface import PolicyFactory, RecurringPolicy
from joulewise.optimise.recurring.policy_plugins import limit_time
from joulewise.optimise.recurring.store import policy_calls, queries, rows
from joulewise.optimise.recurring.store.database import Database
from joulewise.optimise.recurring.store.tables import JOBS, POLICIES, TRIES
from joulewise.store.files import network_file_system
from joulewise.units import NS_PER_S

_UNDER_WAY: Final = (queries.RUNNING, queries.EXPIRED)  # a lost worker may have been away only


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
        database = Database(
            address,
            for_writing=for_writing,
            now_ns=now_ns,
            check=lambda database, connection: _refuse_shared_file(
                database, connection, socket.gethostname()
            ),
        )
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
            _refuse_shared_file(self._database, connection, host)
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
            queries.expire(connection, now_ns, found, gpu_type)
            inputs = queries.read_policy_inputs(connection, found, policy_row)
            with limit_time(inputs.definition):
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
                told=queries.RUNNING,
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

    def renew(
        self, try_key: str, lease_s: float, is_wanted: Callable[[], bool] = lambda: True
    ) -> bool:
        """Say that the worker of a try is alive. False where its outcome is known.

        A try that expired while its host was away is running again. Where the store does not
        answer, it is tried again as long as ``is_wanted``.
        """

        def change(connection: Connection) -> bool:
            ends_ns = self._database.now_ns(connection) + round(lease_s * NS_PER_S)
            done = connection.execute(
                sa.update(TRIES)
                .where(TRIES.c.key == try_key, TRIES.c.status.in_(_UNDER_WAY))
                .values(lease_ends_wall_ns=ends_ns, status=queries.RUNNING, ended_wall_ns=None)
            )
            return done.rowcount == 1

        return self._database.write(change, is_wanted=is_wanted)

    def tell(self, try_key: str, outcome: TryOutcome) -> bool:
        """Store how a try ended. False where that is known already: nothing is changed then.

        The policy hears of it at the next :meth:`ask`, or in :meth:`policy`. Raises
        ForgottenJobError where there is no such try any more.
        """
        if outcome.status.value in _UNDER_WAY:
            raise ValueError(f"a worker cannot tell that its try is {outcome.status.value}")
        row = rows.outcome_row(outcome)

        def change(connection: Connection) -> bool:
            done = connection.execute(
                sa.update(TRIES)
                .where(TRIES.c.key == try_key, TRIES.c.status.in_(_UNDER_WAY))
                .values({**row, "ended_wall_ns": self._database.now_ns(connection)})
            )
            if done.rowcount == 1:
                return True
            if connection.execute(sa.select(TRIES.c.id).where(TRIES.c.key == try_key)).first():
                return False
            raise ForgottenJobError(
                "the job of this try was forgotten while it ran, so its outcome is not stored",
                "the next recurrence defines the job again",
            )

        return self._database.write(change, on_silence=self._warn)

    def policy(self, job: str, gpu_type: str, factory: PolicyFactory) -> RecurringPolicy:
        """The policy as of now, told of all tries that ended; nothing that it does is stored."""

        def query(connection: Connection) -> RecurringPolicy:
            found = queries.read_job(connection, job)
            inputs = queries.read_policy_inputs(
                connection, found, queries.read_policy(connection, found, gpu_type)
            )
            with limit_time(inputs.definition):
                return policy_calls.current_policy(factory, inputs, self._warn)

        return self._database.read(query)

    def jobs(self) -> tuple[JobDefinition, ...]:
        """All jobs, by name."""

        def query(connection: Connection) -> tuple[JobDefinition, ...]:
            jobs = connection.execute(sa.select(JOBS).order_by(JOBS.c.name))
            return tuple(rows.definition_of(job) for job in jobs)

        return self._database.read(query)

    def histories(self) -> tuple[JobHistory, ...]:
        """All that is known of all jobs at one moment, by name."""

        def query(connection: Connection) -> tuple[JobHistory, ...]:
            now_ns = self._database.now_ns(connection)
            jobs = connection.execute(sa.select(JOBS).order_by(JOBS.c.name)).all()
            return tuple(queries.read_history(connection, job, now_ns) for job in jobs)

        return self._database.read(query)

    def history(self, name: str) -> JobHistory:
        """All that is known of a job; a UsageError where there is none of that name."""

        def query(connection: Connection) -> JobHistory:
            now_ns = self._database.now_ns(connection)
            return queries.read_history(connection, queries.read_job(connection, name), now_ns)

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


def _refuse_shared_file(database: Database, connection: Connection, host: str) -> None:
    """Locks of SQLite do not hold between machines on a network file system."""
    kind = database.path and network_file_system(database.path)
    if not kind or not sa.inspect(connection).has_table(TRIES.name):
        return
    other = queries.find_other_host(connection, host, database.now_ns(connection))
    if other is not None:
        raise UsageError(
            f"{database.shown} is on a network file system ({kind}), and {other} runs a try of a "
            "job in it now: there, two hosts at once can damage a SQLite file",
            "give a PostgreSQL database with --jobs, or wait until the other host has ended",
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
