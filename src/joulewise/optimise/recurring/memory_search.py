"""Finds which values of a job fit in the memory of its GPUs, for a set without an end (``8:max``).

Once for each type of GPU, before its first try: the command is run at the least value, twice that,
and so on, each time for a few steps only, until it runs out of memory. That value is told to the
job store as one that crashed, and the policy leaves it and all larger ones out. The search also
ends where an epoch is a single step: larger batches than all of the data are the same batch. What
it ended with is stored, also where nothing ran out of memory; where the command failed for another
reason, the next recurrence searches again, and where it failed at the least value, there is no try.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from joulewise.data.jobs import JobDefinition, TryOutcome, TryStatus
from joulewise.optimise.live.steps import StepFollower
from joulewise.optimise.recurring.target_progress import TargetProgress
from joulewise.optimise.recurring.try_output import PrintedValues, TryOutput
from joulewise.optimise.recurring.try_runner import TrySettings, measure_command, run_watched
from joulewise.store.layout import MARKS
from joulewise.store.logged_values import LoggedFollower
from joulewise.store.spans import SpanFollower

if TYPE_CHECKING:
    from joulewise.optimise.recurring.try_cost import TryCost
    from joulewise.session.run import CommandOutcome

# Memory is at its highest once the first steps have been made: the first allocates the gradients,
# the second the optimiser's state. Chosen; doubled, each look takes eight steps longer.
_STEPS: Final = 8
_POLL_S: Final = 0.2


@dataclass(frozen=True)
class MemoryLook:
    """What a few steps at one value showed.

    ``crash`` is why it seems to have run out of memory, empty where it did not. ``problem`` is why
    nothing is known of it: the command failed, somebody asked it to end (``is_cancelled``), or
    nothing of what it does can be seen (``is_unseen``). ``is_whole`` says that an epoch was a
    single step. ``cost`` is that of its run, None where it is not known.
    """

    value: int
    crash: str
    problem: str = ""
    is_cancelled: bool = False
    is_whole: bool = False
    is_unseen: bool = False
    command: CommandOutcome | None = None
    cost: TryCost | None = None


@dataclass(frozen=True)
class MemoryLimit:
    """What a search found.

    ``looks`` are all that were made. ``crashed`` is the one that did not fit; None where none was.
    ``failed`` is the first of all where the command failed in it, so that nothing is known.
    ``ended_by`` is why the search ended otherwise. ``largest`` is the largest value that is worth a
    try, None where the search is to be made again: the command failed, or somebody asked it to end.
    """

    looks: tuple[MemoryLook, ...]
    crashed: MemoryLook | None = None
    failed: MemoryLook | None = None
    ended_by: str = ""
    is_cancelled: bool = False
    largest: int | None = None

    def outcome(self) -> TryOutcome:
        """What the job store is told of the value that did not fit: it cost what all looks did."""
        costs = [look.cost for look in self.looks]
        known = [cost for cost in costs if cost is not None and not cost.is_at_least]
        is_known = len(known) == len(costs)
        ended = self.crashed.command if self.crashed else None
        return TryOutcome(
            TryStatus.CRASHED,
            cost=fsum(one.cost for one in known) if is_known else None,
            energy_j=fsum(one.energy_j for one in known) if is_known else None,
            time_s=fsum(one.time_s for one in known) if is_known else None,
            run=ended.run.name if ended and ended.run else None,
            exit_code=ended.exit_status if ended else None,
        )


def search_memory(
    values: Sequence[int], look: Callable[[int], MemoryLook], say: Callable[[str], None]
) -> MemoryLimit:
    """Look at one value after the other, ascending, up to the first that does not fit."""
    looks: list[MemoryLook] = []
    for value in values:
        found = look(value)
        looks.append(found)
        limit = MemoryLimit(tuple(looks), ended_by=found.problem)
        if found.crash:
            say(f"{value} does not fit (inferred: {found.crash})")
            return replace(limit, crashed=found, largest=value)
        if found.is_cancelled:
            return replace(limit, is_cancelled=True)
        if found.is_unseen:  # no other search would see more
            return replace(limit, largest=values[-1])
        if found.problem:
            return replace(limit, failed=found if len(looks) == 1 else None)
        if found.is_whole:
            ended_by = f"a batch of {value} is a whole epoch"
            return replace(limit, ended_by=ended_by, largest=value)
        say(f"{value} fits")
    return MemoryLimit(tuple(looks), ended_by="no larger value is tried", largest=values[-1])


def look_at(job: JobDefinition, value: int, settings: TrySettings) -> MemoryLook:
    """Run the command for a few steps at a value of the job's parameter."""
    settings = replace(settings, tuning=None, budgets=())
    tags = (f"job:{job.name}", "memory-search")
    with closing(TryOutput(job.target.metric, settings.pattern)) as output:
        watch = _FewSteps(job.target.metric, output.values)
        ended = run_watched(
            job, value, settings, tags=tags, watch=watch, begin=watch.begin, output=output
        )
        watch.finish()
    if ended.is_asked:
        return MemoryLook(value, "", "it was asked to end", is_cancelled=True)
    cost = measure_command(job, settings, ended.command, TargetProgress())
    made = MemoryLook(value, "", command=ended.command, cost=cost)
    if watch.is_over:
        return replace(made, is_whole=watch.is_whole)
    if ended.out_of_memory:
        return replace(made, crash=ended.out_of_memory)
    status = ended.command.exit_status
    problem = f"the command ended with status {status}" if status else ""
    is_unseen = not problem and not watch.has_sign
    if is_unseen:
        problem = (
            f"no step or epoch of it can be seen, and no {job.target.metric}, so that each look "
            "takes all of a run"
        )
    return replace(made, problem=problem, is_unseen=is_unseen)


class _FewSteps:
    """A watch that ends the command once it has made a few steps, or an epoch.

    Where it marks no steps, the first value of the ``metric`` ends it: any other figure may be
    logged before the first step. ``values`` are those that it prints, None where they are logged.
    """

    poll_s = _POLL_S

    def __init__(self, metric: str, values: PrintedValues | None) -> None:
        self._metric = metric
        self._values = values
        self._steps: StepFollower | None = None
        self._spans: SpanFollower | None = None
        self._logged: LoggedFollower | None = None
        self._count = 0
        self._has_epoch = self._has_figure = False
        self.is_over = False
        self.is_whole = False

    @property
    def has_sign(self) -> bool:
        """Whether anything was seen of what the command does."""
        return self._count > 0 or self._has_epoch or self._has_figure

    def begin(self, run: Path) -> None:
        self._steps = StepFollower(run / MARKS)
        self._spans = SpanFollower(run / MARKS, ("epoch",))
        self._logged = LoggedFollower(run / MARKS)

    def check(self) -> str:
        if self.is_over or self._steps is None:
            return ""
        try:
            self._update()
        except Exception:  # noqa: BLE001  # a fault here must not reach the command
            return ""
        has_trained = self._has_epoch or (self._has_figure and not self._count)
        if self._count < _STEPS and not has_trained:
            return ""
        self.is_over = True
        self.is_whole = self._has_epoch and self._count <= 1 and self._steps.ranks > 0
        return "ending the command: it has made enough steps to know that it fits in memory"

    def finish(self) -> None:
        """Look at the rest, once the command has ended."""
        with suppress(Exception):
            self._update()
            self._has_figure |= bool(self._values and self._values.finish())

    def _update(self) -> None:
        if self._steps is None or self._spans is None or self._logged is None:
            return
        self._count += len(self._steps.poll())
        self._has_epoch |= any(span.closed for span in self._spans.poll())
        self._has_figure |= any(value.name == self._metric for value in self._logged.poll())
        self._has_figure |= bool(self._values and self._values.poll())
