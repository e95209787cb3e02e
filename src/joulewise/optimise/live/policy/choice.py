"""What the policy of live tuning tells its controller: what it tried, fitted and chose, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from joulewise.metrics.result import Interval
from joulewise.optimise.live.policy.response_model import TuningCandidate

# Reasons of a change, besides those of `SettledReason`, of `Drift`, and of whoever restarts it.
CHANGED_WHILE_EXPLORING: Final = "changed_while_exploring"
REFUSED: Final = "refused"


class SettledReason(str, Enum):
    """Why the policy settled."""

    CONFIDENT = "confident"
    NO_GAIN_LEFT = "no_gain_left"
    EXPLORATION_LIMIT = "exploration_limit"
    ONLY_CANDIDATE = "only_candidate"
    BOUND_CORRECTED = "bound_corrected"
    UNSTEADY = "unsteady"


@dataclass(frozen=True)
class EarlierMean:
    """What an earlier run of the same program on this board took at one candidate.

    Means of the logarithms of s and J a step; ``run`` tells the runs from each other.
    """

    candidate: TuningCandidate
    log_time: float
    log_energy: float
    steps: int
    run: str = ""


@dataclass(frozen=True)
class TriedSetting:
    """Steps at a candidate since the exploration began, without transients and outliers."""

    index: int
    candidate: TuningCandidate
    steps: int
    time_s: Interval
    energy_j: Interval


@dataclass(frozen=True)
class FittedPoint:
    """Time and energy of a step at a candidate by the posterior, with 95 % intervals."""

    index: int
    candidate: TuningCandidate
    time_s: Interval
    energy_j: Interval


@dataclass(frozen=True)
class TuningChoice:
    """The choice, the probability that it is within ``tolerance`` of the best, and the reason.

    Ratios are over the reference, with the overhead, and their intervals hold 95 %.
    """

    index: int
    candidate: TuningCandidate
    probability: float
    tolerance: float
    reason: SettledReason
    energy_ratio: Interval
    time_ratio: Interval


@dataclass(frozen=True)
class TuningChange:
    """Something that changed the course: ``step`` counts all steps that were told before."""

    step: int
    reason: str
