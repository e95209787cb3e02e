"""Means with Student's intervals, and ratios to the reference, paired by block.

Ratios are averaged as logarithms: what differs from run to run is a factor rather than a number of
joules, products such as E·t are sums then, and A over B is told from 1 exactly where B over A is.

Quantiles of Student's t.

scipy has them, and takes half a second to import: as long as a whole sweep in virtual time may
spend on forty of its runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.arrays import Bools, Floats, Ints
from joulewise.metrics.metric import Metric, Reference
from joulewise.metrics.result import Interval, Verdict
from joulewise.metrics.trial_table import TrialTable

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


_POINTS: Final = 8193
_AS_NORMAL: Final = 10_000.0  # degrees of freedom, from which on nothing changes that matters


def quantile(dof: ArrayLike, p: float) -> Floats:
    """Below which the share ``p``, a half or more, lies; NaN without a degree of freedom."""
    given = np.asarray(dof, float)
    values, places = np.unique(given, return_inverse=True)
    found = np.array([_quantile(value, p) if value >= 1 else np.nan for value in values])
    return np.asarray(found[places].reshape(given.shape))


@cache
def _quantile(dof: float, p: float) -> float:
    """With t = √dof · tan θ the density goes with cosᵈᵒᶠ⁻¹ θ, from 0 to a right angle."""
    dof = min(dof, _AS_NORMAL)
    angles = np.linspace(0, math.pi / 2, _POINTS)
    density = np.cos(angles) ** (dof - 1)
    mass = np.append(0.0, np.cumsum((density[1:] + density[:-1]) / 2))
    angle = float(np.interp((2 * p - 1) * mass[-1], mass, angles))
    return math.sqrt(dof) * math.tan(angle)


_TWO_SIDED: Final = 0.975
_ROUNDING: Final = 1e-9
_ROUNDS: Final = 20


@dataclass(frozen=True)
class Means:
    """One entry a setting: mean, 95 % half-width (NaN: too few runs), and the runs that entered.

    ``floor`` is the half-width that the meter alone would give.
    """

    mean: Floats
    half: Floats
    floor: Floats
    n: Ints

    def interval(self, row: int) -> Interval | None:
        return mean_interval(self.mean[row], self.half[row])


@dataclass(frozen=True)
class Ratios:
    """Logarithms of scores over the reference's, settings by columns, and their means.

    ``scores`` are in the metric's unit. ``plain`` are logarithms of scores as if all runs had one
    and the same reference, ``floors`` the half-widths by which the meter may have them off.
    ``ruled_out`` are settings that are too slow for the metric, ``boards`` the columns' boards.
    """

    scores: Means
    log: Floats
    plain: Floats
    floors: Floats
    means: Means
    ruled_out: Bools
    boards: Ints | None = None

    @cached_property
    def scatter(self) -> tuple[float, int]:
        """The variance of single runs about what setting and board make of them, and its dof.

        Other than ``pooled`` it is known where hardly two runs share a block, as in a search.
        """
        return _scatter(self.plain, self.boards)

    @cached_property
    def pooled(self) -> tuple[float, int]:
        """The variance of single runs about what setting and block make of them, and its dof."""
        return _pooled(self.plain)

    def interval(self, row: int) -> Interval | None:
        if self.ruled_out[row]:
            return Interval(float("inf"))
        mean, half = self.means.mean[row], self.means.half[row]
        return interval(np.exp(mean), np.exp(mean - half), np.exp(mean + half))

    def score(self, row: int) -> Interval | None:
        return Interval(float("inf")) if self.ruled_out[row] else self.scores.interval(row)

    def verdict(self, row: int) -> Verdict:
        if self.ruled_out[row]:
            return Verdict.WORSE
        return verdict(self.means.mean[row], self.means.half[row], self.means.floor[row])


def verdict(mean: float, half: float, floor: float) -> Verdict:
    """Of a logarithm; one run alone can only be too close to call."""
    if np.isnan(half):
        return Verdict.NOISE if abs(mean) <= floor else Verdict.UNKNOWN
    if abs(mean) <= half + _ROUNDING:
        return Verdict.NOISE
    return Verdict.BETTER if mean < 0 else Verdict.WORSE


def means(values: Floats, floors: Floats | None = None, extra: Floats | None = None) -> Means:
    """Over the columns. ``floors`` are half-widths of the values, ``extra`` a variance to add."""
    known = ~np.isnan(values)
    n = known.sum(axis=1)
    some = np.maximum(n, 1)
    mean = np.where(n, np.where(known, values, 0.0).sum(axis=1) / some, np.nan)
    spread = np.where(known, values - mean[:, None], 0.0)
    variance = np.where(n > 1, (spread**2).sum(axis=1) / np.maximum(n - 1, 1), np.nan)
    own = variance / some
    half = student(n - 1) * np.sqrt(own)
    if extra is not None:
        half = np.hypot(half, extra)
    floor = np.zeros(len(values))
    if floors is not None:
        floor = np.sqrt(np.nansum(np.where(known, floors, 0.0) ** 2, axis=1)) / some
    return Means(mean, np.maximum(half, floor), floor, n)


def student(dof: Ints | Floats | int) -> Floats:
    """How many standard errors hold 95 %; NaN with no degree of freedom."""
    return quantile(dof, _TWO_SIDED)


def ratios(metric: Metric, table: TrialTable, boundary: str) -> Ratios:
    paired = Paired.of(table, boundary)
    time_s, energy_j, row = table.time_s, table.energy_j[boundary], table.reference
    reference = paired.reference(table.max_power_w)
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = np.broadcast_to(metric.rule(time_s, energy_j, reference), time_s.shape)
        log = np.log(scores / metric.rule(reference.time_s, reference.energy_j, reference))
        # How much of a meter's error reaches the score: all of it in E·t, none of it in t.
        above = metric.rule(time_s, energy_j + table.error_j[boundary], reference)
        floors = np.log(above / scores)
        slow = np.log(time_s / reference.time_s)
        middle = Reference(_middle(time_s[row]), _middle(energy_j[row]), table.max_power_w)
        plain = np.log(metric.rule(time_s, energy_j, middle))
    both = np.hypot(floors, np.where(np.isnan(floors[row]), 0.0, floors[row]))
    both[row] = 0.0  # whatever a reference came to, it is once itself
    found = means(log, both, paired.doubt(log, plain[row]))
    ruled_out = np.zeros(len(log), dtype=bool)
    if metric.max_slowdown is not None:
        ruled_out = means(slow).mean > np.log(metric.max_slowdown) + _ROUNDING
    scored = means(scores, above - scores)
    return Ratios(scored, log, plain, floors, found, ruled_out, table.boards)


@dataclass(frozen=True)
class Paired:
    """What each column is compared with: its ``own`` run of the reference, where it has one.

    Else it is the mean of that board's references, else that of all.
    """

    time_s: Floats
    energy_j: Floats
    own: Bools
    boards: Ints

    @classmethod
    def of(cls, table: TrialTable, boundary: str) -> Paired:
        time_s, energy_j = table.time_s[table.reference], table.energy_j[boundary][table.reference]
        return cls(
            _filled(time_s, table.boards),
            _filled(energy_j, table.boards),
            ~np.isnan(time_s),
            table.boards,
        )

    def reference(self, max_power_w: float | None) -> Reference:
        return Reference(self.time_s, self.energy_j, max_power_w)

    def doubt(self, log: Floats, references: Floats) -> Floats:
        """The half-width that comes from runs compared with a mean of references.

        That mean is the same for all of them, and shares its runs with the pairs: of n runs, m of
        them paired, and R references of variance v it adds v (1 - (m/n)²) / R.
        """
        known = ~np.isnan(log)
        n = np.maximum(known.sum(axis=1), 1)
        own = self.own & ~np.isnan(references)
        lone = 1 - ((known & own).sum(axis=1) / n) ** 2
        if not lone.any():
            return np.zeros(len(log))
        seen = references[own]
        _, which, count = np.unique(self.boards[own], return_inverse=True, return_counts=True)
        spread = seen - (np.bincount(which, seen) / count)[which]
        dof = len(seen) - len(count)
        variance = (spread**2).sum() / max(dof, 1)
        half: Floats = student(dof) * np.sqrt(variance * lone / max(len(seen), 1))
        return np.where(lone > 0, half, 0.0)


def mean_interval(mean: float, half: float) -> Interval | None:
    """The interval of a mean that is above 0, as energies and times are.

    It is symmetric unless it would reach 0: then it is symmetric as a factor, with the upper end
    as it was. No energy is below 0.
    """
    low = mean - half
    if low <= 0 < mean:
        low = mean * mean / (mean + half)
    return interval(mean, low, mean + half)


def interval(mean: float, low: float, high: float) -> Interval | None:
    if np.isnan(mean):
        return None
    if np.isnan(low):
        return Interval(float(mean))
    return Interval(float(mean), float(low), float(high))


def _filled(values: Floats, boards: Ints) -> Floats:
    """Gaps take the geometric mean of their board, or of all where the board has none."""
    filled: Floats = values.copy()
    for at in np.flatnonzero(np.isnan(values)):
        board = values[boards == boards[at]]
        filled[at] = _middle(board if not np.isnan(board).all() else values)
    return filled


def _middle(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.exp(np.log(known).mean())) if len(known) else np.nan


def _pooled(plain: Floats) -> tuple[float, int]:
    known = ~np.isnan(plain)
    rows, columns = known.sum(axis=1), known.sum(axis=0)
    dof = int(known.sum() - (rows > 0).sum() - (columns > 0).sum() + 1)
    if dof < 1:
        return np.nan, 0
    rest = np.where(known, plain, 0.0)
    for _ in range(1 if known.all() else _ROUNDS):  # with gaps, the two means disturb each other
        rest -= np.where(known, (rest.sum(axis=1) / np.maximum(rows, 1))[:, None], 0.0)
        rest -= np.where(known, (rest.sum(axis=0) / np.maximum(columns, 1))[None], 0.0)
    return float((rest**2).sum() / dof), dof


def _scatter(plain: Floats, boards: Ints | None) -> tuple[float, int]:
    """Least squares with an effect of each row and of each board; NaN without a dof."""
    rows, columns = np.nonzero(np.isfinite(plain))
    if not len(rows):
        return np.nan, 0
    of_board = np.zeros(plain.shape[1], np.int64) if boards is None else boards
    made_by = np.concatenate(
        [
            rows[:, None] == np.unique(rows),
            of_board[columns][:, None] == np.unique(of_board[columns]),
        ],
        axis=1,
    ).astype(float)
    values = plain[rows, columns]
    effects, _, rank, _ = np.linalg.lstsq(made_by, values, rcond=None)
    dof = len(values) - int(rank)
    if dof < 1:
        return np.nan, 0
    return float(((values - made_by @ effects) ** 2).sum() / dof), dof
