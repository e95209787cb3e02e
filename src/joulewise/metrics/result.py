"""The result of a sweep: points with intervals, the best settings, and warnings.

`as_json` gives the documented form of ``--json`` (docs/reference/sweep-result.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from joulewise.data.codec import encode
from joulewise.data.runs import QualityWarning, QualityWarningCode
from joulewise.data.sweeps import Setting


@dataclass(frozen=True)
class Interval:
    """A mean, and the 95 % interval around it; None where there are too few runs for one."""

    mean: float
    low: float | None = None
    high: float | None = None


class Verdict(str, Enum):
    """A setting against the reference, by one metric."""

    BETTER = "better"
    WORSE = "worse"
    NOISE = "within noise"
    UNKNOWN = "too few runs"
    REFERENCE = "reference"


@dataclass(frozen=True)
class PointResult:
    """One setting. ``n`` is the number of its runs; figures are None where nothing was read.

    ``scores`` are in the metric's unit. ``ratios`` are scores over the reference's, paired with
    its run of the same block; so are ``time_ratio`` and ``energy_ratio``. An infinite score is
    one that the metric rules out. ``gain_j`` is how far the mean energy may be off besides the
    interval, by the factor of the board that no repetition shows.
    ``binds`` says whether the power limit held the clocks down, None where not known;
    ``capped`` and ``clock_mhz`` are means of what the runs have.
    """

    setting: Setting
    n: int
    time_s: Interval | None = None
    energy_j: Interval | None = None
    gain_j: float | None = None
    time_ratio: Interval | None = None
    energy_ratio: Interval | None = None
    scores: Mapping[str, Interval | None] = field(default_factory=dict)
    ratios: Mapping[str, Interval | None] = field(default_factory=dict)
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    pareto: bool = False
    binds: bool | None = None
    capped: float | None = None
    clock_mhz: float | None = None


@dataclass(frozen=True)
class Band:
    """The values of one setting around the winner's that beat the reference by their mean.

    ``sure`` are those that do so beyond noise. All other settings are the winner's.
    """

    axis: str
    low: float
    high: float
    sure: tuple[float, ...] = ()


@dataclass(frozen=True)
class Choice:
    """What a metric prefers at a boundary.

    ``verdict`` is of the metric's score: energy and time may each differ from the reference where
    it does not. ``recommended`` is what to run with: the reference unless ``setting`` is better by
    the metric, or no more is known of it than one run. ``is_same_load`` says that only the power
    limits differ and neither held the clocks down, as far as is known. ``is_contradictory`` says
    that the interval of the score excludes 1 nevertheless. There is no band of a setting that is
    not recommended for this.

    ``score``, ``time`` and ``energy`` are ratios to the reference, with intervals that allow for
    this being the best of many (see :mod:`joulewise.metrics.winner`). ``at`` has the energy ratio
    of this same setting at every boundary, and ``break_even_w`` is what the node may draw
    besides its GPUs until the saving is gone, None where it saves or costs anyway.
    ``saved_j`` counts the gain of the boards in. ``band`` is None where the winner is the
    reference, or no control was varied.
    """

    metric: str
    boundary: str
    setting: Setting
    verdict: Verdict
    recommended: Setting
    score: Interval | None
    time: Interval | None
    energy: Interval | None
    saved_j: Interval | None = None
    at: Mapping[str, Interval | None] = field(default_factory=dict)
    break_even_w: float | None = None
    band: Band | None = None
    is_same_load: bool = False

    @property
    def is_contradictory(self) -> bool:
        """Whether the figures differ beyond noise where the clocks say that nothing does."""
        return self.is_same_load and self.verdict in (Verdict.BETTER, Verdict.WORSE)

    @property
    def is_dismissed(self) -> bool:
        """Whether the setting does not differ from the reference, by its figures or its load."""
        if self.verdict is Verdict.NOISE:
            return True
        return self.is_same_load and self.recommended != self.setting


class SweepWarningCode(QualityWarningCode, Enum):
    """What a reader of a sweep must know; the ``code`` in JSON."""

    CAP_NEVER_BINDS = "cap_never_binds"
    CAP_BELOW_FLOOR = "cap_below_floor"
    CONTRADICTS_CLOCKS = "contradicts_clocks"
    COSTS_ELSEWHERE = "costs_at_another_boundary"
    EDGE_OF_RANGE = "best_at_edge_of_range"
    FEW_RUNS = "too_few_runs"
    NO_REFERENCE = "no_reference"
    NO_ENERGY = "no_energy"
    LOWER_BOUND = "energy_at_least"
    RUN_WARNING = "run_warning"
    DRIFT = "drift"


@dataclass(frozen=True)
class ParabolaFit:
    """A quadratic fit of single runs of one quantity against the power limit.

    ``where`` are the settings that stayed the same. ``problem`` says why it is not drawn.
    ``r2`` is of the single runs, ``means_r2`` of a parabola through the mean at each limit, which
    is what publications state: it is higher, since means hide the spread of the runs, and 1 of
    three limits. Both are known with three limits or more, whether or not there is a problem.
    """

    quantity: str
    where: Setting
    coefficients: tuple[float, float, float] | None
    r2: float | None
    adjusted_r2: float | None
    dof: int
    minimum_w: float | None = None
    problem: str = ""
    means_r2: float | None = None


@dataclass(frozen=True)
class SweepResult:
    """``points`` are in the order of the grid; ``choices`` are by boundary, then by metric.

    ``sources`` says of each boundary what its energies rest on, ``assumed`` which of them rest on
    an assumption. ``simulated`` are the parts (``gpu``, ``rest``) from a simulated sensor.
    """

    id: str
    name: str
    gpu_name: str
    boundary: str
    per: str
    metrics: tuple[str, ...]
    reference: PointResult
    points: tuple[PointResult, ...]
    choices: Mapping[str, Mapping[str, Choice]]
    sources: Mapping[str, str] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    simulated: tuple[str, ...] = ()
    fits: tuple[ParabolaFit, ...] = ()
    warnings: tuple[QualityWarning, ...] = ()

    @property
    def best(self) -> Mapping[str, Choice]:
        """The choices by metric, at the boundary of the view."""
        return self.choices[self.boundary]

    def point(self, setting: Setting) -> PointResult:
        return next(point for point in self.points if point.setting == setting)


# The version of the JSON form; it grows when a field changes its meaning.
SWEEP_RESULT_FORMAT: Final = 1


def as_json(result: SweepResult) -> dict[str, Any]:
    """Numbers that JSON does not have, as an infinite score, are null."""
    payload = {
        "format": SWEEP_RESULT_FORMAT,
        "id": result.id,
        "name": result.name,
        "gpu_name": result.gpu_name,
        "boundary": result.boundary,
        "per": result.per,
        "reference": _point(result.reference),
        "points": [_point(point) for point in result.points],
        "best": {
            metric: {**_point(result.point(choice.setting)), "choice": _choice(choice)}
            for metric, choice in result.best.items()
        },
        "choices": {
            boundary: {
                metric: {"settings": choice.setting, **_choice(choice)}
                for metric, choice in chosen.items()
            }
            for boundary, chosen in result.choices.items()
        },
        "sources": result.sources,
        "assumed": result.assumed,
        "simulated": result.simulated,
        "fits": [{**vars(fit), "problem": fit.problem or None} for fit in result.fits],
        "cautions": [warning.as_summary() for warning in result.warnings],
    }
    return {name: encode(value) for name, value in payload.items()}


def _point(point: PointResult) -> dict[str, Any]:
    return {
        "settings": point.setting,
        "n": point.n,
        "time_s": point.time_s,
        "energy_j": point.energy_j,
        "energy_error_gain_j": point.gain_j,
        "metrics": point.scores,
        "pareto": point.pareto,
        "time_ratio": point.time_ratio,
        "energy_ratio": point.energy_ratio,
        "ratios": point.ratios,
        "verdicts": point.verdicts,
        "binds": point.binds,
        "capped": point.capped,
        "clock_mhz": point.clock_mhz,
    }


def _choice(choice: Choice) -> dict[str, Any]:
    return {
        "verdict": choice.verdict,
        "recommended": choice.recommended,
        "score_ratio": choice.score,
        "time_ratio": choice.time,
        "energy_ratio": choice.energy,
        "saved_j": choice.saved_j,
        "energy_ratio_at": choice.at,
        "break_even_w": choice.break_even_w,
        "band": choice.band,
    }
