"""A sweep from its first run to its last, wherever the runs happen.

The trials of a sweep that is being run: in memory, and on disk after each.

Runs that need not be made: those that must be too slow, and those that are beaten already.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from statistics import fmean
from typing import Any, Final, NamedTuple, Protocol

from joulewise.data.energy import Energy
from joulewise.data.sweeps import (
    CONFIRMING,
    WARM_UP,
    Planned,
    Setting,
    Sweep,
    Trial,
    TrialState,
    Value,
)
from joulewise.errors import JoulewiseError
from joulewise.process.failpoints import point
from joulewise.search.strategy import Strategy
from joulewise.store.files import replace_file
from joulewise.sweep.lock import CutOffError, running, told_of_signals
from joulewise.sweep.runners.runner import Hopeless, Runner
from joulewise.sweep.stored_sweeps import (
    FILE,
    FINISHED,
    INTERRUPTED,
    RUNNING,
    as_line,
    as_text,
    load,
)

_SPARED: Final = 24  # times that it took to save: as long, what can be made again is not saved

Identity = tuple[Setting, int, float | None]


def identity(one: Planned | Trial) -> Identity:
    """What tells a run from every other of its sweep."""
    return one.setting, one.block, one.look_s


class Ledger:
    """What cannot be written is kept, and written with the next."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        self._sweep = replace(load(folder), state=RUNNING)
        self._lines = [(trial, as_line(trial)) for trial in self._sweep.trials]
        self._fault: OSError | None = None
        self._saved_s = self._took_s = 0.0
        for left in folder.glob(f".{FILE}.*.part"):  # of one who was killed as it wrote
            left.unlink(missing_ok=True)

    @property
    def sweep(self) -> Sweep:
        return self._sweep

    def keep(self, trial: Trial) -> None:
        """In place of an earlier one of the same run, which had failed."""
        if trial.block != WARM_UP:
            same = identity(trial)
            self._lines = [each for each in self._lines if identity(each[0]) != same]
        self._lines.append((trial, as_line(trial)))
        self._sweep = replace(self._sweep, trials=tuple(trial for trial, _ in self._lines))
        if not self._can_wait:
            self.save()

    def save(self, *, durable: bool | None = None) -> None:
        began_s = time.monotonic()
        text = as_text(self._sweep, (line for _, line in self._lines))
        try:
            replace_file(
                self._folder / FILE, text, durable=self._is_dear if durable is None else durable
            )
        except OSError as error:
            if self._fault is None:
                self._say(
                    f"{self._folder / FILE} cannot be written: {error.strerror}; "
                    "the sweep goes on, and tries again after each run"
                )
            self._fault = error
        else:
            self._fault = None
        self._saved_s = time.monotonic()
        self._took_s = self._saved_s - began_s

    def finish(self, sure: Mapping[str, Any]) -> None:
        self._sweep = replace(self._sweep, state=FINISHED, sure=dict(sure))
        self.close()

    def interrupt(self) -> None:
        """Write that it ended before its last run."""
        self._sweep = replace(self._sweep, state=INTERRUPTED)
        self.save(durable=True)

    def close(self) -> None:
        """Write what was not, and fail if that cannot be done."""
        self.save(durable=True)
        if self._fault is not None:
            raise JoulewiseError(
                f"{self._folder / FILE} cannot be written: {self._fault.strerror}",
                "make room there and repeat the command: no run that is stored is made again",
            )

    @property
    def _is_dear(self) -> bool:
        """Whether what is lost takes hours to make again: in virtual time it does not."""
        return not self._sweep.asked.get("simulated")

    @property
    def _can_wait(self) -> bool:
        passed_s = time.monotonic() - self._saved_s
        return not self._is_dear and passed_s < _SPARED * self._took_s


def too_slow(planned: Planned, sweep: Sweep, most: float) -> str:
    """Why the run must take over ``most`` times as long as the reference; empty where it need not.

    With a knob lower and none higher nothing gets faster, so a setting is no faster than one that
    was seen to be too slow. That one is itself repeated like all others: on its mean all depends.
    """
    if not _counts(planned) or planned.setting == sweep.reference:
        return ""
    done = _done(sweep.trials)
    for setting, runs in done.items():
        if _is_lower(planned.setting, setting):
            slowdown = _slowdown(runs, done.get(sweep.reference, ()))
            if slowdown is not None and slowdown > most:
                return f"no faster than {setting}, which took {slowdown:.3g} times as long"
    return ""


def is_beaten(planned: Planned, time_s: float, joules: Mapping[str, float], sweep: Sweep) -> bool:
    """Whether another setting has finished with less time and less energy than this run's so far.

    Both only grow. The reference is never given up: everything is compared with it. Nor is a run
    that confirms a choice: between settings that are about as good, noise would stop it.
    """
    is_needed = planned.setting == sweep.reference or planned.block >= CONFIRMING
    if is_needed or not _counts(planned):
        return False
    return any(
        _are_less(runs, time_s, joules)
        for setting, runs in _done(sweep.trials).items()
        if setting != planned.setting
    )


class _EarlierRun(NamedTuple):
    block: int
    gpu: str
    time_s: float
    energy: Mapping[str, Energy]


def _done(trials: Iterable[Trial]) -> dict[Setting, list[_EarlierRun]]:
    """Whole runs by their setting; a look at some steps has no time to compare."""
    found: dict[Setting, list[_EarlierRun]] = {}
    for trial in trials:
        if trial.state is TrialState.DONE and trial.time_s is not None and _counts(trial):
            run = _EarlierRun(trial.block, trial.gpu, trial.time_s, trial.energy)
            found.setdefault(trial.setting, []).append(run)
    return found


def _counts(one: Planned | Trial) -> bool:
    return one.block != WARM_UP and one.look_s is None


def _is_lower(one: Setting, other: Setting) -> bool:
    """In a knob at least, and in none higher, with the command the same."""
    heights = [(_height(one.get(name)), _height(other.get(name))) for name in other.knobs]
    return (
        one != other
        and one.words == other.words
        and all(mine <= theirs for mine, theirs in heights)
    )


def _height(value: Value) -> float:
    """A knob that is left alone is at its highest."""
    return value if isinstance(value, float | int) else math.inf


def _slowdown(runs: Iterable[_EarlierRun], references: Iterable[_EarlierRun]) -> float | None:
    """Over the blocks in which the reference ran on the same board; None where it never did."""
    its_s = {(run.block, run.gpu): run.time_s for run in references}
    paired = [run for run in runs if (run.block, run.gpu) in its_s]
    if not paired:
        return None
    return fmean(run.time_s for run in paired) / fmean(its_s[run.block, run.gpu] for run in paired)


def _are_less(runs: Sequence[_EarlierRun], time_s: float, joules: Mapping[str, float]) -> bool:
    """On the mean, in time and in all energies that are known of them."""
    names = set.intersection(*(set(run.energy) for run in runs))
    return (
        bool(names)
        and fmean(run.time_s for run in runs) < time_s
        and all(
            fmean(run.energy[name].value for run in runs) < joules.get(name, 0.0) for name in names
        )
    )


ATTEMPTS: Final = 2
"""So often a run is tried that fails; one that failed in an earlier process, once more."""

# The kernel may hand a signal to any thread, and CPython then only makes a note of it: the main
# thread sees that when its wait ends, and a wait for a lock has no other reason to. So no wait is
# longer than this; chosen: unnoticed by whoever presses Ctrl-C, and no load for the machine.
_LONGEST_WAIT_S: Final = 0.2


class SweepObserver(Protocol):
    """Told how a sweep goes, from the thread that executes it; only ``said`` from any."""

    def began(self, sweep: Sweep, left: int) -> None:
        """What is known already, and how many runs are left, at most or by the best guess."""
        ...

    def started(self, planned: Planned) -> None: ...

    def ended(self, trial: Trial, sweep: Sweep, left: int) -> None:
        """It may never have started: it was skipped, or an earlier process had made it."""
        ...

    def said(self, line: str) -> None: ...


News = tuple[Planned, Trial | BaseException]


def execute(
    folder: Path,
    strategy: Strategy,
    runner: Runner,
    watch: SweepObserver,
    *,
    stop_hopeless: bool = False,
    news: SimpleQueue[News | signal.Signals] | None = None,
) -> Sweep:
    """Make all runs that the strategy asks for and that ``folder`` does not have already.

    A run that fails is tried again, and does not stop the others. Where an earlier process was
    killed after a run had ended and before it was written down, the run is found and not repeated;
    one that had failed is tried once more, before any other. With ``stop_hopeless`` a run is ended
    as soon as it has taken more time and more energy than the whole of another setting. A signal
    that is in ``news``, because it came before, ends the sweep as one that comes now does.
    """
    with running(folder) as has_run:
        ledger = Ledger(folder, watch.said)
        execution = _Execution(
            ledger,
            strategy,
            runner,
            watch,
            may_adopt=has_run,
            stop_hopeless=stop_hopeless,
            news=news,
        )
        execution.go()
        return ledger.sweep


class _Execution:
    """All of it happens in one thread, but for the runs themselves, each in one of its own."""

    def __init__(
        self,
        ledger: Ledger,
        strategy: Strategy,
        runner: Runner,
        watch: SweepObserver,
        *,
        may_adopt: bool,
        stop_hopeless: bool,
        news: SimpleQueue[News | signal.Signals] | None,
    ) -> None:
        self._ledger = ledger
        self._strategy = strategy
        self._runner = runner
        self._watch = watch
        self._may_adopt = may_adopt
        self._stop_hopeless = stop_hopeless
        self._under_way: list[Planned] = []
        self._waiting: list[Planned] = []  # for their lane
        self._stopping = threading.Event()
        self._news = SimpleQueue() if news is None else news
        self._failed: dict[Identity, Trial] = {}  # in earlier processes
        self._again: list[Planned] = []  # of these, what was not tried yet in this one

    def go(self) -> None:
        self._recall()
        self._watch.began(self._ledger.sweep, self._strategy.left)
        with told_of_signals(self._news.put):
            try:
                point("before-first-run")
                self._look_for_signals()
                while self._fill_lanes():
                    self._take(self._wait_for_news())
            except BaseException:
                self._stop()
                raise
            point("after-last-run")
            self._ledger.finish(self._strategy.sure)

    def _look_for_signals(self) -> None:
        """Those that came before the first run."""
        with suppress(Empty):
            self._take(self._news.get_nowait())

    def _wait_for_news(self) -> News | signal.Signals:
        while True:
            with suppress(Empty):
                return self._news.get(timeout=_LONGEST_WAIT_S)

    def _recall(self) -> None:
        """Tell the strategy of what was done in earlier processes.

        What failed, it is told once that was tried again: a search then knows again all that it
        knew, and goes on as it would have.
        """
        for trial in self._ledger.sweep.trials:
            if trial.block == WARM_UP:
                continue  # what was warm then is not now
            if trial.state is TrialState.FAILED:
                self._failed[identity(trial)] = trial
                lane = trial.lane % self._runner.lanes
                self._again.append(replace(trial.planned, lane=lane))
            else:
                self._strategy.tell(trial)

    def _fill_lanes(self) -> bool:
        """Whether anything is under way."""
        while len(self._under_way) + len(self._waiting) < self._runner.lanes:
            planned = self._next()
            if planned is None:
                break
            known = self._adopted(planned) or self._skipped(planned)
            if known is None:
                self._waiting.append(planned)
                self._start_waiting()
            else:
                self._keep(known)
        return bool(self._under_way)

    def _next(self) -> Planned | None:
        busy = (*self._under_way, *self._waiting)
        planned = self._strategy.ask(busy)
        if planned is not None and planned.block == WARM_UP:
            return planned
        taken = {each.lane for each in busy}
        found = next((each for each in self._again if each.lane not in taken), planned)
        if found is not None:
            same = identity(found)
            self._again = [each for each in self._again if identity(each) != same]
        return found

    def _adopted(self, planned: Planned) -> Trial | None:
        if not self._may_adopt or planned.block == WARM_UP:
            return None
        trial = self._runner.adopt(planned)
        if trial is None or trial.state is not TrialState.DONE:
            return None
        told = self._failed.get(identity(planned))  # such as one that took longer than it may
        return trial if told is None or trial.start_wall_ns > told.start_wall_ns else None

    def _skipped(self, planned: Planned) -> Trial | None:
        sweep = self._ledger.sweep
        most = sweep.asked.get("max_slowdown")
        reason = too_slow(planned, sweep, most) if most else ""
        if not reason:
            return None
        setting, block, look_s = identity(planned)
        state = TrialState.SKIPPED
        return Trial(setting, block, state, planned.lane, look_s, reason=reason)

    def _start_waiting(self) -> None:
        for planned in tuple(self._waiting):
            if planned.lane not in {each.lane for each in self._under_way}:
                self._watch.started(planned)
                self._waiting.remove(planned)
                self._under_way.append(planned)
                threading.Thread(target=self._make, args=(planned,), daemon=True).start()

    def _make(self, planned: Planned) -> None:
        """In a thread of its own: the run until it has succeeded, or failed often enough."""
        told = self._failed.get(identity(planned))
        earlier = told.attempts if told else 0
        most = earlier + 1 if told else ATTEMPTS
        hopeless = self._hopeless(planned) if self._stop_hopeless else None
        try:
            for attempt in range(earlier + 1, most + 1):
                trial = replace(self._runner.run(planned, hopeless), attempts=attempt)
                if trial.state is not TrialState.FAILED or self._stopping.is_set():
                    break
            self._news.put((planned, trial))
        except BaseException as error:  # noqa: BLE001  # raised where somebody sees it
            self._news.put((planned, error))

    def _hopeless(self, planned: Planned) -> Hopeless:
        def hopeless(time_s: float, joules: Mapping[str, float]) -> bool:
            return is_beaten(planned, time_s, joules, self._ledger.sweep)

        return hopeless

    def _take(self, news: News | signal.Signals) -> None:
        if isinstance(news, signal.Signals):
            raise CutOffError(news, self._ledger.sweep)
        planned, trial = news
        self._under_way.remove(planned)
        if isinstance(trial, BaseException):
            raise trial
        self._keep(trial)
        self._start_waiting()

    def _keep(self, trial: Trial) -> None:
        self._ledger.keep(trial)
        self._strategy.tell(trial)
        self._watch.ended(trial, self._ledger.sweep, self._strategy.left)
        point("between-runs")

    def _stop(self) -> None:
        """What is under way ends, and is made again another time; a second signal waits no more."""
        self._stopping.set()
        self._runner.stop()
        for _ in self._under_way:
            if isinstance(self._wait_for_news(), signal.Signals):
                break
        self._ledger.interrupt()
