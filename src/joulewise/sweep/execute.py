"""The loop of a sweep: ask the strategy, make the run, write the trial; wherever the runs happen.

- :func:`execute`: the whole loop, with retries, adoption of earlier runs, and signals
- :class:`Ledger`: the trials, in memory and in ``sweep.json``
- :func:`reason_to_skip`, :func:`is_dominated`: runs that need not be made, or not to their end
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from statistics import fmean
from typing import Any, Final, Protocol

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
from joulewise.process.failpoints import failpoint
from joulewise.search.objective import TrialKey, trial_key
from joulewise.search.strategy import Strategy
from joulewise.store.files import replace_file
from joulewise.sweep.lock import CutOffError, queue_signals, running
from joulewise.sweep.runners.runner import IsHopeless, Runner
from joulewise.sweep.stored_sweeps import (
    FINISHED,
    INTERRUPTED,
    RUNNING,
    SWEEP_FILE,
    as_line,
    as_text,
    load_sweep,
)

# A run that fails is attempted this often; one that failed in an earlier process, once more.
ATTEMPTS: Final = 2

# A sweep in virtual time is saved again only after this many times the time that saving took, so
# that saving costs at most 1/24 of the sweep. Chosen: twice as many loses twice as much simulated
# work, seconds at most, in a crash.
_SAVE_INTERVAL_RATIO: Final = 24

# The kernel may hand a signal to any thread, and CPython then only makes a note of it: the main
# thread sees that when its wait ends, and a wait for a lock has no other reason to. So no wait is
# longer than this; chosen: unnoticed by whoever presses Ctrl-C, and no load for the machine.
_LONGEST_WAIT_S: Final = 0.2

RunEnd = tuple[Planned, Trial | BaseException]
"""A run that has ended: its trial, or the exception that the runner raised."""

Event = RunEnd | signal.Signals


class Ledger:
    """The trials of a sweep that is being run, written to ``sweep.json`` after each.

    Where the file cannot be written, the trials stay in memory and are written with the next one.
    """

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        self._sweep = replace(load_sweep(folder), state=RUNNING)
        self._lines = [(trial, as_line(trial)) for trial in self._sweep.trials]
        self._fault: OSError | None = None
        self._saved_s = self._took_s = 0.0
        for leftover in folder.glob(
            f".{SWEEP_FILE}.*.part"
        ):  # of a process that was killed in writing
            leftover.unlink(missing_ok=True)

    @property
    def sweep(self) -> Sweep:
        return self._sweep

    def add(self, trial: Trial) -> None:
        """Add a trial, in place of an earlier one of the same run, which had failed."""
        if trial.block != WARM_UP:
            key = trial_key(trial)
            self._lines = [(other, line) for other, line in self._lines if trial_key(other) != key]
        self._lines.append((trial, as_line(trial)))
        self._sweep = replace(self._sweep, trials=tuple(trial for trial, _ in self._lines))
        if not self._can_wait:
            self.save()

    def save(self, *, durable: bool | None = None) -> None:
        """Write ``sweep.json``; ``durable``: until it is on the disk, the default for real runs."""
        began_s = time.monotonic()
        text = as_text(self._sweep, (line for _, line in self._lines))
        durable = not self._is_virtual if durable is None else durable
        try:
            replace_file(self._folder / SWEEP_FILE, text, durable=durable)
        except OSError as error:
            if self._fault is None:
                self._say(
                    f"cannot write {self._folder / SWEEP_FILE}: {error.strerror}; "
                    "the sweep continues, and tries again after each run"
                )
            self._fault = error
        else:
            self._fault = None
        self._saved_s = time.monotonic()
        self._took_s = self._saved_s - began_s

    def finish(self, sure: Mapping[str, Any]) -> None:
        """Write that the sweep has made its last run, and fail if that cannot be written."""
        self._sweep = replace(self._sweep, state=FINISHED, sure=dict(sure))
        self.save(durable=True)
        if self._fault is not None:
            raise JoulewiseError(
                f"cannot write {self._folder / SWEEP_FILE}: {self._fault.strerror}",
                "free some disk space and repeat the command: stored runs are not made again",
            )

    def interrupt(self) -> None:
        """Write that the sweep ended before its last run."""
        self._sweep = replace(self._sweep, state=INTERRUPTED)
        self.save(durable=True)

    @property
    def _is_virtual(self) -> bool:
        return bool(self._sweep.asked.get("simulated"))

    @property
    def _can_wait(self) -> bool:
        passed_s = time.monotonic() - self._saved_s
        return self._is_virtual and passed_s < _SAVE_INTERVAL_RATIO * self._took_s


def reason_to_skip(planned: Planned, sweep: Sweep, max_slowdown: float) -> str:
    """Why the run must take over ``max_slowdown`` times the reference's time; else empty.

    Lowering a control, with none raised, never makes a run faster. So a setting is no faster than
    one above it whose mean slowdown was too large.
    """
    if not _is_full_run(planned) or planned.setting == sweep.reference:
        return ""
    trials = _group_done(sweep.trials)
    for setting, done in trials.items():
        if _is_lower(planned.setting, setting):
            slowdown = _slowdown(done, trials.get(sweep.reference, ()))
            if slowdown is not None and slowdown > max_slowdown:
                return f"no faster than {setting}, which took {slowdown:.3g} times as long"
    return ""


def is_dominated(
    planned: Planned, time_s: float, energy_j: Mapping[str, float], sweep: Sweep
) -> bool:
    """Whether another setting took less time and less energy in all than this run so far.

    Time and energy only grow, so such a run cannot win (Pareto dominance). The reference is never
    given up, since everything is compared with it; nor is a run that confirms a choice: between
    settings that are about as good, noise alone would stop it.
    """
    is_needed = planned.setting == sweep.reference or planned.block >= CONFIRMING
    if is_needed or not _is_full_run(planned):
        return False
    return any(
        _dominate(done, time_s, energy_j)
        for setting, done in _group_done(sweep.trials).items()
        if setting != planned.setting
    )


def _group_done(trials: Iterable[Trial]) -> dict[Setting, list[tuple[float, Trial]]]:
    """Full runs that succeeded, with their time in s, by their setting."""
    by_setting: dict[Setting, list[tuple[float, Trial]]] = {}
    for trial in trials:
        if trial.state is TrialState.DONE and trial.time_s is not None and _is_full_run(trial):
            by_setting.setdefault(trial.setting, []).append((trial.time_s, trial))
    return by_setting


def _is_full_run(run: Planned | Trial) -> bool:
    """Whether the run counts and is not a probe, whose time is that of some steps only."""
    return run.block != WARM_UP and run.look_s is None


def _is_lower(setting: Setting, other: Setting) -> bool:
    """Whether a setting has a control lower than the other's and none higher, all else the same."""
    pairs = [(_level(setting.get(name)), _level(other.get(name))) for name in other.controls]
    return (
        setting != other
        and setting.words == other.words
        and all(level <= other_level for level, other_level in pairs)
    )


def _level(value: Value) -> float:
    """The value of a control; one that is left alone is at its highest."""
    return value if isinstance(value, float | int) else math.inf


def _slowdown(
    done: Iterable[tuple[float, Trial]], references: Iterable[tuple[float, Trial]]
) -> float | None:
    """Mean time over the reference's, in blocks in which both ran on one board; None without."""
    reference_s = {(trial.block, trial.gpu): time_s for time_s, trial in references}
    pairs = [
        (time_s, reference_s[trial.block, trial.gpu])
        for time_s, trial in done
        if (trial.block, trial.gpu) in reference_s
    ]
    if not pairs:
        return None
    return fmean(time_s for time_s, _ in pairs) / fmean(other_s for _, other_s in pairs)


def _dominate(
    done: list[tuple[float, Trial]], time_s: float, energy_j: Mapping[str, float]
) -> bool:
    """Whether runs took less on average: in time and in every energy that is known of them all."""
    names = set.intersection(*(set(trial.energy) for _, trial in done))
    return (
        bool(names)
        and fmean(run_s for run_s, _ in done) < time_s
        and all(
            fmean(trial.energy[name].value for _, trial in done) < energy_j.get(name, 0.0)
            for name in names
        )
    )


class SweepObserver(Protocol):
    """Hears of the progress of a sweep from its main thread; ``said`` is called from any thread."""

    def began(self, sweep: Sweep, left: int) -> None:
        """``sweep`` has the trials of earlier processes; about ``left`` runs are still to make."""
        ...

    def started(self, planned: Planned) -> None: ...

    def ended(self, trial: Trial, sweep: Sweep, left: int) -> None:
        """It may never have started: it was skipped, or an earlier process had made it."""
        ...

    def said(self, line: str) -> None: ...


def execute(
    folder: Path,
    strategy: Strategy,
    runner: Runner,
    observer: SweepObserver,
    *,
    stop_hopeless: bool = False,
    events: SimpleQueue[Event] | None = None,
) -> Sweep:
    """Make all runs that the strategy asks for and that the sweep in ``folder`` does not have.

    A run that fails is attempted again, and does not stop the others. Where an earlier process was
    killed after a run had ended and before it was written down, the run is adopted. One that had
    failed is attempted once more, before any other. With ``stop_hopeless`` a run is ended as soon
    as another setting dominates it (:func:`is_dominated`). ``events`` may have signals that came
    before, which end the sweep like those that come now.

    Raises:
        CutOffError: a signal has ended the sweep.
    """
    with running(folder) as has_run:
        ledger = Ledger(folder, observer.said)
        execution = _Execution(
            ledger,
            strategy,
            runner,
            observer,
            may_adopt=has_run,
            stop_hopeless=stop_hopeless,
            events=SimpleQueue() if events is None else events,
        )
        execution.run_all()
        return ledger.sweep


class _Execution:
    """The state of :func:`execute`: one thread has all of it, and each run a thread of its own."""

    def __init__(
        self,
        ledger: Ledger,
        strategy: Strategy,
        runner: Runner,
        observer: SweepObserver,
        *,
        may_adopt: bool,
        stop_hopeless: bool,
        events: SimpleQueue[Event],
    ) -> None:
        self._ledger = ledger
        self._strategy = strategy
        self._runner = runner
        self._observer = observer
        self._may_adopt = may_adopt
        self._stop_hopeless = stop_hopeless
        self._events = events
        self._under_way: list[Planned] = []
        self._waiting: list[Planned] = []  # for their slot
        self._stopping = threading.Event()
        self._failed: dict[TrialKey, Trial] = {}  # in earlier processes
        self._retries: list[Planned] = []  # of these, those not yet attempted again

    def run_all(self) -> None:
        self._recall()
        self._observer.began(self._ledger.sweep, self._strategy.left)
        with queue_signals(self._events.put):
            try:
                failpoint("before-first-run")
                with suppress(Empty):  # a signal that came before the first run
                    self._handle(self._events.get_nowait())
                while self._fill_slots():
                    self._handle(self._wait_for_event())
            except BaseException:
                self._stop()
                raise
            failpoint("after-last-run")
            self._ledger.finish(self._strategy.sure)

    def _wait_for_event(self) -> Event:
        while True:
            with suppress(Empty):
                return self._events.get(timeout=_LONGEST_WAIT_S)

    def _recall(self) -> None:
        """Give the strategy the trials of earlier processes, except for failed ones.

        Those it gets once they were attempted again: a search then has all that it had, and
        continues as it would have.
        """
        for trial in self._ledger.sweep.trials:
            if trial.block == WARM_UP:
                continue  # what was warm then is not now
            if trial.state is TrialState.FAILED:
                self._failed[trial_key(trial)] = trial
                slot = trial.lane % self._runner.slots
                self._retries.append(replace(trial.planned, lane=slot))
            else:
                self._strategy.tell(trial)

    def _fill_slots(self) -> bool:
        """Start runs while slots are free; whether any is under way then."""
        while len(self._under_way) + len(self._waiting) < self._runner.slots:
            planned = self._next()
            if planned is None:
                break
            trial = self._adopt(planned) or self._skip(planned)
            if trial is None:
                self._waiting.append(planned)
                self._start_waiting()
            else:
                self._add(trial)
        return bool(self._under_way)

    def _next(self) -> Planned | None:
        busy = (*self._under_way, *self._waiting)
        planned = self._strategy.ask(busy)
        if planned is not None and planned.block == WARM_UP:
            return planned
        taken = {other.lane for other in busy}
        chosen = next((retry for retry in self._retries if retry.lane not in taken), planned)
        if chosen is not None:
            key = trial_key(chosen)
            self._retries = [retry for retry in self._retries if trial_key(retry) != key]
        return chosen

    def _adopt(self, planned: Planned) -> Trial | None:
        if not self._may_adopt or planned.block == WARM_UP:
            return None
        trial = self._runner.adopt(planned)
        if trial is None or trial.state is not TrialState.DONE:
            return None
        # Not a run that is known to have failed, such as one that exceeded its time limit.
        earlier = self._failed.get(trial_key(planned))
        return trial if earlier is None or trial.start_wall_ns > earlier.start_wall_ns else None

    def _skip(self, planned: Planned) -> Trial | None:
        sweep = self._ledger.sweep
        max_slowdown = sweep.asked.get("max_slowdown")
        reason = reason_to_skip(planned, sweep, max_slowdown) if max_slowdown else ""
        if not reason:
            return None
        setting, block, look_s = trial_key(planned)
        state = TrialState.SKIPPED
        return Trial(setting, block, state, planned.lane, look_s, reason=reason)

    def _start_waiting(self) -> None:
        for planned in tuple(self._waiting):
            if planned.lane not in {other.lane for other in self._under_way}:
                self._observer.started(planned)
                self._waiting.remove(planned)
                self._under_way.append(planned)
                threading.Thread(target=self._make, args=(planned,), daemon=True).start()

    def _make(self, planned: Planned) -> None:
        """Make a run until it has succeeded or failed often enough; in a thread of its own."""
        failed = self._failed.get(trial_key(planned))
        earlier = failed.attempts if failed else 0
        last = earlier + 1 if failed else ATTEMPTS

        def is_hopeless(time_s: float, energy_j: Mapping[str, float]) -> bool:
            return is_dominated(planned, time_s, energy_j, self._ledger.sweep)

        check: IsHopeless | None = is_hopeless if self._stop_hopeless else None
        try:
            for attempt in range(earlier + 1, last + 1):
                trial = replace(self._runner.run(planned, check), attempts=attempt)
                if trial.state is not TrialState.FAILED or self._stopping.is_set():
                    break
            self._events.put((planned, trial))
        except BaseException as error:  # noqa: BLE001  # raised again in the main thread
            self._events.put((planned, error))

    def _handle(self, event: Event) -> None:
        if isinstance(event, signal.Signals):
            raise CutOffError(event, self._ledger.sweep)
        planned, trial = event
        self._under_way.remove(planned)
        if isinstance(trial, BaseException):
            raise trial
        self._add(trial)
        self._start_waiting()

    def _add(self, trial: Trial) -> None:
        self._ledger.add(trial)
        self._strategy.tell(trial)
        self._observer.ended(trial, self._ledger.sweep, self._strategy.left)
        failpoint("between-runs")

    def _stop(self) -> None:
        """End the runs under way, to be made again later; a second signal ends the waiting."""
        self._stopping.set()
        self._runner.stop()
        for _ in self._under_way:
            if isinstance(self._wait_for_event(), signal.Signals):
                break
        self._ledger.interrupt()
