"""The tuning of a run while it trains: what was tried, what was chosen, and what that saves.

It is stored as ``tuning.json`` in the run directory, replaced as a whole after each change of
state, so that other processes can show it while it goes on. :mod:`joulewise.data.codec` writes and
reads it; :func:`tune_json` makes the part of it that ``joulewise tune --json`` shows.

Times are seconds since the command started, and energies joules within ``Tuning.boundary``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from joulewise.data.codec import encode
from joulewise.data.sweeps import Setting

TUNING_FORMAT: Final = 1
"""Version of tuning.json; a file of another one is not shown."""


class TuningState(str, Enum):
    """What a tuner is doing; its value is what users read."""

    WARMING_UP = "warming up"
    EXPLORING = "exploring"
    PROVING = "proving"
    HOLDING = "holding"
    CHECKING = "checking"
    ENDED = "ended"


class StepSource(str, Enum):
    """How the steps of the program are known; the value is what users read."""

    MARKS = "marks of the program"
    PROGRESS = "lines of its output"
    POWER = "period of the power signal"
    ACTIVITY = "activity of the GPU (a proxy)"


@dataclass(frozen=True)
class StepEstimate:
    """A mean with its 95 % interval; None where there are too few steps for one."""

    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class SettingSteps:
    """What steps took at one setting. ``steps`` are those measured, transients left out."""

    settings: Setting
    steps: int
    step_time_s: StepEstimate
    step_energy_j: StepEstimate


@dataclass(frozen=True)
class TuningPhase:
    """A stretch of the run in one state, and the steps that ended in it.

    ``settings`` is None where the tuner had set nothing.
    """

    state: TuningState
    settings: Setting | None
    start_s: float
    end_s: float
    steps: int = 0


@dataclass(frozen=True)
class TuningRestart:
    """When the tuner began to explore again, and why."""

    at_s: float
    reason: str


@dataclass(frozen=True)
class TuningEnd:
    """When and why the tuning ended while the command went on.

    ``is_restored`` is whether the settings from before were seen to be back, None where nobody
    could look: they are put back by the guardian, or by the next joulewise command.
    """

    at_s: float
    reason: str
    is_restored: bool | None = None


@dataclass(frozen=True)
class SavedShare:
    """A share saved (positive) or lost (negative), and the half-width of its 95 % interval."""

    value: float
    error: float


@dataclass(frozen=True)
class Saving:
    """What the chosen setting saves against the reference, per step.

    - ``method``: what it rests on: ``trials`` (the means in ``Tuning.tried``), ``fit`` (the fitted
      curves, as long as no steps at the chosen setting were measured), ``proof`` (blocks that
      alternate, ``--prove``) or ``checks`` (steps that stay at the reference, ``--keep-checking``)
    - ``pairs``: how many blocks at the reference were compared with blocks at the choice
    """

    energy: SavedShare
    time: SavedShare
    method: str
    pairs: int


@dataclass(frozen=True)
class Exploration:
    """The steps taken while exploring, over all explorations of the run.

    ``extra_time_s`` and ``extra_energy_j`` are what they took above the same number of steps at the
    setting chosen in the end (below 0: less); None where nothing was chosen. ``energy_j`` is None
    where no block was measured.
    """

    steps: int
    time_s: float
    energy_j: float | None
    extra_time_s: float | None = None
    extra_energy_j: float | None = None


@dataclass(frozen=True)
class FittedSetting:
    """The fitted time and energy of a step at one setting, tried or not."""

    settings: Setting
    step_time_s: StepEstimate
    step_energy_j: StepEstimate


@dataclass(frozen=True)
class KnownSetting:
    """What later runs of the program may use: means of log s and of log J a step, of the GPUs."""

    settings: Setting
    log_time: float
    log_energy: float
    steps: int


@dataclass(frozen=True)
class ProgramMetric:
    """A figure that the program logs (accuracy, loss), at the reference and at the choice.

    ``difference`` is choice minus reference, between neighbouring stretches of the training;
    ``differs`` is whether its 95 % interval leaves out 0. It is None, and the difference that of
    the means, where too few values were logged at both settings in turn.
    """

    name: str
    reference: StepEstimate
    chosen: StepEstimate
    difference: StepEstimate
    differs: bool | None


@dataclass(frozen=True)
class Tuning:
    """The state of a tuning, or its outcome.

    - ``axes``: the keys of the settings that are tuned
    - ``settled``: whether a setting was chosen; ``reason`` says why, or why none was
    - ``early_end``: when and why it ended before the command, None where it did not
    - ``chosen``: the last one chosen, None before; a value of None is what the device had before
    - ``devices``: whose energy is counted
    - ``probability``: that no other setting is better by more than a tolerance of 1 %
    - ``steps_to_settle``, ``time_to_settle_s``: how long the first exploration took
    """

    metric: str
    axes: tuple[str, ...]
    state: TuningState
    settled: bool
    reason: str
    reference: Setting
    chosen: Setting | None = None
    devices: tuple[str, ...] = ()
    boundary: str = "gpu"
    overhead_w: float = 0.0
    max_slowdown: float | None = None
    step_source: StepSource | None = None
    steps_to_settle: int | None = None
    time_to_settle_s: float | None = None
    probability: float | None = None
    tried: tuple[SettingSteps, ...] = ()
    saving: Saving | None = None
    exploration: Exploration | None = None
    changes: tuple[TuningRestart, ...] = ()
    phases: tuple[TuningPhase, ...] = ()
    fitted: tuple[FittedSetting, ...] = ()
    known: tuple[KnownSetting, ...] = ()
    program_metrics: tuple[ProgramMetric, ...] = ()
    notes: tuple[str, ...] = ()
    early_end: TuningEnd | None = None
    format: int = TUNING_FORMAT


def tune_json(tuning: Tuning) -> dict[str, Any]:
    """The object ``tune`` in the JSON of ``joulewise tune``; plain values."""
    saving, exploration = tuning.saving, tuning.exploration
    return {
        "metric": tuning.metric,
        "axes": list(tuning.axes),
        "settled": tuning.settled,
        "reason": tuning.reason,
        "chosen": encode(tuning.chosen),
        "reference": encode(tuning.reference),
        "tried": encode(tuning.tried),
        "saving": encode(saving),
        "exploration": exploration
        and {
            "steps": exploration.steps,
            "time_s": encode(exploration.time_s),
            "energy_j": encode(exploration.energy_j),
        },
        "changes": encode(tuning.changes),
        "step_source": tuning.step_source and tuning.step_source.name.lower(),
        "program_metrics": encode(tuning.program_metrics),
        "early_end": encode(tuning.early_end),
    }
