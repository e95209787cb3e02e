"""Two sides of runs, quantity by quantity: what each came to, B over A, and what may be said of it.

A ratio is the log response ratio (Hedges, Gurevitch, Curtis: "The meta-analysis of response ratios
in experimental ecology", Ecology 80, 1999): the difference of the mean logarithms, with the
interval of Welch ("The generalization of Student's problem…", Biometrika 34, 1947) for what differs
from run to run, and the first-order error of a logarithm, error over value, for what the meter may
have missed. The interval is symmetric on the logarithms, so that B over A is told from 1 exactly
where A over B is; as a ratio it reaches farther up than down. The verdict is read from that same
interval. Three things may move a ratio, and each enters as it behaves:

- what differs from run to run shows in the spread of the runs, and shrinks with their number;
- what a sensor did not see is in that spread already, and is the least that it can be;
- the gain of a board is one factor for all its runs: it cancels as far as both sides ran on it,
  and no repetition makes it smaller where they did not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import hypot, sqrt
from typing import Final

import numpy as np

from joulewise.analyse.student_t import student
from joulewise.metrics.intervals import mean_interval, means
from joulewise.metrics.result import Interval

_ROUNDING: Final = 1e-9


@dataclass(frozen=True)
class RunValue:
    """One run's value, with what its meter may have missed (a 95 % half-width, in its unit).

    ``gains`` are the half-widths that come of each board's gain, by board, and of any other factor
    that is unknown and the same in several runs, such as the number of samples, by its name.
    """

    value: float
    sampling: float = 0.0
    gains: Mapping[str, float] = field(default_factory=dict)


class CompareOutcome(str, Enum):
    """B against A."""

    LESS = "less"
    MORE = "more"
    NOISE = "within noise"
    UNKNOWN = "too few runs"
    NOT_COMPARABLE = "not comparable"


class VerdictBasis(str, Enum):
    """What a verdict rests on."""

    SPREAD = "spread of the runs"
    SPREAD_OF_A = "spread of A's runs"
    SPREAD_OF_B = "spread of B's runs"
    MEASUREMENT = "measurement error"
    NOTHING = "nothing"


@dataclass(frozen=True)
class ComparedQuantity:
    """One quantity. ``a``, ``b`` have the gains in their intervals, ``ratio`` is B over A.

    ``reason`` says why there is no ratio, where there is none.
    """

    quantity: str
    unit: str
    n: tuple[int, int]
    a: Interval | None
    b: Interval | None
    ratio: Interval | None
    verdict: CompareOutcome
    basis: VerdictBasis | None = None
    reason: str = ""


def compare(
    quantity: str, unit: str, a: Sequence[RunValue], b: Sequence[RunValue]
) -> ComparedQuantity:
    n, own = (len(a), len(b)), (_interval(a), _interval(b))
    if not a or not b:
        return not_comparable(quantity, unit, (a, b), f"not known of {'B' if a else 'A'}")
    if any(sample.value <= 0 for sample in (*a, *b)):
        return not_comparable(quantity, unit, (a, b), "a run's value is not above 0")
    mean = _log_mean(b) - _log_mean(a)
    floor = hypot(_floor(a), _floor(b))
    gain = _gain(a, b)
    spread, basis = _spread(a, b)
    if spread is None and hypot(floor, gain) <= _ROUNDING:
        ratio = Interval(float(np.exp(mean)))
        return ComparedQuantity(
            quantity, unit, n, *own, ratio, CompareOutcome.UNKNOWN, VerdictBasis.NOTHING
        )
    half = hypot(floor if spread is None else max(spread, floor), gain)
    ratio = Interval(*(float(np.exp(x)) for x in (mean, mean - half, mean + half)))
    return ComparedQuantity(quantity, unit, n, *own, ratio, _verdict(mean, half), basis)


def not_comparable(
    quantity: str, unit: str, sides: tuple[Sequence[RunValue], Sequence[RunValue]], reason: str
) -> ComparedQuantity:
    """With what each side has, and why it says nothing of the other."""
    a, b = sides
    own = _interval(a), _interval(b)
    n = len(a), len(b)
    return ComparedQuantity(
        quantity, unit, n, *own, None, CompareOutcome.NOT_COMPARABLE, None, reason
    )


def _verdict(mean: float, half: float) -> CompareOutcome:
    if abs(mean) <= half + _ROUNDING:
        return CompareOutcome.NOISE
    return CompareOutcome.LESS if mean < 0 else CompareOutcome.MORE


def _interval(samples: Sequence[RunValue]) -> Interval | None:
    """The mean with Student's interval, and with what the boards' gains add to it."""
    if not samples:
        return None
    values = np.array([[sample.value for sample in samples]])
    found = means(values, np.array([[sample.sampling for sample in samples]]))
    mean, gain = float(found.mean[0]), _gain_of(samples)
    # One run has no spread; what its meter may have missed is all that is known then.
    half = hypot(float(found.floor[0] if len(samples) == 1 else found.half[0]), gain)
    return mean_interval(mean, half) if half or len(samples) > 1 else Interval(mean)


def _spread(a: Sequence[RunValue], b: Sequence[RunValue]) -> tuple[float | None, VerdictBasis]:
    """The half-width by Welch; of a side that is one run, the other's spread is taken."""
    (n_a, v_a), (n_b, v_b) = _variance(a), _variance(b)
    if v_a is not None and v_b is not None:
        of_a, of_b = v_a / n_a, v_b / n_b
        squares = of_a**2 / (n_a - 1) + of_b**2 / (n_b - 1)
        dof = (of_a + of_b) ** 2 / squares if squares else n_a + n_b - 2
        return float(student(np.array(dof))) * sqrt(of_a + of_b), VerdictBasis.SPREAD
    known = v_a if v_b is None else v_b
    if known is None:
        return None, VerdictBasis.MEASUREMENT
    basis = VerdictBasis.SPREAD_OF_A if v_b is None else VerdictBasis.SPREAD_OF_B
    dof = max(n_a, n_b) - 1
    return float(student(dof)) * sqrt(known * (1 / n_a + 1 / n_b)), basis


def _variance(samples: Sequence[RunValue]) -> tuple[int, float | None]:
    logs = np.log([sample.value for sample in samples])
    return len(logs), float(logs.var(ddof=1)) if len(logs) > 1 else None


def _log_mean(samples: Sequence[RunValue]) -> float:
    return float(np.log([sample.value for sample in samples]).mean())


def _floor(samples: Sequence[RunValue]) -> float:
    return hypot(*(sample.sampling / sample.value for sample in samples)) / len(samples)


def _gain(a: Sequence[RunValue], b: Sequence[RunValue]) -> float:
    """Each board's part in A is taken from its part in B before boards are added up."""
    parts: dict[str, float] = {}
    for samples, sign in ((a, -1), (b, 1)):
        for sample in samples:
            for board, gain in sample.gains.items():
                share = sign * gain / sample.value / len(samples)
                parts[board] = parts.get(board, 0.0) + share
    return hypot(*parts.values())


def _gain_of(samples: Sequence[RunValue]) -> float:
    parts: dict[str, float] = {}
    for sample in samples:
        for board, gain in sample.gains.items():
            parts[board] = parts.get(board, 0.0) + gain / len(samples)
    return hypot(*parts.values())
