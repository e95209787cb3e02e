"""What trains on a simulated GPU: a workload by its name, or one like a run's.

A workload to simulate that is like a recorded run, or like the runs of a sweep.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.analyse.attribution import merge_parts, read_sightings
from joulewise.analyse.device_energy import measure
from joulewise.analyse.energy.load_steps import load_marks
from joulewise.analyse.stored_result import result_of
from joulewise.data import Kind, Span
from joulewise.data.sweeps import MEM_CLOCK, POWER_LIMIT, SM_CLOCK, WARM_UP, Setting, TrialState
from joulewise.errors import UsageError
from joulewise.simulate.boards import BOARDS, load_board
from joulewise.simulate.like import RecordedSteps, Shape, workload_like
from joulewise.simulate.model import Board, Knobs, Workload
from joulewise.simulate.workloads import load_workload
from joulewise.store.layout import SWEEPS, StreamKind
from joulewise.store.manifest import Manifest, RecordedDevice, read_manifest
from joulewise.store.runs import find
from joulewise.store.spans import SpanTable, read_spans
from joulewise.store.trace import open_lane
from joulewise.sweep import stored_sweeps as sweeps
from joulewise.sweep.runners.early_stop import STEP, UNSTEADY_STEPS
from joulewise.sweep.spec import SimulationSpec
from joulewise.sweep.validate import BATCH_SIZE, EPOCHS
from joulewise.units import NS_PER_S


def load(
    simulated: SimulationSpec, words: Mapping[str, str], board: Board, store: Path
) -> Workload:
    """``words`` are what a setting gives it."""
    given, like = {name: int(word) for name, word in words.items()}, simulated.like
    if like and BATCH_SIZE in given:
        raise UsageError(
            f"a run like {like} tells nothing of other batch sizes",
            f"leave out {BATCH_SIZE}, or take a --workload",
        )
    if like:
        workload = load_like(like, store, board)
    else:
        workload = load_workload(simulated.workload, board, given.get(BATCH_SIZE))
    return replace(workload, epochs=given.get(EPOCHS, workload.epochs))


if TYPE_CHECKING:
    from numpy.typing import NDArray

_STEP_S: Final = 0.3
"""How long a step is taken to be where none are marked: only their number depends on it."""

_VARIANT: Final = re.compile(r"(-\d+GB)?( \(simulated\))?$")


def load_like(which: str, store: Path, board: Board) -> Workload:
    """``which`` is a run as every verb takes it, or a sweep, whose runs tell more than one."""
    runs = [_Recorded.read(path) for path in _runs(which, store)]
    first = runs[0]
    recorded = _board_of(first.device)
    if recorded is not None:
        seen = [run.seen(recorded) for run in runs]
        return workload_like(first.shape, seen, recorded, board)
    workload = workload_like(first.shape, [run.scaled(board) for run in runs], board, board)
    taken = (
        f"of {first.device.info.name} nothing is known, so that times are its own and watts are "
        f"scaled by the default limits; {workload.source}"
    )
    return replace(workload, source=taken)


def _runs(which: str, store: Path) -> list[Path]:
    """Of a sweep one run of every setting that differs only in what is turned."""
    try:
        return [find(store, which)]
    except UsageError:
        if not (store / SWEEPS).is_dir():
            raise
    sweep = sweeps.load(sweeps.find(store, which))
    found: dict[Setting, Path] = {}
    for trial in sweep.trials:
        whole = trial.state is TrialState.DONE and trial.look_s is None and trial.block != WARM_UP
        if whole and trial.run and trial.setting.words == sweep.reference.words:
            found.setdefault(trial.setting, store / trial.run)
    if not found:
        raise UsageError(
            f"no run of the sweep {which} came to its end", "name a run of joulewise ls"
        )
    return list(found.values())


@dataclass(frozen=True)
class _Recorded:
    """A run, and what a step of it took once it was steady."""

    manifest: Manifest
    device: RecordedDevice
    shape: Shape
    step_s: float
    power_w: float
    slow: dict[str, NDArray[Any]]

    @classmethod
    def read(cls, run: Path) -> _Recorded:
        manifest, result, spans = read_manifest(run), result_of(run), read_spans(run)
        used = [d for d in manifest.devices if d.info.key in result.counted]
        gpus = [device for device in used if device.info.kind is Kind.GPU]
        if not gpus:
            raise UsageError(f"{run.name} used no GPU", "name a run that did: joulewise ls")
        device, lanes = gpus[0], partial(open_lane, run)
        window_ns, number = _window(spans, result.run.span)
        windows = np.array([window_ns], np.int64)
        marks_ns = load_marks(result.run.span, spans)
        sightings = merge_parts(manifest, read_sightings(run))
        told = measure(lanes, device, windows, np.array([0]), sightings, marks_ns=marks_ns).uses[0]
        if told.mean_w is None:
            raise UsageError(f"{run.name} has no power of {device.info.key}", "name another run")
        step_s = (window_ns[1] - window_ns[0]) / NS_PER_S / number
        slow = lanes(device.info.key, StreamKind.SLOW)
        columns = {} if slow is None else _within(slow.chunks(slow.columns), window_ns)
        shape = _shape(manifest, spans, step_s, number)
        memory_b = np.max(columns.get("memory_used_b", np.zeros(1)), initial=0)
        shape = replace(shape, memory_b=int(np.nan_to_num(memory_b)))
        return cls(manifest, device, shape, step_s, told.mean_w, columns)

    def seen(self, board: Board) -> RecordedSteps:
        busy = self._mean("gpu_utilisation_pct")
        return RecordedSteps(
            self._knobs(board),
            self.step_s,
            self.power_w,
            self._mean("sm_clock_mhz"),
            None if busy is None else busy / 100,
        )

    def scaled(self, board: Board) -> RecordedSteps:
        """As if it had run on another board, which is as fast, and draws what its limit allows."""
        default_w = self.device.default_limit_w or self.device.maximum_w or board.limits.default_w
        scale = board.limits.default_w / default_w
        limit_w = scale * self.device.settings.get(POWER_LIMIT, default_w)
        seen = self.seen(board)
        return replace(seen, knobs=Knobs(limit_w), power_w=scale * seen.power_w, clock_mhz=None)

    def _knobs(self, board: Board) -> Knobs:
        turned = self.manifest.options.get("settings", {}).get(self.device.info.key, {})
        default_w = self.device.default_limit_w or board.limits.default_w
        limit_w = turned.get(POWER_LIMIT) or self.device.settings.get(POWER_LIMIT, default_w)
        sm, memory = (turned.get(name) for name in (SM_CLOCK, MEM_CLOCK))
        return Knobs(limit_w, sm and (sm, sm), memory and (memory, memory))

    def _mean(self, name: str) -> float | None:
        values = self.slow.get(name, np.empty(0))
        values = values[np.isfinite(values)]
        return float(values.mean()) if len(values) else None


def _window(spans: SpanTable, run: Span) -> tuple[tuple[int, int], int]:
    """Steps that follow each other, or what is taken for them, and how many they are."""
    steps, epochs = _steady(spans), spans.where(spans.closed).named("epoch")
    start_ns, end_ns = run.start_ns, run.end_ns
    for known in (steps, epochs):
        if len(known):
            start_ns, end_ns = int(known.start_ns[0]), int(known.end_ns.max())
            break
    number = len(steps) or round((end_ns - start_ns) / NS_PER_S / _STEP_S)
    return (start_ns, end_ns), max(number, 1)


def _steady(spans: SpanTable) -> SpanTable:
    """The steps of the epoch that has most of them, without the first of the run."""
    steps = spans.where(spans.closed).named(STEP)
    first = steps.start_ns[UNSTEADY_STEPS : UNSTEADY_STEPS + 1]
    if len(first):
        steps = steps.where(steps.start_ns >= first[0])
    epochs = spans.named("epoch")
    if len(epochs) and len(steps):
        owner = np.searchsorted(epochs.start_ns, steps.start_ns, "right")
        steps = steps.where(owner == np.bincount(owner).argmax())
    return steps


def _within(chunks: Any, window_ns: tuple[int, int]) -> dict[str, NDArray[Any]]:
    parts = list(chunks)
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    inside = (columns["t_ns"] >= window_ns[0]) & (columns["t_ns"] <= window_ns[1])
    return {name: values[inside] for name, values in columns.items()}


def _shape(manifest: Manifest, spans: SpanTable, step_s: float, number: int) -> Shape:
    closed = spans.where(spans.closed)
    steps, epochs, validation = (closed.named(name) for name in (STEP, "epoch", "validation"))
    count = max(len(epochs), 1)
    each = max(round((len(steps) or number) / count), 1)
    times_s = [(table.end_ns - table.start_ns) / NS_PER_S for table in (steps, epochs, validation)]
    first_s = float(np.sum(times_s[0][:UNSTEADY_STEPS] - step_s)) if len(steps) else 0.0
    validation_s = float(times_s[2].sum()) / count
    epoch_end_s = 0.0
    if len(epochs):
        epoch_end_s = float(times_s[1].mean()) - each * step_s - validation_s - first_s / count
    return Shape(
        manifest.name or manifest.id,
        each,
        count,
        int(manifest.options.get("simulated", {}).get("batch_size", 1)),
        validation_s,
        epoch_end_s,
        first_s,
    )


def _board_of(device: RecordedDevice) -> Board | None:
    """The one that can be simulated, whatever its memory; None where there is none such."""
    name = _VARIANT.sub("", device.info.name)
    boards = (load_board(key) for key in BOARDS)
    return next((board for board in boards if _VARIANT.sub("", board.name) == name), None)
