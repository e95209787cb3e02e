"""Runs on this machine: each a ``joulewise run`` of its own, with its output in a log."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Final
from uuid import uuid4

from joulewise.analyse.stored_result import load_or_compute_result
from joulewise.data import RunResult
from joulewise.data.run_result_json import from_json
from joulewise.data.sweeps import Planned, Trial, TrialState, control_options
from joulewise.errors import JoulewiseError
from joulewise.session.termination import COMMAND_ID, RUN_ID, CommandTermination
from joulewise.store.files import read_regular, replace_file
from joulewise.store.runs import new_id
from joulewise.sweep.runners.cool_down import Thermometer, parse_cool_down
from joulewise.sweep.runners.early_stop import EndReason, RunMonitor, summarise_probe
from joulewise.sweep.runners.runner import GpuSlot, IsHopeless
from joulewise.sweep.spec import SweepSpec, render
from joulewise.sweep.stored_sweeps import LOGS
from joulewise.sweep.trial import failed, find_finished, log_name, tags, trial_of

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


# How long a command that was asked to end may take, its controls restored and its result written.
# Chosen: with twice as long, a sweep that is interrupted waits up to a minute for each command.
GRACE_S: Final = 30.0

# Exit statuses with which joulewise itself refuses: wrong usage, and those of env(1) for a command
# that could not be measured, executed or found.
_REFUSED: Final = {2, 125, 126, 127}
_ERROR_PREFIX: Final = "joulewise: "
_TAIL_LINES: Final = 20
_TAIL_B: Final = 16384
# Not ``-m``: that would look for every module in the user's working directory first.
_MAIN: Final = (
    "import sys; parent, home = sys.argv[1:3]; del sys.argv[1:3]; "
    "sys.path[:] = [p for p in sys.path if p] + [home]; "
    "from joulewise.process.linux import die_with_parent; die_with_parent(int(parent)); "
    "from joulewise.cli import main; main()"
)


class MeasuredRun:
    """A ``joulewise run`` in progress; its output is appended to ``log``.

    ``run`` is the directory that it will make in the store: its id is handed to the child, so that
    the run can be followed while it is recorded. Controls are restored however the child ends.
    """

    def __init__(
        self,
        store: Path,
        options: Sequence[str],
        command: Sequence[str],
        *,
        log: Path,
        environ: Mapping[str, str],
        cwd: str | None = None,
    ) -> None:
        self.run = store.absolute() / new_id()
        self._log = log
        self._token = f"{os.getpid()}-{uuid4().hex}"
        log.parent.mkdir(parents=True, exist_ok=True)
        home = Path(__file__).parents[3]
        with log.open("ab") as output:
            output.write(os.fsencode(f"$ {shlex.join(command)}\n"))
            output.flush()
            self._scratch = tempfile.TemporaryDirectory(prefix="joulewise-")
            self._result = Path(self._scratch.name) / "result.json"
            arguments = ["--store", str(store.absolute()), "run", "--json", str(self._result)]
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-W", "ignore", "-c", _MAIN, str(os.getpid()), str(home)),
                    *(*arguments, *options, "--", *command),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**environ, COMMAND_ID: self._token, RUN_ID: self.run.name},
                cwd=cwd,
                # What a terminal sends goes to the sweep, which ends this in its own time.
                start_new_session=True,
            )

    def __enter__(self) -> MeasuredRun:  # noqa: PYI034  # Self came with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._scratch.cleanup()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for the exit status; None where the child still runs after ``timeout_s``."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_s)
        return None

    def end(self, grace_s: float = GRACE_S) -> None:
        """Ask the command and all processes that it started to end; kill them after ``grace_s``.

        Processes that are left would run beside the next run, and be measured with it.
        """
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            if self.wait(grace_s) is None:
                self._process.kill()
                self._process.wait()
            CommandTermination(self._token).end(grace_s)

    def result(self) -> RunResult:
        """Return the result of the ended run.

        Raises:
            JoulewiseError: there is none, with the reason that joulewise gave, if it gave one.
        """
        try:
            return from_json(json.loads(self._result.read_text("utf-8")))
        except (OSError, ValueError):
            status = self._process.returncode
            raise JoulewiseError(
                self._refusal() or f"the run ended with status {status} and has no result",
                f"see {self._log}",
            ) from None

    def tail(self, run: str = "") -> str:
        return tail(self._log, run)

    def _refusal(self) -> str:
        """Why joulewise itself did not run the command, such as a control that is leased."""
        lines = self.tail().splitlines() if self._process.returncode in _REFUSED else []
        errors = [line for line in lines if line.startswith(_ERROR_PREFIX)]
        return errors[-1].removeprefix(_ERROR_PREFIX) if errors else ""


def tail(log: Path, run: str = "") -> str:
    """Return the last lines of a log, undecodable bytes replaced; empty where it cannot be read.

    The report of the run with the id ``run``, which follows the command's output, is left out.
    """
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - _TAIL_B))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return ""
    output, report, _ = text.rpartition(f"run {run}\n") if run else (text, "", "")
    return "\n".join((output if report else text).splitlines()[-_TAIL_LINES:])
