"""Judges one quantity of two sides of runs: mean of each, ratio B over A, interval and verdict.

A ratio is the log response ratio (Hedges, Gurevitch, Curtis: "The meta-analysis of response ratios
in experimental ecology", Ecology 80, 1999): the difference of the mean logarithms, with the
interval of Welch ("The generalization of Student's problem…", Biometrika 34, 1947) for what differs
from run to run, and the first-order error of a logarithm, error over value, for the sampling error.
The interval is symmetric on the logarithms, so that B over A differs from 1 exactly where A over B
does; as a ratio it reaches farther up than down. The verdict is read from that same interval. Three
errors enter, each in its own way:

- variation from run to run shows in the spread of the runs, and shrinks with their number;
- the sampling error is part of that spread already, and is its lower limit;
- the calibration error (gain) of a board is one factor for all its runs: it cancels as far as both
  sides ran on that board; where they did not, repetition does not reduce it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import hypot, sqrt
from typing import Final

import numpy as np

from joulewise.analyse.student_t import student
from joulewise.metrics.intervals import mean_interval, means
from joulewise.metrics.result import Interval

# Half-widths and differences of logarithms below this are rounding of floats (chosen: far above the
# 1e-16 of a float and far below any real difference). Doubled, nothing changes.
_ROUNDING: Final = 1e-9


@dataclass(frozen=True)
class RunValue:
    """One run's value, with its sampling error (95 % half-width, in the unit of the value).

    ``gains`` are the half-widths from factors that several runs share: the gain of each board, by
    board, and others, such as an uncertain number of samples, by name. ``is_read`` is False where
    no sensor read any part of the value: a model or an assumption has no error of a reading.
    """

    value: float
    sampling: float = 0.0
    gains: Mapping[str, float] = field(default_factory=dict)
    is_read: bool = True


class CompareOutcome(str, Enum):
    """The verdict on B against A."""

    LESS = "less"
    MORE = "more"
    NOISE = "within noise"
    UNKNOWN = "too few runs"
    NOT_COMPARABLE = "not comparable"


class VerdictBasis(str, Enum):
    """What the interval of a ratio is made from."""

    SPREAD = "spread of the runs"
    SPREAD_OF_A = "spread of A's runs"
    SPREAD_OF_B = "spread of B's runs"
    MEASUREMENT = "measurement error"
    NOTHING = "nothing"


@dataclass(frozen=True)
class ComparedQuantity:
    """One quantity of two sides: the mean of each, and their ratio B over A.

    The intervals of ``a`` and ``b`` include the gains. ``n`` are the numbers of runs. ``reason``
    says why there is no ratio, where there is none.
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
    """The ratio of the means of B's runs to A's, with its interval and the verdict."""
    n, intervals = (len(a), len(b)), (_interval(a), _interval(b))
    if not a or not b:
        return not_comparable(quantity, unit, (a, b), f"not known for {'B' if a else 'A'}")
    if any(sample.value <= 0 for sample in (*a, *b)):
        return not_comparable(quantity, unit, (a, b), "a run's value is not above 0")
    mean = _log_mean(b) - _log_mean(a)
    sampling = hypot(_sampling(a), _sampling(b))
    gain = _gain(
        (sample, sign / sample.value / len(samples))
        for samples, sign in ((a, -1), (b, 1))
        for sample in samples
    )
    spread, basis = _spread(a, b)
    is_read = all(sample.is_read for sample in (*a, *b))
    if spread is None and (not is_read or hypot(sampling, gain) <= _ROUNDING):
        ratio = Interval(float(np.exp(mean)))
        return ComparedQuantity(
            quantity, unit, n, *intervals, ratio, CompareOutcome.UNKNOWN, VerdictBasis.NOTHING
        )
    # The spread of the runs includes their sampling errors, but that of few runs may be too small.
    half = hypot(sampling if spread is None else max(spread, sampling), gain)
    ratio = Interval(*(float(np.exp(x)) for x in (mean, mean - half, mean + half)))
    return ComparedQuantity(quantity, unit, n, *intervals, ratio, _verdict(mean, half), basis)


def not_comparable(
    quantity: str, unit: str, sides: tuple[Sequence[RunValue], Sequence[RunValue]], reason: str
) -> ComparedQuantity:
    """The mean of each side without a ratio, for the given reason."""
    a, b = sides
    intervals = _interval(a), _interval(b)
    outcome = CompareOutcome.NOT_COMPARABLE
    return ComparedQuantity(
        quantity, unit, (len(a), len(b)), *intervals, None, outcome, None, reason
    )


def _verdict(mean: float, half: float) -> CompareOutcome:
    if abs(mean) <= half + _ROUNDING:
        return CompareOutcome.NOISE
    return CompareOutcome.LESS if mean < 0 else CompareOutcome.MORE


def _interval(samples: Sequence[RunValue]) -> Interval | None:
    """The mean with Student's interval, widened by the boards' gains."""
    if not samples:
        return None
    values = np.array([[sample.value for sample in samples]])
    student_means = means(values, np.array([[sample.sampling for sample in samples]]))
    mean = float(student_means.mean[0])
    # One run has no spread: then only its sampling error is known.
    half_widths = student_means.floor if len(samples) == 1 else student_means.half
    half = hypot(float(half_widths[0]), _gain((sample, 1 / len(samples)) for sample in samples))
    return mean_interval(mean, half) if half or len(samples) > 1 else Interval(mean)


def _spread(a: Sequence[RunValue], b: Sequence[RunValue]) -> tuple[float | None, VerdictBasis]:
    """The half-width from the spread of the runs, on logarithms, by Welch's method.

    A side of one run is taken to have the spread of the other; None where both are one run.
    """
    (n_a, variance_a), (n_b, variance_b) = _variance(a), _variance(b)
    if variance_a is not None and variance_b is not None:
        # Variances of the means, and the degrees of freedom of Welch and Satterthwaite.
        mean_a, mean_b = variance_a / n_a, variance_b / n_b
        squares = mean_a**2 / (n_a - 1) + mean_b**2 / (n_b - 1)
        dof = (mean_a + mean_b) ** 2 / squares if squares else n_a + n_b - 2
        return float(student(np.array(dof))) * sqrt(mean_a + mean_b), VerdictBasis.SPREAD
    known = variance_a if variance_b is None else variance_b
    if known is None:
        return None, VerdictBasis.MEASUREMENT
    basis = VerdictBasis.SPREAD_OF_A if variance_b is None else VerdictBasis.SPREAD_OF_B
    dof = max(n_a, n_b) - 1
    return float(student(dof)) * sqrt(known * (1 / n_a + 1 / n_b)), basis


def _variance(samples: Sequence[RunValue]) -> tuple[int, float | None]:
    logs = np.log([sample.value for sample in samples])
    return len(logs), float(logs.var(ddof=1)) if len(logs) > 1 else None


def _log_mean(samples: Sequence[RunValue]) -> float:
    return float(np.log([sample.value for sample in samples]).mean())


def _sampling(samples: Sequence[RunValue]) -> float:
    """Half-width on the mean logarithm from the sampling errors of the runs."""
    return hypot(*(sample.sampling / sample.value for sample in samples)) / len(samples)


def _gain(weighted: Iterable[tuple[RunValue, float]]) -> float:
    """Half-width from the gains of samples with weights.

    The parts of a board are added with their signs, so that it cancels between A and B; the boards
    are independent, and add in quadrature.
    """
    by_board: dict[str, float] = {}
    for sample, weight in weighted:
        for board, gain in sample.gains.items():
            by_board[board] = by_board.get(board, 0.0) + weight * gain
    return hypot(*by_board.values())
