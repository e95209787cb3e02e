"""Whether a run of a sweep may be ended early: it is hopeless, or a look at it was enough.

A look at some steady steps of a run: when there were enough, and what they took.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.analyse.attribution import merge_parts, read_sightings
from joulewise.analyse.device_energy import measure
from joulewise.analyse.energy.load_steps import load_marks
from joulewise.data import RunResult, Span, SpanResult, Use
from joulewise.data.sweeps import Planned, Trial, TrialState, Work
from joulewise.store.files import read_regular
from joulewise.store.layout import LIVE, MARKS
from joulewise.store.manifest import read_manifest
from joulewise.store.spans import SpanFollower, SpanTable, read_spans
from joulewise.store.trace import open_lane
from joulewise.sweep.runners.runner import Hopeless
from joulewise.sweep.trial import GPU, REST, energies, is_gpu, names, run_of
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEP: Final = "step"
UNSTEADY_STEPS: Final = 5
"""The first steps compile, allocate and warm up."""


class Look:
    """Follows the steps of a run that goes on."""

    def __init__(self, run: Path, look_s: float) -> None:
        self._follower = SpanFollower(run / MARKS, (STEP,))
        self._look_ns = round(look_s * NS_PER_S)
        self._seen = 0
        self._since_ns: int | None = None

    def is_enough(self) -> bool:
        for span in self._follower.poll():
            if not span.closed:
                continue
            self._seen += 1
            if self._seen == UNSTEADY_STEPS:
                self._since_ns = span.end_ns
            elif self._since_ns is not None and span.end_ns - self._since_ns >= self._look_ns:
                return True
        return False


def looked(trial: Trial, result: RunResult, run: Path) -> Trial:
    """The same trial with the figures of its steady steps, whatever end the command was brought to.

    It failed where there are too few of them.
    """
    spans = read_spans(run)
    steps = _steady(spans)
    if not len(steps):
        return replace(trial, state=TrialState.FAILED, reason="it made too few steps to look at")
    start_ns, end_ns = int(steps.start_ns[0]), int(steps.end_ns.max())
    marks_ns = load_marks(result.run.span, spans)
    joules = energies([_window(run, result, (start_ns, end_ns), marks_ns)], result.counted)
    work = Work(len(steps), (end_ns - start_ns) / NS_PER_S, joules)
    return replace(
        trial,
        state=TrialState.DONE,
        time_s=work.time_s,
        energy=joules,
        spans={**trial.spans, STEP: work},
        reason="",
        log_tail="",
    )


def _steady(spans: SpanTable) -> SpanTable:
    steps = spans.where(spans.closed).named(STEP)
    return steps.where(np.argsort(steps.start_ns, kind="stable")[UNSTEADY_STEPS:])


def _window(
    run: Path, result: RunResult, window_ns: tuple[int, int], marks_ns: NDArray[np.int64]
) -> SpanResult:
    manifest = read_manifest(run)
    sightings = merge_parts(manifest, read_sightings(run))
    lanes = partial(open_lane, run)
    windows_ns = np.array([window_ns], np.int64)
    uses = {}
    for device in manifest.devices:
        if device.info.key in result.counted:
            uses[device.info.key] = Use(None)
            if device.sources:
                wanted = np.array([0])
                told = measure(lanes, device, windows_ns, wanted, sightings, marks_ns=marks_ns)
                uses[device.info.key] = told.uses[0]
    return SpanResult(Span("look", None, *window_ns), None, uses)


class Why(str, Enum):
    """Why a run was ended before its command did so itself."""

    STOPPED = "the sweep was stopped"
    TOO_LONG = "it took longer than it may"
    DOMINATED = "another setting had finished with less time and less energy"
    ENOUGH = "enough steady steps were seen"


class RunMonitor:
    """Looks at what a run tells of itself while it goes on; made before the run begins."""

    def __init__(
        self, store: Path, sweep: str, planned: Planned, hopeless: Hopeless | None
    ) -> None:
        self._place = store, sweep, planned
        self._before = names(store)
        self._hopeless = hopeless
        self._run: Path | None = None
        self._look: Look | None = None

    def look(self) -> Why | None:
        look_s = self._place[2].look_s
        if self._hopeless is None and look_s is None:
            return None
        run = self._found()
        if run is None:
            return None
        if look_s is not None:
            self._look = self._look or Look(run, look_s)
            if self._look.is_enough():
                return Why.ENOUGH
        return Why.DOMINATED if self._is_hopeless(run) else None

    def command_since_s(self) -> float | None:
        """When the command was started, by the monotonic clock; None where it was not yet."""
        run = self._found()
        commands = () if run is None else read_manifest(run).commands
        return min((it.start_ns / NS_PER_S for it in commands), default=None)

    def _found(self) -> Path | None:
        if self._run is None:
            self._run = run_of(*self._place, self._before)
        return self._run

    def _is_hopeless(self, run: Path) -> bool:
        if self._hopeless is None:
            return False
        try:
            live = json.loads(read_regular(run / LIVE))
        except (OSError, ValueError):  # it has not begun, or has just ended
            return False
        return self._hopeless(live["time_s"], _joules(live["energy_j"], live["counted"]))


def _joules(energies: dict[str, Any], counted: Collection[str]) -> dict[str, float]:
    """In the GPUs and in the rest, of the devices that count and as far as it can be read."""
    joules: dict[str, float] = {}
    for key, energy in energies.items():
        if key in counted and energy is not None:
            part = GPU if is_gpu(key) else REST
            joules[part] = joules.get(part, 0.0) + energy["value"]
    return joules
