"""What a run consists of and what came out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from joulewise.data.energy import Energy, total


@dataclass(frozen=True)
class Span:
    """A named stretch of a run (CLOCK_MONOTONIC).

    ``total`` is how many of its kind the program announced (a training's epochs), None where it
    did not say. ``closed`` is False where the program ended before the span did; its end is then
    the last sign of life.
    """

    name: str
    index: int | None
    start_ns: int
    end_ns: int
    pid: int = 0
    total: int | None = None
    closed: bool = True


class Caution(str, Enum):
    """What a reader of a result must know; the words of a warning's ``code`` in JSON."""

    SPAN_TOO_SHORT = "span_too_short"
    GAP = "gap"
    THROTTLED = "throttled"
    CAP_NEVER_BINDS = "cap_never_binds"
    CAP_BELOW_FLOOR = "cap_below_floor"
    GPU_WAITED = "gpu_waited"
    DISAGREEMENT = "counter_and_integral_disagree"
    SETTING_CHANGED = "setting_changed"
    SETTINGS_UNGUARDED = "settings_unguarded"
    OTHER_PROCESSES = "other_processes"
    HOST_PROCESS_IDS = "host_process_ids"
    EXCLUDED = "device_excluded"
    UNAVAILABLE = "device_unavailable"
    COUNTER_RESET = "counter_reset"
    STUCK = "sensor_stuck"
    FROZEN = "counter_stood_still"
    CLOCK_SET = "wall_clock_set"
    SUSPENDED = "suspended"
    LATE = "recorder_late"
    RECORDER_ENDED = "recorder_ended"
    STOPPED = "stopped"
    LEFT_RUNNING = "left_running"
    NOT_STORED = "not_stored"
    NO_BASELINE = "no_baseline"
    SPANS_LOST = "spans_lost"
    OVERLAP = "runs_overlap"
    BUDGET = "budget"


@dataclass(frozen=True)
class RunWarning:
    """One caution: where it applies, what is the case, and what to do."""

    code: Caution
    message: str
    hint: str = ""
    device: str | None = None
    span: str | None = None


@dataclass(frozen=True)
class Use:
    """What one device did over one stretch of time. ``net`` leaves out the idle baseline."""

    energy: Energy | None
    net: Energy | None = None
    mean_w: float | None = None
    peak_w: float | None = None
    counter_j: float | None = None
    integral_j: float | None = None


@dataclass(frozen=True)
class SpanResult:
    """A span and what every device drew in it; ``total`` sums those that count."""

    span: Span
    total: Energy | None
    devices: Mapping[str, Use]


@dataclass(frozen=True)
class Excluded:
    """A device that is visible and not in the total."""

    device: str
    reason: str


@dataclass(frozen=True)
class RunResult:
    """Everything that ``show`` tells of a run. ``run`` is the whole; ``spans`` lie within it.

    ``outlook`` is what live.json says of a run that is being recorded: epochs done, and what the
    whole of it will take, or why that cannot be told. A group of runs has its start in the world's
    time only: nodes have no other in common.
    """

    id: str
    exit_code: int | None
    state: str
    start_monotonic_ns: int | None
    run: SpanResult
    spans: tuple[SpanResult, ...] = ()
    counted: tuple[str, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    warnings: tuple[RunWarning, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    outlook: Mapping[str, Any] | None = None
    start_wall_ns: int | None = None

    @property
    def time_s(self) -> float:
        return (self.run.span.end_ns - self.run.span.start_ns) / 1e9

    @property
    def net_total(self) -> Energy | None:
        """What all GPUs that count drew above idle; None unless each has a baseline."""
        keys = [key for key in self.counted if key.rpartition("/")[2].startswith("gpu")]
        nets = [self.run.devices[key].net for key in keys if key in self.run.devices]
        known = [net for net in nets if net is not None]
        return total(known) if len(known) == len(nets) else None
