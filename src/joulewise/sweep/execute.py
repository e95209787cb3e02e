"""A sweep from its first run to its last, wherever the runs happen."""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, Protocol

from joulewise.command.points import point
from joulewise.data.sweeps import WARM_UP, Planned, Sweep, Trial, TrialState
from joulewise.search.strategy import Strategy
from joulewise.sweep.cut_off import CutOffError, told_of_signals
from joulewise.sweep.ledger import Identity, Ledger, identity
from joulewise.sweep.lock import running
from joulewise.sweep.runner import Hopeless, Runner
from joulewise.sweep.skip import is_beaten, too_slow

ATTEMPTS: Final = 2
"""So often a run is tried that fails; one that failed in an earlier process, once more."""

# The kernel may hand a signal to any thread, and CPython then only makes a note of it: the main
# thread sees that when its wait ends, and a wait for a lock has no other reason to. So no wait is
# longer than this; chosen: unnoticed by whoever presses Ctrl-C, and no load for the machine.
_LONGEST_WAIT_S: Final = 0.2


class Watch(Protocol):
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
    watch: Watch,
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
        watch: Watch,
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
