"""A look at some steady steps of a run: when there were enough, and what they took."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.load_marks import load_marks
from joulewise.analyse.measured import measure
from joulewise.analyse.touched import merge_parts, read_sightings
from joulewise.data import RunResult, Span, SpanResult, Use
from joulewise.data.sweeps import Trial, TrialState, Work
from joulewise.record.layout import MARKS
from joulewise.record.manifest import read_manifest
from joulewise.record.marks import SpanTable, read_spans
from joulewise.record.span_follower import SpanFollower
from joulewise.record.trace import open_lane
from joulewise.sweep.trial import energies
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
