"""Runs one try of a recurrence: the command at one value, tuned while it runs, and what came of it.

It is ``joulewise tune`` by the job's cost, with a watch beside it. Nothing here raises for what
the command does; where it cannot be started, the errors are those of :func:`session.run.run`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from joulewise.data.jobs import JobDefinition, TryOutcome, TryStatus
from joulewise.data.sweeps import Setting
from joulewise.formatting import joules
from joulewise.optimise.live.tuner_client import TunerClient, TuningRequest
from joulewise.optimise.recurring.out_of_memory import (
    count_oom_kills,
    infer_out_of_memory,
    read_noted_error,
)
from joulewise.optimise.recurring.try_output import TryOutput
from joulewise.optimise.recurring.try_watch import StopReason, TryLimits, TryWatch
from joulewise.process.signals import Signal, Signals, take_signals
from joulewise.session.request import Ready, Request
from joulewise.session.run import (
    END_SIGNALS,
    CommandOutcome,
    CommandWatch,
    RunCallbacks,
    original_environ,
    run,
)
from joulewise.session.settings import AppliedSettings
from joulewise.store.tuning_file import read_tuning
from joulewise.sweep.spec import render

if TYPE_CHECKING:
    from joulewise.budget import Budget
    from joulewise.data.tuning import Tuning
    from joulewise.optimise.recurring.target_progress import TargetProgress
    from joulewise.optimise.recurring.try_cost import TryCost

_MOST_NAMES: Final = 8  # of logged figures in a message (chosen: about a line)


@dataclass(frozen=True)
class TrySettings:
    """How the command of each try is run.

    ``tuning`` is None where nothing is to be tuned. ``opening`` is shown before the command starts.
    ``pattern`` finds the target's metric in what the command prints; None: it is logged.
    """

    command: tuple[str, ...]
    store: Path
    request: Request
    budgets: tuple[Budget, ...]
    tuning: TuningRequest | None
    max_power_w: float
    stop_at_target: bool
    opening: Callable[[Ready], None]
    say: Callable[[str], None]
    pattern: re.Pattern[str] | None = None


@dataclass(frozen=True)
class FinishedTry:
    """How a try ended.

    - ``outcome``: what the job store is told
    - ``stop``: why the command was ended early, None where it ended by itself
    - ``is_cancelled``: somebody asked the command to end, as with Ctrl-C
    - ``problem``: why it counts as failed or crashed; empty otherwise
    - ``unrestored``: settings that could not be put back
    """

    outcome: TryOutcome
    command: CommandOutcome
    stop: StopReason | None
    is_cancelled: bool
    problem: str
    cost: TryCost | None
    unrestored: tuple[str, ...] = ()


class RecordedSignals:
    """Signals of one try, and whether one of them asked it to end."""

    def __init__(self) -> None:
        self._signals: Signals | None = None
        self.is_end_requested = False

    def take(self) -> Signals:
        self._signals = take_signals()
        return self

    @property
    def mask_before(self) -> Collection[int]:
        assert self._signals is not None  # noqa: S101  # they were taken
        return self._signals.mask_before

    def fileno(self) -> int:
        assert self._signals is not None  # noqa: S101  # they were taken
        return self._signals.fileno()

    def __iter__(self) -> Iterator[Signal]:
        for received in self._signals or ():
            self.is_end_requested |= received.number in END_SIGNALS
            yield received

    def close(self) -> None:
        """Give them back, so that the next try can take them."""
        for _ in self:
            pass
        if self._signals is not None:
            self._signals.close()
            self._signals = None


@dataclass(frozen=True)
class WatchedRun:
    """A command that has ended; ``out_of_memory`` is why it seems to have been short of memory.

    ``is_asked`` says that somebody asked it to end, as with Ctrl-C.
    """

    command: CommandOutcome
    is_asked: bool
    out_of_memory: str
    unrestored: tuple[str, ...] = ()


def run_try(
    job: JobDefinition,
    value: int,
    budget: float | None,
    settings: TrySettings,
    *,
    tags: Sequence[str],
    on_begin: Callable[[], None] = lambda: None,
    on_end: Callable[[TryOutcome], None] = lambda _: None,
) -> FinishedTry:
    """Run the command once, with the job's parameter at ``value``.

    ``on_begin`` is called once the command runs, ``on_end`` when it has ended, with what is known
    before its cost is measured.
    """
    limits = TryLimits(budget, settings.max_power_w, settings.stop_at_target)
    output = TryOutput(job.target.metric, settings.pattern)
    watch = TryWatch(job, limits, output.values)
    beginning = _BeginningWatch(watch, on_begin)
    with closing(output):
        watched = run_watched(
            job,
            value,
            settings,
            tags=tags,
            watch=beginning,
            begin=watch.begin,
            output=output,
        )
        progress = watch.finish()
    ended = watched.command
    status, problem = _judge(job, watched, watch)
    tuning = read_tuning(ended.run) if ended.run else None
    outcome = TryOutcome(
        status,
        epochs=progress.epochs_to_target or progress.epochs,
        metric_value=progress.best,
        run=ended.run.name if ended.run else None,
        exit_code=ended.exit_status,
        settings=_settings_of(job, value, tuning),
    )
    on_end(outcome)
    cost = measure_command(job, settings, ended, progress, tuning)
    if cost is not None:
        is_whole = not cost.is_at_least
        outcome = replace(
            outcome,
            cost=cost.cost if is_whole else None,
            epoch_cost=cost.epoch_cost,
            energy_j=cost.energy_j if is_whole else None,
            time_s=cost.time_s,
        )
    return FinishedTry(
        outcome, ended, watch.stop, watched.is_asked, problem, cost, watched.unrestored
    )


def run_watched(
    job: JobDefinition,
    value: int,
    settings: TrySettings,
    *,
    tags: Sequence[str],
    watch: CommandWatch,
    begin: Callable[[Path], None],
    output: TryOutput,
) -> WatchedRun:
    """Run the command at ``value`` to its end; ``begin`` is told the run before it starts."""
    words = {job.parameter: str(value)}
    command = [render(word, words) for word in settings.command]
    request = replace(settings.request, tags=(*settings.request.tags, *tags))
    signals, kills, say = RecordedSignals(), count_oom_kills(), settings.say
    tuner = None
    with ExitStack() as stack:
        stack.callback(signals.close)
        if settings.tuning is not None:
            tuner = TunerClient.start(settings.tuning, original_environ(), say)
            stack.callback(tuner.close)

        def open_all(ready: Ready) -> None:
            settings.opening(ready)
            if tuner:
                tuner.begin(ready.run)
            begin(ready.run)

        held = tuner or AppliedSettings((), say)
        callbacks = RunCallbacks(open_all, say, held, output.copied, watch, signals.take)
        ended = run(command, settings.store, request, settings.budgets, callbacks)
    noted = read_noted_error(ended.run) if ended.run else ""
    killed = count_oom_kills() - kills
    return WatchedRun(
        ended,
        signals.is_end_requested,
        infer_out_of_memory(ended.exit_status, noted or output.last_words(), killed),
        tuner.unrestored if tuner else (),
    )


class _BeginningWatch:
    """A watch that says at its first call that the command runs."""

    def __init__(self, inner: CommandWatch, on_begin: Callable[[], None]) -> None:
        self.inner = inner
        self.poll_s = inner.poll_s
        self._on_begin: Callable[[], None] | None = on_begin

    def check(self) -> str:
        if self._on_begin is not None:
            self._on_begin()
            self._on_begin = None
        return self.inner.check()


def _judge(job: JobDefinition, watched: WatchedRun, watch: TryWatch) -> tuple[TryStatus, str]:
    """What became of the try, and why it failed or crashed; empty where it did not."""
    exit_status = watched.command.exit_status
    if watch.progress.reached_ns is not None:
        return TryStatus.REACHED, ""
    if watched.is_asked:
        return TryStatus.FAILED, "it was asked to end"
    if watch.stop is StopReason.BUDGET:
        return TryStatus.STOPPED_EARLY, ""
    if watch.stop is StopReason.MAX_EPOCHS:
        return TryStatus.MISSED, ""
    if watched.out_of_memory:
        return TryStatus.CRASHED, f"out of memory (inferred: {watched.out_of_memory})"
    if exit_status:
        return TryStatus.FAILED, f"the command ended with status {exit_status}"
    if watched.command.run is None:
        return TryStatus.FAILED, "it was not measured"
    if watch.progress.best is None:
        return TryStatus.FAILED, describe_missing(job, watch.names)
    return TryStatus.MISSED, ""


def describe_missing(job: JobDefinition, names: Sequence[str]) -> str:
    """That the target's metric was never logged, and what was."""
    logged = f"only {', '.join(names[:_MOST_NAMES])}" if names else "nothing"
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{job.target.metric} was never logged as a number; the command logged {logged}{more}"


def measure_command(
    job: JobDefinition,
    settings: TrySettings,
    ended: CommandOutcome,
    progress: TargetProgress,
    tuning: Tuning | None = None,
) -> TryCost | None:
    """What a command that has ended cost; None where it is not known. Never raises."""
    if ended.run is None or ended.result is None:
        return None
    from joulewise.optimise.recurring.try_cost import measure_try

    try:
        cost = measure_try(
            ended.run,
            ended.result,
            progress,
            eta=job.eta,
            max_power_w=settings.max_power_w,
            tuning=tuning,
        )
    except Exception as error:  # noqa: BLE001  # the training is over; what it cost stays unknown
        settings.say(f"the cost of the try is not known: {type(error).__name__}: {error}")
        return None
    if cost is not None and cost.is_at_least:
        settings.say(
            "the cost of the try is not known: a device could not be read throughout, and "
            f"{joules(cost.energy_j)} is only what was read; joulewise show {ended.run.name}"
        )
    return cost


def _settings_of(job: JobDefinition, value: int, tuning: Tuning | None) -> Setting:
    """The job's parameter, and the settings that the tuning chose."""
    chosen = tuning.chosen.as_json() if tuning and tuning.chosen else {}
    return Setting.of({job.parameter: value, **chosen})
