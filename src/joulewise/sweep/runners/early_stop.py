"""Ending a run of a sweep early: it is hopeless, or enough of its steps were measured.

A *probe* is a run that is ended after some seconds of steady steps. Its trial has the time and the
energy of these steps alone (``Planned.look_s`` says for how many seconds).
"""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

import numpy as np

from joulewise.analyse.run_windows import measure_windows
from joulewise.data import RunResult, Span, SpanResult
from joulewise.data.sweeps import Planned, Trial, TrialState, Work
from joulewise.errors import JoulewiseError
from joulewise.store.files import read_regular
from joulewise.store.layout import LIVE, MARKS
from joulewise.store.manifest import read_manifest
from joulewise.store.spans import SpanFollower, read_spans
from joulewise.sweep.runners.runner import IsHopeless
from joulewise.sweep.trial import energies, part_of
from joulewise.units import NS_PER_S

STEP: Final = "step"
# Steps at the beginning that a probe leaves out: they compile, allocate and warm up. Chosen; the
# simulated workloads warm up for as many. Twice as many makes every probe five steps longer.
UNSTEADY_STEPS: Final = 5


def summarise_probe(trial: Trial, result: RunResult, run: Path) -> Trial:
    """Return the trial with time and energy of its steady steps, however the command ended.

    It is a failed trial where there are no steady steps.
    """
    spans = read_spans(run)
    closed = spans.where(spans.closed).named(STEP)
    steps = closed.where(np.argsort(closed.start_ns, kind="stable")[UNSTEADY_STEPS:])
    if not len(steps):
        return replace(trial, state=TrialState.FAILED, reason="too few steps to measure")
    start_ns, end_ns = int(steps.start_ns[0]), int(steps.end_ns.max())
    window_ns = start_ns, end_ns
    (uses,) = measure_windows(run, result, [window_ns], result.counted, spans)
    joules = energies([SpanResult(Span("look", None, *window_ns), None, uses)], result.counted)
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


class EndReason(str, Enum):
    """Why a run was ended before its command ended by itself."""

    STOPPED = "the sweep was stopped"
    TOO_LONG = "it exceeded the time limit"
    DOMINATED = "another setting had finished with less time and less energy"
    ENOUGH = "enough steady steps were measured"


class RunMonitor:
    """Follows a run on disk while it is recorded, to say when it may be ended.

    ``run`` is the directory of the run, which need not exist yet.
    """

    def __init__(self, run: Path, planned: Planned, is_hopeless: IsHopeless | None) -> None:
        self._run = run
        self._is_hopeless = is_hopeless
        self._probe_ns = None if planned.look_s is None else round(planned.look_s * NS_PER_S)
        self._steps: SpanFollower | None = None
        self._steps_seen = 0
        self._steady_since_ns = 0

    def check(self) -> EndReason | None:
        """Why the run may be ended now; None where it is to go on."""
        if self._probe_ns is not None and self._has_enough_steps(self._probe_ns):
            return EndReason.ENOUGH
        return EndReason.DOMINATED if self._is_dominated() else None

    def command_since_s(self) -> float | None:
        """When the command was started, by the monotonic clock; None where it was not yet."""
        with suppress(JoulewiseError):
            commands = read_manifest(self._run).commands
            return min((command.start_ns / NS_PER_S for command in commands), default=None)
        return None

    def _has_enough_steps(self, probe_ns: int) -> bool:
        if self._steps is None:
            if not (self._run / MARKS).is_dir():
                return False
            self._steps = SpanFollower(self._run / MARKS, (STEP,))
        for span in self._steps.poll():
            if not span.closed:
                continue
            self._steps_seen += 1
            if self._steps_seen == UNSTEADY_STEPS:
                self._steady_since_ns = span.end_ns
            is_steady = self._steps_seen > UNSTEADY_STEPS
            if is_steady and span.end_ns - self._steady_since_ns >= probe_ns:
                return True
        return False

    def _is_dominated(self) -> bool:
        if self._is_hopeless is None:
            return False
        try:
            live = json.loads(read_regular(self._run / LIVE))
        except (OSError, ValueError):  # it has not begun, or has just ended
            return False
        return self._is_hopeless(live["time_s"], _sum_parts(live["energy_j"], live["counted"]))


def _sum_parts(energy_j: dict[str, Any], counted: Collection[str]) -> dict[str, float]:
    """Joules of the GPUs and of the rest, of the counted devices that could be read."""
    joules: dict[str, float] = {}
    for key, energy in energy_j.items():
        if key in counted and energy is not None:
            joules[part_of(key)] = joules.get(part_of(key), 0.0) + energy["value"]
    return joules
