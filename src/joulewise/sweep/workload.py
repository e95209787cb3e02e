"""The workload of a simulated sweep: one by its name, or one like a recorded run or sweep."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.analyse.run_windows import measure_windows
from joulewise.analyse.stored_result import load_or_compute_result
from joulewise.data import Kind, Span
from joulewise.data.sweeps import MEM_CLOCK, POWER_LIMIT, SM_CLOCK, WARM_UP, Setting, TrialState
from joulewise.errors import UsageError
from joulewise.simulate.boards import BOARDS, load_board
from joulewise.simulate.model import Board, ControlSettings, Workload
from joulewise.simulate.recorded_workload import RecordedSteps, TrainingShape, fit_workload
from joulewise.simulate.workloads import load_workload
from joulewise.store.layout import SWEEPS, StreamKind
from joulewise.store.manifest import Manifest, RecordedDevice, read_manifest
from joulewise.store.runs import find
from joulewise.store.spans import SpanTable, read_spans
from joulewise.store.trace import open_device_stream
from joulewise.sweep import stored_sweeps as sweeps
from joulewise.sweep.runners.early_stop import STEP, UNSTEADY_STEPS
from joulewise.sweep.spec import SimulationSpec
from joulewise.sweep.validate import BATCH_SIZE, EPOCHS
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

# How long a step is taken to be where none are marked. Chosen, a usual length on one GPU: only the
# number of the steps depends on it, not the time or the energy of the run.
_STEP_S: Final = 0.3

_VARIANT: Final = re.compile(r"(-\d+GB)?( \(simulated\))?$")  # what names of one board differ in


def load(
    simulated: SimulationSpec, words: Mapping[str, str], board: Board, store: Path
) -> Workload:
    """Load the workload of a setting whose batch size and epochs are ``words``."""
    given, like = {name: int(word) for name, word in words.items()}, simulated.like
    if like and BATCH_SIZE in given:
        raise UsageError(
            f"--like {like} cannot predict other batch sizes",
            f"leave out {BATCH_SIZE}, or use --workload",
        )
    if like:
        workload = load_like(like, store, board)
    else:
        workload = load_workload(simulated.workload, board, given.get(BATCH_SIZE))
    return replace(workload, epochs=given.get(EPOCHS, workload.epochs))


def load_like(which: str, store: Path, board: Board) -> Workload:
    """Fit a workload to recorded runs.

    ``which`` is a run by its id, name or path, or a sweep, all settings of which are fitted.
    ``board`` is the one to simulate: runs on another known board are carried over by the physics.
    """
    runs = [_Recorded.read(path) for path in _runs(which, store)]
    first = runs[0]
    recorded = _board_of(first.device)
    if recorded is not None:
        steps = [run.steps(recorded) for run in runs]
        return fit_workload(first.shape, steps, recorded, board)
    workload = fit_workload(first.shape, [run.scaled(board) for run in runs], board, board)
    source = (
        f"of {first.device.info.name} nothing is known, so that times are its own and watts are "
        f"scaled by the default limits; {workload.source}"
    )
    return replace(workload, source=source)


def _runs(which: str, store: Path) -> list[Path]:
    """The run of this name; of a sweep, one run of every setting that differs only in controls."""
    try:
        return [find(store, which)]
    except UsageError:
        if not (store / SWEEPS).is_dir():
            raise
    sweep = sweeps.load_sweep(sweeps.find_sweep(store, which))
    runs: dict[Setting, Path] = {}
    for trial in sweep.trials:
        is_done = trial.state is TrialState.DONE and trial.look_s is None and trial.block != WARM_UP
        if is_done and trial.run and trial.setting.words == sweep.reference.words:
            runs.setdefault(trial.setting, store / trial.run)
    if not runs:
        raise UsageError(
            f"no run of the sweep {which} is complete", "name a run that `joulewise ls` lists"
        )
    return list(runs.values())


@dataclass(frozen=True)
class _Recorded:
    """A recorded run, and the time and power of its steady steps."""

    manifest: Manifest
    device: RecordedDevice
    shape: TrainingShape
    step_s: float
    power_w: float
    slow: dict[str, NDArray[Any]]

    @classmethod
    def read(cls, run: Path) -> _Recorded:
        manifest, result, spans = read_manifest(run), load_or_compute_result(run), read_spans(run)
        used = [d for d in manifest.devices if d.info.key in result.counted]
        gpus = [device for device in used if device.info.kind is Kind.GPU]
        if not gpus:
            raise UsageError(f"{run.name} used no GPU", "name a run that did: joulewise ls")
        device = gpus[0]
        key = device.info.key
        window_ns, number = _find_window(spans, result.run.span)
        power_w = measure_windows(run, result, [window_ns], [key], spans)[0][key].mean_w
        if power_w is None:
            raise UsageError(f"{run.name} has no power readings of {key}", "name another run")
        step_s = (window_ns[1] - window_ns[0]) / NS_PER_S / number
        slow = open_device_stream(run, key, StreamKind.SLOW)
        columns = {} if slow is None else _select_rows(slow.chunks(slow.columns), window_ns)
        shape = _shape(manifest, spans, step_s, number)
        memory_b = np.max(columns.get("memory_used_b", np.zeros(1)), initial=0)
        shape = replace(shape, memory_b=int(np.nan_to_num(memory_b)))
        return cls(manifest, device, shape, step_s, power_w, columns)

    def steps(self, board: Board) -> RecordedSteps:
        """What a fit to a run on this board needs."""
        busy = self._mean("gpu_utilisation_pct")
        return RecordedSteps(
            self._controls(board),
            self.step_s,
            self.power_w,
            self._mean("sm_clock_mhz"),
            None if busy is None else busy / 100,
        )

    def scaled(self, board: Board) -> RecordedSteps:
        """The same on another board that is as fast, with power in proportion to its limit."""
        default_w = self.device.default_limit_w or self.device.maximum_w or board.limits.default_w
        scale = board.limits.default_w / default_w
        limit_w = scale * self.device.settings.get(POWER_LIMIT, default_w)
        steps = self.steps(board)
        return replace(
            steps, controls=ControlSettings(limit_w), power_w=scale * steps.power_w, clock_mhz=None
        )

    def _controls(self, board: Board) -> ControlSettings:
        controls = self.manifest.options.get("settings", {}).get(self.device.info.key, {})
        default_w = self.device.default_limit_w or board.limits.default_w
        limit_w = controls.get(POWER_LIMIT) or self.device.settings.get(POWER_LIMIT, default_w)
        sm, memory = (controls.get(name) for name in (SM_CLOCK, MEM_CLOCK))
        return ControlSettings(limit_w, sm and (sm, sm), memory and (memory, memory))

    def _mean(self, name: str) -> float | None:
        values = self.slow.get(name, np.empty(0))
        values = values[np.isfinite(values)]
        return float(values.mean()) if len(values) else None


def _find_window(spans: SpanTable, run: Span) -> tuple[tuple[int, int], int]:
    """The interval of the steady steps and their number; without, of the epochs or of the run."""
    steps, epochs = _steady_steps(spans), spans.where(spans.closed).named("epoch")
    start_ns, end_ns = run.start_ns, run.end_ns
    for table in (steps, epochs):
        if len(table):
            start_ns, end_ns = int(table.start_ns[0]), int(table.end_ns.max())
            break
    number = len(steps) or round((end_ns - start_ns) / NS_PER_S / _STEP_S)
    return (start_ns, end_ns), max(number, 1)


def _steady_steps(spans: SpanTable) -> SpanTable:
    """The steps of the epoch that has most of them, without the first steps of the run."""
    steps = spans.where(spans.closed).named(STEP)
    first = steps.start_ns[UNSTEADY_STEPS : UNSTEADY_STEPS + 1]
    if len(first):
        steps = steps.where(steps.start_ns >= first[0])
    epochs = spans.named("epoch")
    if len(epochs) and len(steps):
        owner = np.searchsorted(epochs.start_ns, steps.start_ns, "right")
        steps = steps.where(owner == np.bincount(owner).argmax())
    return steps


def _select_rows(chunks: Any, window_ns: tuple[int, int]) -> dict[str, NDArray[Any]]:
    parts = list(chunks)
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    inside = (columns["t_ns"] >= window_ns[0]) & (columns["t_ns"] <= window_ns[1])
    return {name: values[inside] for name, values in columns.items()}


def _shape(manifest: Manifest, spans: SpanTable, step_s: float, number: int) -> TrainingShape:
    closed = spans.where(spans.closed)
    steps, epochs, validation = (closed.named(name) for name in (STEP, "epoch", "validation"))
    count = max(len(epochs), 1)
    steps_per_epoch = max(round((len(steps) or number) / count), 1)
    times_s = [(table.end_ns - table.start_ns) / NS_PER_S for table in (steps, epochs, validation)]
    first_s = float(np.sum(times_s[0][:UNSTEADY_STEPS] - step_s)) if len(steps) else 0.0
    validation_s = float(times_s[2].sum()) / count
    epoch_end_s = 0.0
    if len(epochs):
        epoch_s, steps_s = float(times_s[1].mean()), steps_per_epoch * step_s
        epoch_end_s = epoch_s - steps_s - validation_s - first_s / count
    return TrainingShape(
        manifest.name or manifest.id,
        steps_per_epoch,
        count,
        int(manifest.options.get("simulated", {}).get("batch_size", 1)),
        validation_s,
        epoch_end_s,
        first_s,
    )


def _board_of(device: RecordedDevice) -> Board | None:
    """The simulated board of this name, whatever its memory; None where there is none."""
    name = _VARIANT.sub("", device.info.name)
    boards = (load_board(key) for key in BOARDS)
    return next((board for board in boards if _VARIANT.sub("", board.name) == name), None)
