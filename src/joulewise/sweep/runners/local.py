"""Runs on this machine: each a ``joulewise run`` of its own, with its output in a log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Final

from joulewise.analyse.stored_result import load_or_compute_result
from joulewise.data import RunResult
from joulewise.data.sweeps import Planned, Trial, TrialState
from joulewise.errors import JoulewiseError
from joulewise.store.files import read_regular, replace_file
from joulewise.sweep.runners.child_run import GRACE_S, MeasuredRun, control_options
from joulewise.sweep.runners.cool_down import Thermometer, parse_cool_down
from joulewise.sweep.runners.early_stop import EndReason, RunMonitor, summarise_probe
from joulewise.sweep.runners.runner import GpuSlot, IsHopeless
from joulewise.sweep.spec import SweepSpec
from joulewise.sweep.stored_sweeps import LOGS
from joulewise.sweep.trial import failed, find_finished, log_name, tags, trial_of
from joulewise.sweep.validate import render

_ENDED: Final = "ended"  # folder of a sweep: when it ended each run, in ns of the wall clock
_POLL_S: Final = 0.2


class LocalRunner:
    """A :class:`~joulewise.sweep.runners.runner.Runner` on the GPUs of this machine.

    ``folder`` is the sweep's. With ``is_warm``, the first run of each slot waits for its GPUs to
    cool down as the later ones do.
    """

    def __init__(
        self,
        spec: SweepSpec,
        store: Path,
        folder: Path,
        *,
        environ: Mapping[str, str],
        slots: Sequence[GpuSlot],
        say: Callable[[str], None],
        is_warm: bool = False,
    ) -> None:
        self._spec = spec
        self._store = store
        self._folder = folder
        self._environ = environ
        self._slots = slots
        self._say = say
        self._cool_down = parse_cool_down(spec.cool_down)
        self._thermometer = Thermometer(environ)
        self._stopped = threading.Event()
        self._warm = set(range(len(slots))) if is_warm else set()

    @property
    def slots(self) -> int:
        return len(self._slots)

    def adopt(self, planned: Planned) -> Trial | None:
        """The complete run that an earlier process made for ``planned`` and did not write down.

        A run that the sweep itself ended is not complete, whatever status it left with: many
        programs save their state then, and succeed.
        """
        _, trial_tag = tags(self._folder.name, planned)
        ended_ns = self._read_ended_ns(planned)
        for run in self._finished_runs.get(trial_tag, ()):
            with suppress(JoulewiseError):
                trial = self._make_trial(planned, load_or_compute_result(run))
                is_complete = trial.start_wall_ns > ended_ns and _is_complete(trial)
                if trial.state is TrialState.DONE and is_complete:
                    return trial
        return None

    @cached_property
    def _finished_runs(self) -> dict[str, list[Path]]:
        """Read once: the store may hold thousands of runs."""
        return find_finished(self._store, self._folder.name)

    def run(self, planned: Planned, is_hopeless: IsHopeless | None = None) -> Trial:
        slot = self._slots[planned.lane]
        if planned.lane in self._warm:
            self._wait_until_cool(slot)
        self._warm.add(planned.lane)
        if self._stopped.is_set():
            return failed(planned, EndReason.STOPPED.value)
        try:
            return self._measure(planned, slot, is_hopeless)
        except JoulewiseError as error:
            return failed(planned, error.message)
        except OSError as error:  # no space for its log, no more processes
            return failed(planned, f"it cannot start: {error}")

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        self._thermometer.close()

    def _wait_until_cool(self, slot: GpuSlot) -> None:
        remark = self._cool_down.wait(
            lambda: self._thermometer.warmest_c(slot.gpus),
            lambda wait_s: not self._stopped.wait(wait_s),
        )
        if remark:
            self._say(remark)

    def _measure(self, planned: Planned, slot: GpuSlot, is_hopeless: IsHopeless | None) -> Trial:
        too_long = f"{EndReason.TOO_LONG.value}: {self._spec.timeout_s or 0:g} s"
        with self._start(planned, slot) as run:
            reason = self._wait(run, RunMonitor(run.run, planned, is_hopeless))
            if reason not in {None, EndReason.ENOUGH}:
                self._note_ended(planned)
            run.end()
            if reason is EndReason.STOPPED:
                return failed(planned, reason.value)
            try:
                result = run.result()
            except JoulewiseError as error:
                why = too_long if reason is EndReason.TOO_LONG else error.message
                return replace(failed(planned, why), log_tail=run.tail())
            trial = self._make_trial(planned, result, run.tail(result.id))
        if reason is EndReason.DOMINATED:
            return replace(trial, state=TrialState.STOPPED, reason=reason.value, log_tail="")
        if reason is EndReason.TOO_LONG:
            return replace(trial, state=TrialState.FAILED, reason=too_long)
        return trial

    def _start(self, planned: Planned, slot: GpuSlot) -> MeasuredRun:
        spec, words = self._spec, planned.setting.words
        sweep_tag, trial_tag = tags(self._folder.name, planned)
        return MeasuredRun(
            self._store,
            [
                f"--tag={sweep_tag}",
                f"--tag={trial_tag}",
                *control_options(planned.setting, slot.gpus, force=spec.force),
                *([f"--rate={spec.rate_hz:g}"] if spec.rate_hz else []),
                *([] if spec.hooks else ["--no-hooks"]),
            ],
            [render(word, words) for word in spec.command],
            log=self._folder / LOGS / log_name(planned),
            environ={
                **self._environ,
                **slot.environ,
                **{name: render(text, words) for name, text in spec.environ.items()},
            },
            cwd=render(spec.cwd, words) if spec.cwd else None,
        )

    def _wait(self, run: MeasuredRun, monitor: RunMonitor) -> EndReason | None:
        """Wait until the run is to be ended, and return why; None where it has ended by itself."""
        began_s = time.monotonic()
        while run.wait(_POLL_S) is None:
            if self._stopped.is_set():
                return EndReason.STOPPED
            if self._is_too_long(began_s, monitor):
                return EndReason.TOO_LONG
            reason = monitor.check()
            if reason is not None:
                return reason
        return None

    def _is_too_long(self, began_s: float, monitor: RunMonitor) -> bool:
        """Whether the command exceeds its time limit.

        Starting it does not count, and may take up to ``GRACE_S``.
        """
        limit_s, now_s = self._spec.timeout_s, time.monotonic()
        if limit_s is None or now_s - began_s <= limit_s:
            return False
        since_s = monitor.command_since_s()
        return now_s - (began_s + GRACE_S if since_s is None else since_s) > limit_s

    def _make_trial(self, planned: Planned, result: RunResult, log_tail: str = "") -> Trial:
        trial = trial_of(planned, result, log_tail=log_tail)
        if planned.look_s is None:
            return trial
        return summarise_probe(trial, result, self._store / result.id)

    def _note_ended(self, planned: Planned) -> None:
        """Write when the sweep ended a run, before it does so."""
        path = self._ended_path(planned)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, str(time.time_ns()))

    def _read_ended_ns(self, planned: Planned) -> int:
        """When the sweep last ended a run of this plan; 0 where it never did."""
        try:
            return int(read_regular(self._ended_path(planned)))
        except (OSError, ValueError):
            return 0

    def _ended_path(self, planned: Planned) -> Path:
        return (self._folder / _ENDED / log_name(planned)).with_suffix("")


def _is_complete(trial: Trial) -> bool:
    """Whether a run was not cut short: of a probe, that it succeeded or took its seconds."""
    probed_s = trial.time_s or 0.0
    return trial.look_s is None or trial.exit_code == 0 or probed_s >= trial.look_s
