"""Runs on this machine: each a ``joulewise run`` of its own, its output in a log.

Runs that the sweep has ended: whatever status they left with, they are not whole.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Final

from joulewise.analyse.stored_result import result_of
from joulewise.data import RunResult
from joulewise.data.sweeps import Planned, Trial, TrialState
from joulewise.errors import JoulewiseError
from joulewise.store.files import read_regular, replace_file
from joulewise.sweep.runners.child_run import GRACE_S, MeasuredRun, knob_options
from joulewise.sweep.runners.cool_down import Thermometer, parse_cool_down
from joulewise.sweep.runners.early_stop import RunMonitor, Why, looked
from joulewise.sweep.runners.runner import GpuSlot, Hopeless
from joulewise.sweep.spec import SweepSpec
from joulewise.sweep.trial import failed, finished, log_name, tags, trial_of
from joulewise.sweep.validate import render

_ENDED: Final = "ended"


def note_ended(folder: Path, planned: Planned) -> None:
    """Before it is told to end: many a program saves its state then, and succeeds."""
    path = _path(folder, planned)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, str(time.time_ns()))


def last_ended_ns(folder: Path, planned: Planned) -> int:
    """When that was done to it last; runs that began later are others."""
    try:
        return int(read_regular(_path(folder, planned)))
    except (OSError, ValueError):
        return 0


def _path(folder: Path, planned: Planned) -> Path:
    return (folder / _ENDED / log_name(planned)).with_suffix("")


_LOOK_S: Final = 0.2


class Here:
    """See :class:`joulewise.sweep.runners.runner.Runner`; ``folder`` is the sweep's.

    Where lanes are warm already, the first run of each waits for them to cool down, too.
    """

    def __init__(
        self,
        asked: SweepSpec,
        store: Path,
        folder: Path,
        *,
        environ: Mapping[str, str],
        lanes: Sequence[GpuSlot],
        say: Callable[[str], None],
        is_warm: bool = False,
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
        self._warm = set(range(len(lanes))) if is_warm else set()

    @property
    def lanes(self) -> int:
        return len(self._lanes)

    def adopt(self, planned: Planned) -> Trial | None:
        """The run that was made for it to its end, and of which the sweep was not told."""
        _, of_trial = tags(self._folder.name, planned)
        ended_ns = last_ended_ns(self._folder, planned)
        for run in self._earlier.get(of_trial, ()):
            with suppress(JoulewiseError):
                trial = self._told(planned, result_of(run))
                is_own_end = trial.start_wall_ns > ended_ns and _is_whole(trial)
                if trial.state is TrialState.DONE and is_own_end:
                    return trial
        return None

    @cached_property
    def _earlier(self) -> dict[str, list[Path]]:
        """What earlier processes left in the store, which may hold thousands of runs."""
        return finished(self._store, self._folder.name)

    def run(self, planned: Planned, hopeless: Hopeless | None = None) -> Trial:
        lane = self._lanes[planned.lane]
        if planned.lane in self._warm:
            self._cool(lane)
        self._warm.add(planned.lane)
        if self._stopped.is_set():
            return failed(planned, Why.STOPPED.value)
        try:
            return self._measured(planned, lane, hopeless)
        except JoulewiseError as error:
            return failed(planned, error.message)
        except OSError as error:  # no room for its log, no more processes
            return failed(planned, f"it cannot start: {error}")

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        self._thermometer.close()

    def _cool(self, lane: GpuSlot) -> None:
        remark = self._cool_down.wait(
            lambda: self._thermometer.warmest_c(lane.gpus),
            lambda wait_s: not self._stopped.wait(wait_s),
        )
        if remark:
            self._say(remark)

    def _measured(self, planned: Planned, lane: GpuSlot, hopeless: Hopeless | None) -> Trial:
        watch = RunMonitor(self._store, self._folder.name, planned, hopeless)
        with self._started(planned, lane) as run:
            why = self._await(run, watch)
            if why not in {None, Why.ENOUGH}:
                note_ended(self._folder, planned)
            run.end()
            if why is Why.STOPPED:
                return failed(planned, why.value)
            try:
                result = run.result()
            except JoulewiseError as error:
                reason = self._too_long if why is Why.TOO_LONG else error.message
                return replace(failed(planned, reason), log_tail=run.tail())
            trial = self._told(planned, result, run.tail(result.id))
        if why is Why.DOMINATED:
            return replace(trial, state=TrialState.STOPPED, reason=why.value, log_tail="")
        if why is Why.TOO_LONG:
            return replace(trial, state=TrialState.FAILED, reason=self._too_long)
        return trial

    @property
    def _too_long(self) -> str:
        return f"{Why.TOO_LONG.value}: {self._asked.timeout_s:g} s"

    def _started(self, planned: Planned, lane: GpuSlot) -> MeasuredRun:
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
            log=self._folder / "logs" / log_name(planned),
            environ={
                **self._environ,
                **lane.environ,
                **{name: render(text, words) for name, text in asked.environ.items()},
            },
            cwd=render(asked.cwd, words) if asked.cwd else None,
        )

    def _await(self, run: MeasuredRun, watch: RunMonitor) -> Why | None:
        """Why it is to be ended; None where it has ended by itself."""
        began_s = time.monotonic()
        while run.wait(_LOOK_S) is None:
            if self._stopped.is_set():
                return Why.STOPPED
            if self._is_too_long(began_s, watch):
                return Why.TOO_LONG
            why = watch.look()
            if why is not None:
                return why
        return None

    def _is_too_long(self, began_s: float, watch: RunMonitor) -> bool:
        """Of the command alone; what starts it may hang as well, and is given its time."""
        most_s, now_s = self._asked.timeout_s, time.monotonic()
        if most_s is None or now_s - began_s <= most_s:
            return False
        since_s = watch.command_since_s()
        return now_s - (began_s + GRACE_S if since_s is None else since_s) > most_s

    def _told(self, planned: Planned, result: RunResult, log_tail: str = "") -> Trial:
        trial = trial_of(planned, result, log_tail=log_tail)
        if planned.look_s is None:
            return trial
        return looked(trial, result, self._store / result.id)


def _is_whole(trial: Trial) -> bool:
    """A look that was cut short has ended otherwise than it would have by itself."""
    looked_s = trial.time_s or 0.0
    return trial.look_s is None or trial.exit_code == 0 or looked_s >= trial.look_s
