"""Finds which values of a job fit in the memory of its GPUs, for a set without an end (``8:max``).

Once for each type of GPU, before its first try: the command is run at the least value, twice that,
and so on, each time for a few steps only, until it runs out of memory. That value is told to the
job store as one that crashed, and the policy leaves it and all larger ones out. The search also
ends where an epoch is a single step: larger batches than all of the data are the same batch. What
it ended with is stored, also where nothing ran out of memory; where the command failed for another
reason, the next recurrence searches again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from joulewise.data.jobs import JobDefinition
from joulewise.optimise.live.steps import StepFollower
from joulewise.optimise.recurring.try_output import PrintedValues, TryOutput
from joulewise.optimise.recurring.try_runner import TrySettings, run_watched
from joulewise.store.layout import MARKS
from joulewise.store.logged_values import LoggedFollower
from joulewise.store.spans import SpanFollower

if TYPE_CHECKING:
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
    single step.
    """

    value: int
    crash: str
    problem: str = ""
    is_cancelled: bool = False
    is_whole: bool = False
    is_unseen: bool = False
    command: CommandOutcome | None = None


@dataclass(frozen=True)
class MemoryLimit:
    """What a search found.

    ``fits`` is the largest value that ran, ``crashed`` the look that did not; None: none.
    ``largest`` is the largest value that is worth a try, None where the search is to be made again:
    the command failed, or somebody asked it to end.
    """

    fits: int | None
    crashed: MemoryLook | None
    ended_by: str = ""
    is_cancelled: bool = False
    largest: int | None = None


def search_memory(
    values: Sequence[int], look: Callable[[int], MemoryLook], say: Callable[[str], None]
) -> MemoryLimit:
    """Look at one value after the other, ascending, up to the first that does not fit."""
    fits: int | None = None
    for value in values:
        found = look(value)
        if found.crash:
            say(f"{value} does not fit (inferred: {found.crash})")
            return MemoryLimit(fits, found, largest=value)
        if found.problem:
            # Where nothing can be seen of the command, no other search would see more.
            largest = values[-1] if found.is_unseen else None
            return MemoryLimit(fits, None, found.problem, found.is_cancelled, largest)
        fits = value
        if found.is_whole:
            return MemoryLimit(fits, None, f"a batch of {value} is a whole epoch", largest=value)
        say(f"{value} fits")
    return MemoryLimit(fits, None, "no larger value is tried", largest=fits)


def look_at(job: JobDefinition, value: int, settings: TrySettings) -> MemoryLook:
    """Run the command for a few steps at a value of the job's parameter."""
    settings = replace(settings, tuning=None, budgets=())
    tags = (f"job:{job.name}", "memory-search")
    with closing(TryOutput(job.target.metric, settings.pattern)) as output:
        watch = _FewSteps(output.values)
        ended = run_watched(
            job, value, settings, tags=tags, watch=watch, begin=watch.begin, output=output
        )
        watch.finish()
    if ended.is_asked:
        return MemoryLook(value, "", "it was asked to end", is_cancelled=True)
    if watch.is_over:
        return MemoryLook(value, "", is_whole=watch.is_whole, command=ended.command)
    if ended.out_of_memory:
        return MemoryLook(value, ended.out_of_memory, command=ended.command)
    status = ended.command.exit_status
    problem = f"the command ended with status {status}" if status else ""
    is_unseen = not problem and not watch.has_sign
    if is_unseen:
        problem = "no step, epoch or figure of it can be seen, so that each look takes all of a run"
    return MemoryLook(value, "", problem, is_unseen=is_unseen, command=ended.command)


class _FewSteps:
    """A watch that ends the command once it has made a few steps, an epoch, or logged a figure.

    ``values`` are those of the metric that it prints, None where they are logged.
    """

    poll_s = _POLL_S

    def __init__(self, values: PrintedValues | None) -> None:
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
        if self._count < _STEPS and not self._has_epoch and not self._has_figure:
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
        self._has_figure |= bool(self._logged.poll())
        self._has_figure |= bool(self._values and self._values.poll())
