"""A look at some steady steps of a run: when there were enough, and what they took."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from joulewise.analyse.measured import measure
from joulewise.analyse.touched import read_sightings
from joulewise.data import RunResult, Span, SpanResult
from joulewise.data.sweeps import Trial, TrialState, Work
from joulewise.record.layout import MARKS
from joulewise.record.manifest import read_manifest
from joulewise.record.marks import SpanTable, read_spans
from joulewise.record.span_follower import SpanFollower
from joulewise.record.trace import open_lane
from joulewise.sweep.trial import energies
from joulewise.units import NS_PER_S

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
    steps = _steady(read_spans(run))
    if not len(steps):
        return replace(trial, state=TrialState.FAILED, reason="it made too few steps to look at")
    start_ns, end_ns = int(steps.start_ns[0]), int(steps.end_ns.max())
    joules = energies([_window(run, result, start_ns, end_ns)], result.counted)
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


def _window(run: Path, result: RunResult, start_ns: int, end_ns: int) -> SpanResult:
    manifest, sightings = read_manifest(run), read_sightings(run)
    lanes = partial(open_lane, run)
    windows_ns = np.array([[start_ns, end_ns]], np.int64)
    counted = [device for device in manifest.devices if device.info.key in result.counted]
    uses = {
        device.info.key: measure(lanes, device, windows_ns, np.array([0]), sightings).uses[0]
        for device in counted
    }
    return SpanResult(Span("look", None, start_ns, end_ns), None, uses)
