"""The tuner's process: it tunes the GPUs of one command, and ends when the front process does.

It has a session of its own and blocks all signals, as the recorder does. What it has set is put
back by the guardian when this process ends, however that happens.
"""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from joulewise.data.tuning import (
    SavedShare,
    StepSource,
    Tuning,
    TuningState,
)
from joulewise.errors import (
    DeviceError,
    DeviceLostError,
    DriverHangsError,
    HeldError,
    JoulewiseError,
    NotSupportedError,
    OutOfRangeError,
    PermissionDeniedError,
    UsageError,
)
from joulewise.optimise.live.candidates import available_axes, make_candidates
from joulewise.optimise.live.setting_lease import SettingLease
from joulewise.optimise.live.tuner_client import (
    TuningRequest,
    compile_progress,
    describe_error,
)
from joulewise.process.json_lines import JsonSocket
from joulewise.process.linux import is_gone
from joulewise.process.output_copy import OutputListener
from joulewise.store.layout import LIVE, MARKS
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from joulewise.optimise.live.controller import Controller
    from joulewise.optimise.live.policy.response_model import TuningCandidate
    from joulewise.optimise.live.step_energy import LiveEnergy
    from joulewise.optimise.live.tuning_options import TuningOptions
    from joulewise.session.gpu_discovery import DiscoveredGpu
    from joulewise.store.logged_values import LoggedValue

_BUG: Final = "please report it"
# Chosen. Steps are looked for this often: as long as a short step, and cheap beside the recorder.
# Doubled, a setting is changed 0.1 s later.
_POLL_S: Final = 0.1
# Energy, epochs, the recorder and tuning.json are looked at less often: they change once a second.
_SLOW_POLL_NS: Final = NS_PER_S // 2
_SAVE_NS: Final = NS_PER_S
# While a setting is held little changes, and each time takes 10 to 30 ms of the processor that the
# training uses (measured with 121 candidates). Chosen; a change of state is saved at once.
_CALM_SAVE_NS: Final = 5 * NS_PER_S
_HEARTBEAT_S: Final = 1.0  # chosen: the client waits for 30 s
# Without a step for so long, the user is told once. Chosen: data sets load for minutes.
_NO_STEPS_NS: Final = 120 * NS_PER_S
_MOST_REFUSED: Final = 5  # settings in a row, after which no other is tried
# A block is as long as a sensor needs for so much more than the 1 % of ``LiveEnergy``, within these
# limits: the policy averages blocks by their own noise, and many short ones find the best sooner
# than a few exact ones. Chosen.
_BLOCK_SHARE: Final = 0.4
_LEAST_BLOCK_S, _MOST_BLOCK_S = 0.8, 2.0
_READINGS_S: Final = 20.0  # until the first readings are on disk (chosen; they take 2 s)
_OF_ONE_VALUE: Final = (OutOfRangeError, NotSupportedError, DeviceError)
_OF_ALL_VALUES: Final = (HeldError, PermissionDeniedError, DeviceLostError, DriverHangsError)
_NO_STEPS: Final = {
    StepSource.MARKS: "the program marked no steps",
    StepSource.POWER: "the power showed no whole step",
    StepSource.ACTIVITY: "the activity of the GPU showed no whole step",
    StepSource.PROGRESS: "no two lines of the output matched --progress",
}


class Steps(Protocol):
    """The steps of the job; see :class:`joulewise.optimise.live.steps.StepFollower`."""

    @property
    def source(self) -> StepSource: ...

    @property
    def is_inferred(self) -> bool: ...

    @property
    def note(self) -> str:
        """What a reader has to know of these steps; may be empty."""
        ...

    def poll(self) -> Sequence[Any]: ...

    def has_lost_rank(self, now_ns: int) -> str: ...


class StepEnergies(Protocol):
    """Their energy; see :class:`joulewise.optimise.live.step_energy.LiveEnergy`."""

    def covered_until_ns(self) -> int: ...

    def energies(self, windows_ns: Any) -> tuple[Any, Any]: ...


class GpuSettings(Protocol):
    """What sets candidates; see :class:`SettingLease`."""

    def set(self, candidate: TuningCandidate) -> None: ...

    def clear(self) -> None: ...

    def close(self) -> None: ...

    def guardian_error(self) -> JoulewiseError | None: ...


class TuningLoop:
    """Moves steps and energies to the controller, and its decisions to the GPUs.

    It waits for nothing: ``update`` does what is due at a moment (CLOCK_MONOTONIC).
    """

    def __init__(
        self,
        controller: Controller,
        settings: GpuSettings,
        steps: Steps,
        energies: StepEnergies,
        *,
        say: Callable[[str], None],
        save: Callable[[Tuning, bool], None],
        fault: Callable[[int], str] = lambda _now_ns: "",
        epochs: Callable[[], tuple[int, int | None] | None] = lambda: None,
        logged: Callable[[], Sequence[LoggedValue]] = tuple,
        started_ns: int = 0,
    ) -> None:
        """``fault`` is a reason why tuning has to end, ``epochs`` those done and their number.

        ``logged`` is what the program has logged since the last call.
        """
        self._controller = controller
        self._settings = settings
        self._steps = steps
        self._energies = energies
        self._say = say
        self._save = save
        self._fault = fault
        self._epochs = epochs
        self._logged = logged
        self._started_ns = started_ns
        self._in_force: int | None = None
        self._refused = 0
        self._has_steps = False
        self._source = steps.source
        self._has_told_no_steps = False
        self._slow_ns = self._saved_ns = 0
        self._shown: Tuning | None = None
        self._is_put_back = False
        self.unrestored: tuple[str, ...] = ()
        self.unwritten = ""  # why the last state could not be saved

    @property
    def is_over(self) -> bool:
        return self._controller.state is TuningState.ENDED

    def update(self, now_ns: int) -> None:
        """Do what is due."""
        if self.is_over:
            return
        self._add_steps()
        if now_ns - self._slow_ns >= _SLOW_POLL_NS:
            self._slow_ns = now_ns
            self._look_slowly(now_ns)
        self._apply(now_ns)
        self._show(now_ns)

    def end(self, now_ns: int, fault: str = "") -> None:
        """Put all settings back; the job has ended, or ``fault`` says why tuning does before it."""
        if not self.is_over:
            with suppress(Exception):  # what the last steps took is less than putting back
                self._add_steps()
                self._add_logged()
                self._add_energies()
            no_steps = "" if self._has_steps else _NO_STEPS[self._steps.source]
            self._controller.end(now_ns, fault or no_steps, is_early=bool(fault))
        self._put_back()
        self._write(self._record(), is_last=True)

    def _add_steps(self) -> None:
        steps = self._steps.poll()
        if self._has_steps and self._steps.source is not self._source:
            why = f"its steps are known by the {self._steps.source.value} now"
            self._controller.begin_anew(time.monotonic_ns(), why)
        self._has_steps = self._has_steps or bool(steps)
        self._source = self._steps.source
        self._controller.add_steps(steps)

    def _add_logged(self) -> None:
        for each in self._logged():
            self._controller.add_logged(each.name, each.value, each.t_ns)

    def _look_slowly(self, now_ns: int) -> None:
        self._add_logged()
        self._add_energies()
        epochs = self._epochs()
        if epochs is not None:
            self._controller.set_epochs(*epochs, now_ns)
        gone = self._settings.guardian_error()
        reason = gone.message if gone else self._fault(now_ns) or self._steps.has_lost_rank(now_ns)
        if reason:
            self._stop(now_ns, reason)
        if not self._has_steps and now_ns - self._started_ns > _NO_STEPS_NS:
            self._say_once_no_steps()

    def _add_energies(self) -> None:
        pending = self._controller.pending_blocks()
        if not pending:
            return
        covered_ns = self._energies.covered_until_ns()
        due = [block for block in pending if block.end_ns <= covered_ns]
        windows = [window for block in due for window in block.windows_ns]
        if not windows:
            return
        joules, _ = self._energies.energies(windows)
        values = iter(joules)
        for block in due:
            energy_j = sum(float(next(values)) for _ in block.windows_ns)
            self._controller.add_energy(block, energy_j)

    def _apply(self, now_ns: int) -> None:
        decision = self._controller.update(now_ns)
        while decision.index != self._in_force and not self.is_over:
            index = decision.index
            try:
                if index is None:
                    self._settings.clear()
                else:
                    self._settings.set(self._controller.policy.candidates[index])
            except JoulewiseError as error:
                self._on_refused(index, error)
            else:
                self._in_force, self._refused = index, 0
                self._controller.set_in_force(index, time_ns(now_ns))
            decision = self._controller.update(now_ns)
        if self.is_over:
            self._put_back()

    def _on_refused(self, index: int | None, error: JoulewiseError) -> None:
        now_ns = time.monotonic_ns()
        self._refused += 1
        # Of those, another holder or a lost right concern every value.
        # A lease that could not be released says nothing of the value that was set.
        is_about_value = isinstance(error, _OF_ONE_VALUE) and not isinstance(error, _OF_ALL_VALUES)
        if index is None or not is_about_value or self._refused >= _MOST_REFUSED:
            self._controller.end(now_ns, error.message, is_early=True)
        else:
            self._controller.refuse(index, now_ns, error.message)

    def _stop(self, now_ns: int, reason: str) -> None:
        self._controller.end(now_ns, reason, is_early=True)
        self._put_back()

    def _put_back(self) -> None:
        try:
            self._settings.close()
        except JoulewiseError as error:
            self.unrestored += (f"{error.message}; {error.hint}",)
        self._in_force = None
        self._is_put_back = True

    def _say_once_no_steps(self) -> None:
        if not self._has_told_no_steps:
            self._has_told_no_steps = True
            so_far = _NO_STEPS[self._steps.source]
            self._say(f"{so_far} so far, and nothing is tuned without steps")

    def _show(self, now_ns: int) -> None:
        """Say what changed, and keep tuning.json up to date."""
        shown, state = self._shown, self._controller.state
        is_same = shown is not None and (shown.state, shown.reason) == (
            state,
            self._controller.reason,
        )
        is_calm = state in {TuningState.HOLDING, TuningState.CHECKING}
        if is_same and now_ns - self._saved_ns < (_CALM_SAVE_NS if is_calm else _SAVE_NS):
            return
        self._saved_ns = now_ns
        tuning = self._record()
        for line in _news(shown, tuning):
            self._say(line)
        self._write(tuning, is_last=self.is_over)
        self._shown = tuning

    def _record(self) -> Tuning:
        tuning = self._controller.tuning()
        if tuning.early_end is not None and self._is_put_back:
            is_restored = not self.unrestored
            tuning = replace(tuning, early_end=replace(tuning.early_end, is_restored=is_restored))
        if self.unrestored:
            tuning = replace(tuning, notes=(*tuning.notes, *self.unrestored))
        if not self._has_steps:
            return tuning
        inferred = "steps are guessed from data loaders and optimisers"
        for note in (inferred if self._steps.is_inferred else "", self._steps.note):
            if note and note not in tuning.notes:
                tuning = replace(tuning, notes=(*tuning.notes, note))
        return replace(tuning, step_source=self._steps.source)

    def _write(self, tuning: Tuning, *, is_last: bool) -> None:
        try:
            self._save(tuning, is_last)
        except OSError as error:  # a full disk: the tuning goes on, and is written again
            self.unwritten = error.strerror or str(error)
        else:
            self.unwritten = ""


def time_ns(at_least_ns: int) -> int:
    """Now, on the clock of the steps; a setting is in force once the call that set it returned."""
    return max(at_least_ns, time.monotonic_ns())


def _news(before: Tuning | None, now: Tuning) -> list[str]:
    """Lines on what changed: a setting was chosen, exploring began again, tuning ended."""
    if before is None:
        return []
    news = []
    if len(now.changes) > len(before.changes):
        news.append(f"tuning: exploring again: {now.changes[-1].reason}")
    is_busy = now.state in {TuningState.WARMING_UP, TuningState.EXPLORING}
    was_busy = before.state in {TuningState.WARMING_UP, TuningState.EXPLORING}
    is_new = now.chosen is not None and (was_busy or now.chosen != before.chosen)
    if now.state is TuningState.ENDED:
        news.append(f"tuning ended: {now.early_end.reason if now.early_end else now.reason}")
    elif is_new and not is_busy:
        news.append(f"tuning: {_describe_choice(now)}: {now.reason}")
    return news


def _describe_choice(now: Tuning) -> str:
    if now.chosen == now.reference:
        return "the setting before is held"
    saved = ""
    if now.saving:
        energy, time_share = now.saving.energy, now.saving.time
        by_fit = " by the fitted curves" if now.saving.method == "fit" else ""
        saved = (
            f", which{by_fit} {'saves' if energy.value >= 0 else 'adds'} {_amount(energy)} of the "
            f"energy and takes {_amount(time_share)} "
            f"{'longer' if time_share.value < 0 else 'less time'}"
        )
    return f"holding {now.chosen}{saved}"


def _amount(share: SavedShare) -> str:
    return f"{100 * abs(share.value):.1f} ± {100 * share.error:.1f} %"


@dataclass(frozen=True)
class PreparedTuning:
    """What is tuned: the GPUs, the axes that can be set, and what sets them."""

    request: TuningRequest
    gpus: tuple[DiscoveredGpu, ...]
    axes: tuple[str, ...]
    settings: SettingLease
    output: OutputListener | None = None


def main(descriptor: int) -> NoReturn:
    """Tune for the process at the other end of an inherited socket until it is gone."""
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        front = JsonSocket(socket.socket(fileno=descriptor))
        try:
            _serve(front, os.environ)
        except JoulewiseError as error:
            front.send("refused", **describe_error(error))
        except Exception as error:  # noqa: BLE001  # sent to the client: there is no stderr
            what = f"the tuner failed with {type(error).__name__}: {error}"
            front.send("failed", message=what, hint=_BUG)
    finally:
        os._exit(0)  # a thread that hangs in a driver must not keep the process


def _serve(front: JsonSocket, environ: Mapping[str, str]) -> None:
    first = next(iter(front.receive(timeout_s=None)), None)
    if first is None:
        return
    request = TuningRequest.from_message(first["request"])
    prepared = _prepare(request, environ, front)
    try:
        # Heavy, and loaded while the recorder starts.
        from joulewise.optimise.live import controller, step_energy, steps  # noqa: F401

        run = _await_begin(front)
        if run is not None:
            _tune(front, run, prepared)
    finally:
        with suppress(JoulewiseError):
            prepared.settings.close()


def _prepare(
    request: TuningRequest, environ: Mapping[str, str], front: JsonSocket
) -> PreparedTuning:
    """What can be tuned, and the lease on it; raises where that is nothing."""
    from joulewise.session.gpu_discovery import gpus as find_gpus

    try:
        gpus = find_gpus(request.gpus, environ)
    except UsageError as error:
        raise DeviceError(error.message, error.hint) from None
    axes = available_axes(gpus, request.axes)
    settings = SettingLease(gpus, force=request.force)
    refused = settings.begin(axes, required=bool(request.axes))
    for each in refused.values():
        front.send("say", line=f"{each.message}: it is not tuned; {each.hint}")
    output = OutputListener(Path(request.output)) if request.output else None
    front.send("ready")
    allowed = tuple(axis for axis in axes if axis not in refused)
    return PreparedTuning(request, tuple(gpus), allowed, settings, output)


def _await_begin(front: JsonSocket) -> Path | None:
    """The run directory; None where the command has ended before it was recorded."""
    while not front.closed:
        for message in front.receive(timeout_s=None):
            if message["kind"] == "begin":
                return Path(message["run"])
            if message["kind"] == "end":
                front.send("ended", unrestored=[], unwritten="")
                return None
    return None


def _tune(front: JsonSocket, run: Path, prepared: PreparedTuning) -> None:
    """Tune until the command has ended, or the front process."""
    from joulewise.optimise.live.step_energy import LiveEnergy

    started_ns = time.monotonic_ns()
    energies = LiveEnergy(run, [gpu.key for gpu in prepared.gpus])
    if not _await_readings(front, energies):
        prepared.settings.close()
        front.send("ended", unrestored=[], unwritten="")
        return
    if not energies.covered_until_ns():
        keys = ", ".join(gpu.key for gpu in prepared.gpus)
        raise DeviceError(
            f"no readings of {keys} were recorded in {_READINGS_S:g} s", "see joulewise doctor"
        )
    loop = _make_loop(front, run, prepared, energies, started_ns)
    reason, heartbeat = "", TunerHeartbeat(front)
    try:
        while not front.closed:
            received = front.receive(timeout_s=None if loop.is_over else _POLL_S)
            if any(message["kind"] == "end" for message in received):
                break
            loop.update(time.monotonic_ns())
            heartbeat.beat(is_idle=loop.is_over)
    except BaseException as error:
        reason = f"the tuner failed with {type(error).__name__}: {error}"
        raise
    finally:
        loop.end(time.monotonic_ns(), reason)
    front.send("ended", unrestored=list(loop.unrestored), unwritten=loop.unwritten)


class TunerHeartbeat:
    """Tells the front process about once a second that the tuner is alive."""

    def __init__(self, front: JsonSocket) -> None:
        self._front = front
        self._last_s = -math.inf
        self._is_idle = False

    def beat(self, *, is_idle: bool = False) -> None:
        """``is_idle``: it holds nothing any more, and waits for the end of the command."""
        if is_idle and not self._is_idle:
            self._is_idle = True
            self._front.send("idle")
        elif not is_idle and time.monotonic() - self._last_s >= _HEARTBEAT_S:
            self._last_s = time.monotonic()
            self._front.try_send("alive")


def _await_readings(front: JsonSocket, energies: LiveEnergy) -> bool:
    """Wait until the sensors' timing is known by their readings; False where the command ended."""
    deadline_s, heartbeat = time.monotonic() + _READINGS_S, TunerHeartbeat(front)
    while not energies.covered_until_ns() and time.monotonic() < deadline_s:
        heartbeat.beat()
        if any(message["kind"] == "end" for message in front.receive(timeout_s=_POLL_S)):
            return False
    return not front.closed


def _make_loop(
    front: JsonSocket,
    run: Path,
    prepared: PreparedTuning,
    energies: LiveEnergy,
    started_ns: int,
) -> TuningLoop:
    from joulewise.optimise.live.controller import Controller
    from joulewise.optimise.live.earlier_runs import find_earlier_means
    from joulewise.optimise.live.policy.tuning_policy import TuningPolicy
    from joulewise.store.logged_values import LoggedFollower
    from joulewise.store.manifest import read_manifest
    from joulewise.store.tuning_file import reserve_last_tuning, write_last_tuning, write_tuning

    request, recorder = prepared.request, read_manifest(run).recorder
    candidates, reference = make_candidates(prepared.gpus, prepared.axes)
    options = _options(request, prepared.gpus, energies)
    policy = TuningPolicy(
        candidates,
        reference,
        request.metric,
        seed=request.seed,
        max_slowdown=request.max_slowdown,
        overhead_w=request.overhead_w,
        max_power_w=options.max_power_w,
        earlier=find_earlier_means(run, options.devices),
    )

    def fault(now_ns: int) -> str:
        if recorder is not None and is_gone(recorder.pid, recorder.started_ticks):
            return "the recorder ended, and with it the energy of steps"
        return energies.fault(now_ns)

    def save(tuning: Tuning, is_last: bool) -> None:
        if is_last:
            write_last_tuning(run, tuning)
        else:
            write_tuning(run, tuning, durable=False)

    reserve_last_tuning(run)
    return TuningLoop(
        Controller(policy, options, started_ns=started_ns, starting_index=reference),
        prepared.settings,
        _follow_steps(run, prepared),
        energies,
        say=lambda line: front.send("say", line=line),
        save=save,
        fault=fault,
        epochs=lambda: _read_epochs(run),
        logged=LoggedFollower(run / MARKS).poll,
        started_ns=started_ns,
    )


def _follow_steps(run: Path, prepared: PreparedTuning) -> Steps:
    from joulewise.optimise.live.progress import ProgressFollower
    from joulewise.optimise.live.steps import StepFollower
    from joulewise.optimise.live.unmarked_steps import GpuLoad, UnmarkedSteps

    if prepared.output is None:
        load = GpuLoad(run, [gpu.key for gpu in prepared.gpus])
        return UnmarkedSteps(StepFollower(run / MARKS), load)
    return ProgressFollower(prepared.output, compile_progress(prepared.request.progress))


def _options(
    request: TuningRequest, gpus: Sequence[DiscoveredGpu], energies: LiveEnergy
) -> TuningOptions:
    from joulewise.optimise.live.tuning_options import TuningOptions

    keys = tuple(gpu.key for gpu in gpus)
    exact_s = max(map(energies.shortest_block_s, keys))
    limits_w = [gpu.highest_w for gpu in gpus if gpu.default_w is not None]
    return TuningOptions(
        shortest_block_s=min(max(_BLOCK_SHARE * exact_s, _LEAST_BLOCK_S), _MOST_BLOCK_S),
        settle_s=max(map(energies.settle_s, keys)),
        max_slowdown=request.max_slowdown,
        overhead_w=request.overhead_w,
        max_power_w=sum(limits_w) if len(limits_w) == len(gpus) else None,
        prove=request.prove,
        keep_checking=request.keep_checking,
        boundary=request.boundary,
        devices=keys,
    )


def _read_epochs(run: Path) -> tuple[int, int | None] | None:
    """Epochs done and their number, as the recorder knows them; None where it does not."""
    try:
        epochs = json.loads((run / LIVE).read_bytes())["epochs"]
        return int(epochs["done"]), epochs["total"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
