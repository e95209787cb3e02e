"""Means with Student's 95 % intervals, and ratios to the reference, paired by block.

Ratios are averaged as logarithms: what differs from run to run is a factor rather than a number of
joules, products such as E·t are sums then, and A over B differs from 1 exactly where B over A does.

A block is one repetition of all settings in random order. Runs of one block share heat and system
load, so that a run is compared with the reference's run of its own block (a paired comparison, as
in a randomised block design).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from joulewise.analyse.chunks import Bools, Floats, Ints
from joulewise.analyse.student_t import student
from joulewise.metrics.metric import Metric, Reference
from joulewise.metrics.result import Interval, Verdict
from joulewise.metrics.trial_table import TrialTable

# Differences of logarithms below this are rounding errors of the arithmetic, not of the runs.
_ROUNDING: Final = 1e-9
# Sweeps of the alternating fit of row and column means, which converges within a few.
_FIT_ROUNDS: Final = 20


@dataclass(frozen=True)
class Means:
    """One entry a setting: mean, 95 % half-width (NaN: too few runs), and the number of runs.

    ``floor`` is the half-width that the sampling error of the meter alone would give.
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
        """The variance of single runs about the effects of setting and board, and its dof.

        Unlike ``pooled`` it is known where hardly two runs share a block, as in a search.
        """
        return _variance_about_boards(self.plain, self.boards)

    @cached_property
    def pooled(self) -> tuple[float, int]:
        """The variance of single runs about the effects of setting and block, and its dof."""
        return _variance_about_blocks(self.plain)

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
    """The verdict on a logarithm of a ratio: a 95 % interval that contains 0 is noise.

    Of one run alone (``half`` is NaN) it is only known whether the meter could have made it.
    """
    if np.isnan(half):
        return Verdict.NOISE if abs(mean) <= floor else Verdict.UNKNOWN
    if abs(mean) <= half + _ROUNDING:
        return Verdict.NOISE
    return Verdict.BETTER if mean < 0 else Verdict.WORSE


def means(values: Floats, floors: Floats | None = None, extra: Floats | None = None) -> Means:
    """Means over the columns, with half-widths t · s/√n by Student's quantile t.

    ``floors`` are half-widths of single values by the meter, below which no mean is known;
    ``extra`` are half-widths that are added in quadrature.
    """
    known = ~np.isnan(values)
    n = known.sum(axis=1)
    divisor = np.maximum(n, 1)
    mean = np.where(n, np.where(known, values, 0.0).sum(axis=1) / divisor, np.nan)
    spread = np.where(known, values - mean[:, None], 0.0)
    variance = np.where(n > 1, (spread**2).sum(axis=1) / np.maximum(n - 1, 1), np.nan)
    half = student(n - 1) * np.sqrt(variance / divisor)
    if extra is not None:
        half = np.hypot(half, extra)
    floor = np.zeros(len(values))
    if floors is not None:
        floor = np.sqrt(np.nansum(np.where(known, floors, 0.0) ** 2, axis=1)) / divisor
    return Means(mean, np.maximum(half, floor), floor, n)


def ratios(metric: Metric, table: TrialTable, boundary: str) -> Ratios:
    """The score of every run over that of the reference, paired by block, and their means."""
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
        middle = Reference(
            _geometric_mean(time_s[row]), _geometric_mean(energy_j[row]), table.max_power_w
        )
        plain = np.log(metric.rule(time_s, energy_j, middle))
    both = np.hypot(floors, np.where(np.isnan(floors[row]), 0.0, floors[row]))
    both[row] = 0.0  # the reference over itself is 1 without an error
    log_means = means(log, both, paired.unpaired_half(log, plain[row]))
    ruled_out = np.zeros(len(log), dtype=bool)
    if metric.max_slowdown is not None:
        ruled_out = means(slow).mean > np.log(metric.max_slowdown) + _ROUNDING
    scored = means(scores, above - scores)
    return Ratios(scored, log, plain, floors, log_means, ruled_out, table.boards)


@dataclass(frozen=True)
class Paired:
    """The reference of each column: its ``own`` run of it, where it has one.

    Else the geometric mean of that board's references, else that of all.
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

    def unpaired_half(self, log: Floats, references: Floats) -> Floats:
        """The half-width that comes from runs compared with a mean of references.

        That mean is the same for all of them, and shares its runs with the pairs: of n runs, m of
        them paired, and R references of variance v it adds v · (1 - (m/n)²) / R to the variance.
        """
        known = ~np.isnan(log)
        n = np.maximum(known.sum(axis=1), 1)
        own = self.own & ~np.isnan(references)
        unpaired = 1 - ((known & own).sum(axis=1) / n) ** 2
        if not unpaired.any():
            return np.zeros(len(log))
        seen = references[own]
        _, which, count = np.unique(self.boards[own], return_inverse=True, return_counts=True)
        spread = seen - (np.bincount(which, seen) / count)[which]
        dof = len(seen) - len(count)
        variance = (spread**2).sum() / max(dof, 1)
        half: Floats = student(dof) * np.sqrt(variance * unpaired / max(len(seen), 1))
        return np.where(unpaired > 0, half, 0.0)


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
    """Fill gaps with the geometric mean of their board, or of all where the board has none."""
    filled: Floats = values.copy()
    for at in np.flatnonzero(np.isnan(values)):
        board = values[boards == boards[at]]
        filled[at] = _geometric_mean(board if not np.isnan(board).all() else values)
    return filled


def _geometric_mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.exp(np.log(known).mean())) if len(known) else np.nan


def _variance_about_blocks(plain: Floats) -> tuple[float, int]:
    """Two-way analysis of variance: the residual variance, and its degrees of freedom.

    Row and column means are subtracted in turn until both are 0 (NaN without a dof).
    """
    known = ~np.isnan(plain)
    rows, columns = known.sum(axis=1), known.sum(axis=0)
    dof = int(known.sum() - (rows > 0).sum() - (columns > 0).sum() + 1)
    if dof < 1:
        return np.nan, 0
    rest = np.where(known, plain, 0.0)
    for _ in range(1 if known.all() else _FIT_ROUNDS):  # with gaps, one mean changes the other
        rest -= np.where(known, (rest.sum(axis=1) / np.maximum(rows, 1))[:, None], 0.0)
        rest -= np.where(known, (rest.sum(axis=0) / np.maximum(columns, 1))[None], 0.0)
    return float((rest**2).sum() / dof), dof


def _variance_about_boards(plain: Floats, boards: Ints | None) -> tuple[float, int]:
    """The residual variance of least squares with an effect of each row and of each board.

    NaN without a degree of freedom.
    """
    rows, columns = np.nonzero(np.isfinite(plain))
    if not len(rows):
        return np.nan, 0
    of_board = np.zeros(plain.shape[1], np.int64) if boards is None else boards
    design = np.concatenate(
        [
            rows[:, None] == np.unique(rows),
            of_board[columns][:, None] == np.unique(of_board[columns]),
        ],
        axis=1,
    ).astype(float)
    values = plain[rows, columns]
    effects, _, rank, _ = np.linalg.lstsq(design, values, rcond=None)
    dof = len(values) - int(rank)
    if dof < 1:
        return np.nan, 0
    return float(((values - design @ effects) ** 2).sum() / dof), dof
