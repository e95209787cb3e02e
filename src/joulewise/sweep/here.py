"""Runs on this machine: each a ``joulewise run`` of its own, its output in a log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from joulewise.analyse.kept import read_result
from joulewise.data import RunResult
from joulewise.data.sweeps import Planned, Trial, TrialState
from joulewise.errors import JoulewiseError
from joulewise.sweep.asked import Asked
from joulewise.sweep.cooling import parse_cool_down
from joulewise.sweep.heat import Thermometer
from joulewise.sweep.lanes import Lane
from joulewise.sweep.looking import looked
from joulewise.sweep.naming import runs_of, tags
from joulewise.sweep.process import MeasuredRun, knob_options
from joulewise.sweep.runner import Hopeless
from joulewise.sweep.template import render
from joulewise.sweep.trial import trial_of
from joulewise.sweep.watching import Watch, Why

_LOOK_S: Final = 0.2


class Here:
    """See :class:`joulewise.sweep.runner.Runner`; ``folder`` is the sweep's."""

    def __init__(
        self,
        asked: Asked,
        store: Path,
        folder: Path,
        *,
        environ: Mapping[str, str],
        lanes: Sequence[Lane],
        say: Callable[[str], None],
    ) -> None:
        self._asked = asked
        self._store = store
        self._folder = folder
        self._environ = environ
        self._lanes = lanes
        self._say = say
        self._cool_down = parse_cool_down(asked.cool_down)
        self._thermometer = Thermometer(environ)
        self._stopped = threading.Event()
        self._warm: set[int] = set()

    @property
    def lanes(self) -> int:
        return len(self._lanes)

    def adopt(self, planned: Planned) -> Trial | None:
        """The run that was made for it to its end, and of which the sweep was not told."""
        for run, _ in runs_of(self._store, self._folder.name, planned):
            result = read_result(run)
            if result is not None:
                trial = self._told(planned, result)
                if trial.state is TrialState.DONE:
                    return trial
        return None

    def run(self, planned: Planned, hopeless: Hopeless | None = None) -> Trial:
        lane = self._lanes[planned.lane]
        if planned.lane in self._warm:
            self._cool(lane)
        self._warm.add(planned.lane)
        if self._stopped.is_set():
            return _failed(planned, Why.STOPPED.value)
        try:
            return self._measured(planned, lane, hopeless)
        except JoulewiseError as error:
            return _failed(planned, error.message)
        except OSError as error:  # no room for its log, no more processes
            return _failed(planned, f"it cannot start: {error}")

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        self._thermometer.close()

    def _cool(self, lane: Lane) -> None:
        remark = self._cool_down.wait(
            lambda: self._thermometer.warmest_c(lane.gpus),
            lambda wait_s: not self._stopped.wait(wait_s),
        )
        if remark:
            self._say(remark)

    def _measured(self, planned: Planned, lane: Lane, hopeless: Hopeless | None) -> Trial:
        watch = Watch(self._store, self._folder.name, planned, hopeless)
        with self._started(planned, lane) as run:
            why = self._await(run, watch)
            run.end()
            if why is Why.STOPPED:
                return _failed(planned, why.value)
            try:
                result = run.result()
            except JoulewiseError as error:
                return replace(_failed(planned, error.message), log_tail=run.tail())
            trial = self._told(planned, result, run.tail())
        if why is Why.DOMINATED:
            return replace(trial, state=TrialState.STOPPED, reason=why.value, log_tail="")
        if why is Why.TOO_LONG:
            reason = f"{why.value}: {self._asked.timeout_s:g} s"
            return replace(trial, state=TrialState.FAILED, reason=reason)
        return trial

    def _started(self, planned: Planned, lane: Lane) -> MeasuredRun:
        asked, words = self._asked, planned.setting.words
        of_sweep, of_trial = tags(self._folder.name, planned)
        return MeasuredRun(
            self._store,
            [
                f"--tag={of_sweep}",
                f"--tag={of_trial}",
                *knob_options(planned.setting, lane.gpus, force=asked.force),
                *([f"--rate={asked.rate_hz:g}"] if asked.rate_hz else []),
                *([] if asked.hooks else ["--no-hooks"]),
            ],
            [render(word, words) for word in asked.command],
            log=self._folder / "logs" / f"{planned.block}-{of_trial.partition(':')[2]}.log",
            environ={
                **self._environ,
                **lane.environ,
                **{name: render(text, words) for name, text in asked.environ.items()},
            },
            cwd=render(asked.cwd, words) if asked.cwd else None,
        )

    def _await(self, run: MeasuredRun, watch: Watch) -> Why | None:
        """Why it is to be ended; None where it has ended by itself."""
        start_s, timeout_s = time.monotonic(), self._asked.timeout_s
        while run.wait(_LOOK_S) is None:
            if self._stopped.is_set():
                return Why.STOPPED
            if timeout_s and time.monotonic() - start_s > timeout_s:
                return Why.TOO_LONG
            why = watch.look()
            if why is not None:
                return why
        return None

    def _told(self, planned: Planned, result: RunResult, log_tail: str = "") -> Trial:
        trial = trial_of(planned, result, log_tail=log_tail)
        if planned.look_s is None:
            return trial
        return looked(trial, result, self._store / result.id)


def _failed(planned: Planned, reason: str) -> Trial:
    return Trial(
        planned.setting,
        planned.block,
        TrialState.FAILED,
        planned.lane,
        planned.look_s,
        start_wall_ns=time.time_ns(),
        reason=reason,
    )
