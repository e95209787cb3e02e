"""A sweep from its first run to its last, wherever the runs happen."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Final, Protocol

from joulewise.command.points import point
from joulewise.data.sweeps import WARM_UP, Planned, Sweep, Trial, TrialState
from joulewise.errors import JoulewiseError
from joulewise.search.strategy import Strategy
from joulewise.sweep.ledger import Identity, Ledger, identity
from joulewise.sweep.lock import running
from joulewise.sweep.runner import Runner

ATTEMPTS: Final = 2
"""So often a run is tried that fails; one that failed in an earlier process, once more."""

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Watch(Protocol):
    """Told how a sweep goes, always from the thread that executes it."""

    def began(self, sweep: Sweep, left: int) -> None:
        """What is known already, and how many runs are left, at most or by the best guess."""
        ...

    def started(self, planned: Planned) -> None: ...

    def ended(self, trial: Trial, sweep: Sweep, left: int) -> None:
        """It may never have started: it was skipped, or an earlier process had made it."""
        ...

    def said(self, line: str) -> None: ...


class CutOffError(JoulewiseError):
    """A signal ended the sweep before its last run; what is done is kept."""

    def __init__(self, number: signal.Signals, sweep: Sweep) -> None:
        self.signal = number
        self.exit_status = 128 + number
        done = sum(trial.state is TrialState.DONE for trial in sweep.trials)
        super().__init__(
            f"sweep {sweep.id} was ended by {number.name}; its {done} finished runs are kept",
            "the same command goes on with the others",
        )


def execute(folder: Path, strategy: Strategy, runner: Runner, watch: Watch) -> Sweep:
    """Make all runs that the strategy asks for and that ``folder`` does not have already.

    A run that fails is tried again, and does not stop the others. Where an earlier process was
    killed after a run had ended and before it was written down, the run is found and not repeated;
    one that had failed is tried once more.
    """
    with running(folder) as has_run:
        return _Execution(Ledger(folder, watch.said), strategy, runner, watch, has_run=has_run).go()


class _Execution:
    """All of it happens in one thread, but for the runs themselves, each in one of its own."""

    def __init__(
        self, ledger: Ledger, strategy: Strategy, runner: Runner, watch: Watch, *, has_run: bool
    ) -> None:
        self._ledger = ledger
        self._strategy = strategy
        self._runner = runner
        self._watch = watch
        self._has_run = has_run
        self._under_way: list[Planned] = []
        self._waiting: list[Planned] = []  # for their lane
        self._stopping = threading.Event()
        self._news: SimpleQueue[_News | CutOffError] = SimpleQueue()
        self._failed: dict[Identity, int] = {}  # how often, in earlier processes
        for trial in ledger.sweep.trials:
            if trial.block == WARM_UP:
                continue  # what was warm then is not now
            if trial.state is TrialState.FAILED:
                self._failed[identity(trial)] = trial.attempts
            else:
                strategy.tell(trial)

    def go(self) -> Sweep:
        self._watch.began(self._ledger.sweep, self._strategy.left)
        with _told_of_signals(self._cut_off):
            try:
                while self._fill_lanes():
                    self._take(self._news.get())
            except BaseException:
                self._stop()
                raise
            self._ledger.finish(self._strategy.sure)
        return self._ledger.sweep

    def _fill_lanes(self) -> bool:
        """Whether anything is under way."""
        while len(self._under_way) + len(self._waiting) < self._runner.lanes:
            planned = self._strategy.ask((*self._under_way, *self._waiting))
            if planned is None:
                break
            known = self._adopted(planned)
            if known is None:
                self._waiting.append(planned)
                self._start_waiting()
            else:
                self._keep(known)
        return bool(self._under_way)

    def _adopted(self, planned: Planned) -> Trial | None:
        if not self._has_run or planned.block == WARM_UP:
            return None
        trial = self._runner.adopt(planned)
        return trial if trial and trial.state is TrialState.DONE else None

    def _start_waiting(self) -> None:
        for planned in tuple(self._waiting):
            if planned.lane not in {each.lane for each in self._under_way}:
                self._waiting.remove(planned)
                self._under_way.append(planned)
                self._watch.started(planned)
                threading.Thread(target=self._make, args=(planned,), daemon=True).start()

    def _make(self, planned: Planned) -> None:
        """In a thread of its own: the run until it has succeeded, or failed often enough."""
        earlier = self._failed.get(identity(planned), 0)
        most = earlier + 1 if earlier else ATTEMPTS
        try:
            trial = replace(self._runner.run(planned), attempts=earlier + 1)
            while trial.state is TrialState.FAILED and trial.attempts < most:
                if self._stopping.is_set():
                    break
                trial = replace(self._runner.run(planned), attempts=trial.attempts + 1)
            self._news.put((planned, trial))
        except BaseException as error:  # noqa: BLE001  # raised where somebody sees it
            self._news.put((planned, error))

    def _take(self, news: _News | CutOffError) -> None:
        if isinstance(news, CutOffError):
            raise news
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

    def _cut_off(self, number: int) -> None:
        self._news.put(CutOffError(signal.Signals(number), self._ledger.sweep))

    def _stop(self) -> None:
        """What is under way ends, and is made again another time; a second signal waits no more."""
        self._stopping.set()
        self._runner.stop()
        for _ in self._under_way:
            if isinstance(self._news.get(), CutOffError):
                break
        self._ledger.save(durable=True)


_News = tuple[Planned, Trial | BaseException]


@contextmanager
def _told_of_signals(tell: Callable[[int], None]) -> Iterator[None]:
    """They end nothing meanwhile; those that are ignored stay so."""
    if threading.current_thread() is not threading.main_thread():
        yield  # they come to another thread
        return
    before = {
        number: signal.signal(number, lambda number, _: tell(number))
        for number in _ENDING
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
