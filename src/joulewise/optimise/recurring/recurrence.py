"""One recurrence of a job: asks its policy, runs a try, tells what came of it; again if missed.

The job store is opened and checked before the first try. Where it is lost while a training runs,
the training goes on, and its outcome is kept in the store of runs until it can be told.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from joulewise.data.jobs import JobDefinition, JobTry, TryOutcome, TryStatus
from joulewise.errors import ForgottenJobError, JoulewiseError, PolicyError
from joulewise.optimise.recurring.heartbeat import Heartbeat
from joulewise.optimise.recurring.job_hardware import JobHardware
from joulewise.optimise.recurring.job_standing import (
    JobStanding,
    best_probability,
    find_most_probable,
    find_standing,
)
from joulewise.optimise.recurring.memory_search import (
    MemoryLimit,
    MemoryLook,
    look_at,
    search_memory,
)
from joulewise.optimise.recurring.policy_plugins import describe_error, list_beliefs
from joulewise.optimise.recurring.try_runner import FinishedTry, TrySettings, run_try
from joulewise.optimise.recurring.untold_outcomes import (
    FOLDER,
    UntoldOutcome,
    drop_outcome,
    write_outcome,
)

if TYPE_CHECKING:
    from joulewise.optimise.recurring.policy.interface import BatchSizeBelief, PolicyFactory
    from joulewise.optimise.recurring.store.job_store import JobStore

# A worker that was not heard of for so long is lost. Chosen: a host may be busy, or its network
# away, for minutes. Doubled, others plan with a lost try for five minutes more.
_LEASE_S: Final = 300.0
_RENEW_S: Final = 60.0  # a fifth: four may be missed
INTERRUPTED: Final = 130  # the exit status that a shell reports for Ctrl-C
_AGAIN: Final = {TryStatus.MISSED, TryStatus.STOPPED_EARLY, TryStatus.CRASHED}


@dataclass(frozen=True)
class RecurrenceTry:
    """A try as the store knows it, and how it ended."""

    job_try: JobTry
    finished: FinishedTry

    @property
    def outcome(self) -> TryOutcome:
        return self.finished.outcome

    @property
    def is_reached(self) -> bool:
        return self.outcome.status is TryStatus.REACHED


@dataclass(frozen=True)
class RecurrenceResult:
    """A recurrence that is over.

    ``beliefs`` are the policy's afterwards, empty where it failed; ``standing`` is that of the job
    on this GPU type, None where the job store could not be read.
    """

    job: JobDefinition
    number: int
    tries: tuple[RecurrenceTry, ...]
    beliefs: tuple[BatchSizeBelief, ...] = ()
    standing: JobStanding | None = None

    @property
    def is_reached(self) -> bool:
        return any(one.is_reached for one in self.tries)

    @property
    def exit_status(self) -> int:
        """That of the last try; 1 where none reached the target, and the command did not fail.

        A command that we ended has no status of its own: 0 where it had reached the target by then.
        """
        last = self.tries[-1]
        status = last.outcome.exit_code or 0
        if last.is_reached:
            status = 0 if last.finished.stop else status
        elif last.outcome.status is TryStatus.FAILED:
            status = status or 1
        else:
            status = 1
        if not status and any(one.finished.unrestored for one in self.tries):
            return JoulewiseError.exit_status
        return status

    def total(self, field: str) -> float | None:
        """The sum of a field of all tries, such as ``cost``; None where it is not known of one."""
        values: list[float | None] = [getattr(one.outcome, field) for one in self.tries]
        known = [value for value in values if value is not None]
        return sum(known) if len(known) == len(values) else None


class Recurrence:
    """Runs the tries of one recurrence. ``on_try`` is told of each that has ended."""

    def __init__(
        self,
        jobs: JobStore,
        job: JobDefinition,
        factory: PolicyFactory,
        hardware: JobHardware,
        *,
        max_tries: int,
        on_try: Callable[[RecurrenceTry], None],
        say: Callable[[str], None],
    ) -> None:
        self._jobs = jobs
        self._job = job
        self._factory = factory
        self._hardware = hardware
        self._max_tries = max_tries
        self._on_try = on_try
        self._say = say
        self._host = socket.gethostname()
        self._is_store_lost = False
        self._has_policy_failed = False
        self._searched: tuple[RecurrenceTry, ...] = ()  # what the search for memory has stored
        self.number = 0

    def begin(self) -> None:
        """Count the recurrence; raises where the store cannot be used."""
        hardware = self._hardware
        self.number = self._jobs.begin_recurrence(
            self._job.name, hardware.name, max_power_w=hardware.max_power_w, host=self._host
        )

    def find_memory_limit(self, settings: TrySettings) -> int | None:
        """For a set without an end: find what fits, once for each type of GPU.

        A crash is a try of this recurrence, with the cost of the whole search. Returns the exit
        status where there is no other try: somebody asked the command to end, or it failed at once.
        """
        job, hardware = self._job, self._hardware
        if not job.is_open or self._has_memory_limit():
            return None
        self._say(f"finding which {job.parameter} fits in the memory of {hardware.name}")
        limit = search_memory(job.values, lambda value: look_at(job, value, settings), self._say)
        if limit.crashed is not None:
            self._add_crash(limit, limit.crashed, settings)
        elif limit.ended_by:
            self._say(f"the search ends here: {limit.ended_by}")
        if limit.largest is not None:
            self._jobs.limit_values(job.name, hardware.name, limit.largest)
        if limit.is_cancelled:
            return INTERRUPTED
        if limit.failed is None or limit.failed.command is None:
            return None
        return limit.failed.command.exit_status or 1

    def _add_crash(self, limit: MemoryLimit, crashed: MemoryLook, settings: TrySettings) -> None:
        job_try, outcome = self._start(crashed.value), limit.outcome()
        self._tell(job_try.key, outcome, settings.store)
        assert crashed.command is not None  # noqa: S101  # it has run
        problem = f"found by the search for what fits in memory: {crashed.crash}"
        finished = FinishedTry(
            outcome, crashed.command, None, is_cancelled=False, problem=problem, cost=None
        )
        self._searched = (RecurrenceTry(job_try, finished),)

    def _has_memory_limit(self) -> bool:
        """Whether this type of GPU was searched, or a value ran out of its memory."""
        history, gpu_type = self._jobs.history(self._job.name), self._hardware.name
        return any(
            state.gpu_type == gpu_type and state.largest_value is not None
            for state in history.policy_states
        ) or any(
            one.gpu_type == gpu_type and one.status is TryStatus.CRASHED for one in history.tries
        )

    def run(self, make_settings: Callable[[JobTry], TrySettings]) -> RecurrenceResult:
        """Run tries until one reaches the target, or none is to follow."""
        tries = list(self._searched)
        while True:
            try:
                job_try = self._ask()
            except JoulewiseError as error:
                if len(tries) == len(self._searched):
                    raise
                self._say(f"no further try: {error.message}; {error.hint}")
                break
            finished = self._run_try(job_try, make_settings(job_try))
            tries.append(RecurrenceTry(job_try, finished))
            self._on_try(tries[-1])
            if finished.is_cancelled or finished.outcome.status not in _AGAIN:
                break
            if len(tries) - len(self._searched) >= self._max_tries:
                break
        return RecurrenceResult(
            self._job, self.number, tuple(tries), self._beliefs(), self._standing()
        )

    def _ask(self) -> JobTry:
        """The next try, by the policy; at the job's default where the policy fails."""
        job, hardware = self._job, self._hardware
        try:
            return self._jobs.ask(
                job.name,
                self.number,
                hardware.name,
                host=self._host,
                factory=self._factory,
                lease_s=_LEASE_S,
                is_simulated=hardware.is_simulated,
            )
        except PolicyError as error:
            self._has_policy_failed = True
            self._say(f"{error.message}: {job.parameter} is {job.default}, the default")
        return self._start(job.default)

    def _start(self, value: int) -> JobTry:
        """A try that the policy was not asked for."""
        return self._jobs.start_try(
            self._job.name,
            self.number,
            self._hardware.name,
            host=self._host,
            value=value,
            lease_s=_LEASE_S,
            is_simulated=self._hardware.is_simulated,
        )

    def _run_try(self, job_try: JobTry, settings: TrySettings) -> FinishedTry:
        job, key = self._job, job_try.key

        def report(problem: str) -> None:
            self._say(f"the job store does not answer ({problem}); the training goes on")

        value = int(str(job_try.settings[job.parameter]))

        def renew(is_wanted: Callable[[], bool]) -> bool:
            return self._jobs.renew(key, _LEASE_S, is_wanted)

        with Heartbeat(renew, _RENEW_S, report) as heartbeat:
            ended = TryOutcome(TryStatus.FAILED)  # until the command has ended: nothing is learned

            def end(outcome: TryOutcome) -> None:
                nonlocal ended
                ended = outcome
                self._write(key, outcome, settings.store)

            try:
                finished = run_try(
                    job,
                    value,
                    job_try.budget,
                    settings,
                    tags=_tags(job_try),
                    on_begin=heartbeat.start,
                    on_end=end,
                )
                end(finished.outcome)
            except BaseException:
                # The command could not be started, or Ctrl-C came before its cost was known.
                self._tell(key, ended, settings.store)
                raise
        self._tell(key, finished.outcome, settings.store)
        return finished

    def _tell(self, key: str, outcome: TryOutcome, store: Path) -> None:
        """Tell the store of an outcome; it is in a file as long as the store does not have it."""
        problem = self._write(key, outcome, store)
        try:
            self._jobs.tell(key, outcome)
        except ForgottenJobError as error:
            self._say(error.message)
        except Exception as error:  # noqa: BLE001  # the training is over: nothing may be lost
            self._is_store_lost = True
            why = error.message if isinstance(error, JoulewiseError) else describe_error(error)
            self._say(
                f"the outcome of the try is lost: {why}; {problem}"
                if problem
                else f"{why}: the outcome of the try is in {store / FOLDER}, and told at the next "
                "`job run`"
            )
            return
        drop_outcome(store, key)

    def _write(self, key: str, outcome: TryOutcome, store: Path) -> str:
        """Why the outcome could not be written; empty where it was."""
        try:
            write_outcome(store, key, UntoldOutcome(self._jobs.shown, outcome))
        except OSError as error:
            return str(error)
        return ""

    def _beliefs(self) -> tuple[BatchSizeBelief, ...]:
        if self._is_store_lost:  # it was waited for when it should be told
            return ()
        try:
            policy = self._jobs.policy(self._job.name, self._hardware.name, self._factory)
            return list_beliefs(policy, self._job)
        except PolicyError as error:
            if not self._has_policy_failed:
                self._say(error.message)
        except Exception as error:  # noqa: BLE001  # the database; the recurrence is over
            self._say(f"what the policy believes is not known: {describe_error(error)}")
        return ()

    def _standing(self) -> JobStanding | None:
        if self._is_store_lost:
            return None
        try:
            return find_standing(self._jobs.history(self._job.name), self._hardware.name)
        except Exception:  # noqa: BLE001  # the database; the recurrence is over
            return None


def _tags(job_try: JobTry) -> tuple[str, ...]:
    """The tags of a try's run, by which `joulewise ls` filters."""
    return (
        f"job:{job_try.job}",
        f"recurrence:{job_try.recurrence}",
        f"try:{job_try.number}",
    )


def recurrence_json(result: RecurrenceResult) -> dict[str, Any]:
    """The object that ``job run --json`` writes."""
    job, last, standing = result.job, result.tries[-1].outcome, result.standing
    best = None if standing is None else standing.best
    likely = None if standing is None else find_most_probable(standing, result.beliefs)
    return {
        "job": job.name,
        "recurrence": result.number,
        "reached": result.is_reached,
        "cost": result.total("cost"),
        "energy_j": result.total("energy_j"),
        "time_s": result.total("time_s"),
        "tries": [_try_json(one) for one in result.tries],
        "target": {
            "metric": job.target.metric,
            "value": last.metric_value,
            "wanted": job.target.text,
        },
        "policy": {
            "name": job.policy,
            "best": None if best is None else {job.parameter: best},
            "probability": standing and best_probability(standing, result.beliefs),
            "most_probable": likely and {job.parameter: likely.batch_size},
            "explored": list(standing.tried) if standing else [],
        },
    }


def _try_json(one: RecurrenceTry) -> dict[str, Any]:
    outcome, cost = one.outcome, one.finished.cost
    settings = outcome.settings or one.job_try.settings
    return {
        "run": outcome.run,
        "settings": settings.as_json(),
        "status": outcome.status.value,
        "reached": one.is_reached,
        "stopped_early": outcome.status is TryStatus.STOPPED_EARLY,
        "exit_code": outcome.exit_code,
        "epochs": outcome.epochs,
        "cost": outcome.cost,
        "epoch_cost": outcome.epoch_cost,
        "energy_j": outcome.energy_j,
        "time_s": outcome.time_s,
        "run_energy_j": cost.run_energy_j if cost else None,
        "run_time_s": cost.run_time_s if cost else None,
        "reason": one.finished.problem or (one.finished.stop.value if one.finished.stop else ""),
    }
