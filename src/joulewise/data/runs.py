"""A run: its spans, what each device drew, warnings, and the result as a whole.

Also the container and the machine that a run was made in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from joulewise.data.devices import PowerScope, Source
from joulewise.data.energy import Energy, total


@dataclass(frozen=True)
class Span:
    """A named stretch of a run, such as an epoch (times are CLOCK_MONOTONIC).

    ``total`` is how many of its kind the program announced (a training's epochs), None where it
    did not. ``closed`` is False where its end is not marked: the program was killed in it, or is
    still in it. In a result such a span ends with its command, or with the recording.
    """

    name: str
    index: int | None
    start_ns: int
    end_ns: int
    pid: int = 0
    total: int | None = None
    closed: bool = True


class QualityWarningCode(str):
    """The ``code`` of a quality warning in JSON: of a run, of a sweep or of a comparison.

    Each of these has an enumeration of its own codes, beside what it is about.
    """

    __slots__ = ()

    if TYPE_CHECKING:  # that of Enum

        @property
        def value(self) -> str: ...

    @classmethod
    def from_json(cls, payload: Any) -> WarningCode:
        """Only the warnings of runs are read back: sweeps and comparisons are computed anew."""
        return WarningCode(payload)


class WarningCode(QualityWarningCode, Enum):
    """What a reader of a run's result must know."""

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
    UNSEEN_USE = "unseen_use"
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
    DAMAGED = "file_damaged"
    IMPLAUSIBLE = "implausible_reading"
    NO_MARKS = "no_marks"
    OVERLAP = "runs_overlap"
    BUDGET = "budget"
    TUNING_ENDED = "tuning_ended"


DOUBTFUL: Final = frozenset(
    {
        WarningCode.DAMAGED,
        WarningCode.IMPLAUSIBLE,
        WarningCode.SPANS_LOST,
        WarningCode.RECORDER_ENDED,
        WarningCode.NOT_STORED,
        WarningCode.GAP,
        WarningCode.COUNTER_RESET,
        WarningCode.STUCK,
        WarningCode.FROZEN,
        WarningCode.SUSPENDED,
        WarningCode.OVERLAP,
    }
)
"""Warnings after which the numbers of a run may be wrong by more than their errors.

Comparisons and sweeps repeat them. All others describe the conditions of a run, what was left out
on request, or something that the errors include.
"""


@dataclass(frozen=True)
class QualityWarning:
    """A quality warning of a run, a sweep or a comparison, as data.

    ``message`` says what is the case, ``hint`` what to do. ``device`` and ``span`` say where in a
    run it applies, None for all of it.
    """

    code: QualityWarningCode
    message: str
    hint: str = ""
    device: str | None = None
    span: str | None = None

    def as_summary(self) -> dict[str, str]:
        """Its JSON in sweeps and comparisons, which have no devices and spans."""
        return {"code": self.code.value, "message": self.message, "hint": self.hint}

    @property
    def is_doubtful(self) -> bool:
        """Whether the numbers of the run may be wrong by more than their errors.

        Other processes on a GPU count: their energy is in its. A CPU is always shared.
        """
        is_shared_gpu = self.code is WarningCode.OTHER_PROCESSES and "gpu" in (self.device or "")
        return self.code in DOUBTFUL or is_shared_gpu


@dataclass(frozen=True)
class Use:
    """What one device drew over one stretch of time; None is what could not be read.

    ``net`` is the energy without the idle baseline. ``counter_j`` and ``integral_j`` are the same
    energy from the counter and from the integral of power. ``read_s`` is how much of the time the
    device was read, where its energy is a lower bound: all values are of that time alone. None
    where it was read throughout.
    """

    energy: Energy | None
    net: Energy | None = None
    mean_w: float | None = None
    peak_w: float | None = None
    counter_j: float | None = None
    integral_j: float | None = None
    read_s: float | None = None


@dataclass(frozen=True)
class SpanResult:
    """A span and what every device drew in it; ``total`` is the sum over the counted ones.

    It is a lower bound (``at_least``) where one of them could not be read, None where none could.
    """

    span: Span
    total: Energy | None
    devices: Mapping[str, Use]


@dataclass(frozen=True)
class Excluded:
    """A device that is visible and not counted in the total, and why."""

    device: str
    reason: str


@dataclass(frozen=True)
class RunResult:
    """Everything that ``show`` shows of a run. ``run`` is the whole; ``spans`` lie within it.

    ``counted`` has every device that counts, also one that could not be read: its energy is None,
    it is among ``missing``, and the totals are lower bounds. ``outlook`` is the forecast in
    live.json of a run that is being recorded: epochs done, and what the whole run will take, or why
    there is no forecast. ``start_monotonic_ns`` is None for a group of runs: their nodes have only
    the wall clock in common.
    """

    id: str
    exit_code: int | None
    state: str
    start_monotonic_ns: int | None
    run: SpanResult
    spans: tuple[SpanResult, ...] = ()
    counted: tuple[str, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    warnings: tuple[QualityWarning, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    outlook: Mapping[str, Any] | None = None
    start_wall_ns: int | None = None

    @property
    def time_s(self) -> float:
        return (self.run.span.end_ns - self.run.span.start_ns) / 1e9

    @property
    def simulated(self) -> tuple[str, ...]:
        """The simulated devices, whether they count or not, and could be read or not."""
        known = self.details.get("devices", {})
        keys = dict.fromkeys((*self.counted, *self.run.devices))
        return tuple(
            key for key in keys if _is_simulated(self.run.devices.get(key), known.get(key, {}))
        )

    @property
    def power_scopes(self) -> dict[str, PowerScope]:
        """What the energy of each GPU covers, where its driver says so."""
        known = self.details.get("devices", {})
        scopes = {key: device.get("power_scope") for key, device in known.items()}
        return {key: PowerScope(scope) for key, scope in scopes.items() if scope}

    @property
    def simulated_counted(self) -> tuple[str, ...]:
        """The simulated devices that count in the total."""
        return tuple(key for key in self.simulated if key in self.counted)

    @property
    def missing(self) -> tuple[str, ...]:
        """The devices that count and whose energy could not be read."""
        uses = self.run.devices
        return tuple(key for key in self.counted if key not in uses or uses[key].energy is None)

    @property
    def net_total(self) -> Energy | None:
        """What all counted GPUs drew above idle; None unless each has a baseline."""
        # In a group of runs a key is "node/gpu0".
        keys = [key for key in self.counted if key.rpartition("/")[2].startswith("gpu")]
        uses = [self.run.devices[key] for key in keys if key in self.run.devices]
        if any(use.energy is not None and use.net is None for use in uses):
            return None
        return total(use.net for use in uses)


def _is_simulated(use: Use | None, device: Mapping[str, Any]) -> bool:
    """``device`` is its entry in a result's details; those of older versions have only sources."""
    if use is not None and use.energy is not None and use.energy.source is Source.SIMULATED:
        return True
    return bool(device.get("is_simulated")) or (
        Source.SIMULATED.value in device.get("sources", {}).values()
    )


@dataclass(frozen=True)
class Container:
    """A container. ``runtime`` is docker, podman, kubernetes, apptainer, singularity, lxc or other.

    ``id`` and ``image`` are empty where they cannot be found from inside.
    """

    runtime: str
    id: str = ""
    image: str = ""


@dataclass(frozen=True)
class MachineResources:
    """Cores and memory of a machine. None is what cannot be read, and a limit that is not set.

    ``cores_allowed`` is what affinity and the cgroup's quota leave of the logical cores: a quota
    of half a core is 0.5. ``ram_limit_b`` is the lowest limit of the cgroups around the process.
    """

    cores_physical: int | None = None
    cores_logical: int | None = None
    cores_allowed: float | None = None
    ram_b: int | None = None
    ram_limit_b: int | None = None


@dataclass(frozen=True)
class ForecastInterval:
    """The expected value and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class RunForecast:
    """What the whole run is expected to take, from its start to its last epoch's end.

    ``energy_j`` is None where no device could be read. ``costs`` has the grams of CO2 (``gco2``)
    and the cost (``price``), as far as they were requested.
    """

    time_s: ForecastInterval
    energy_j: ForecastInterval | None
    costs: Mapping[str, ForecastInterval] = field(default_factory=dict)
