"""The best setting by a metric, and how much of its lead is luck (the winner's curse).

The least of many means is too low: of 31 settings that are all alike, five runs each with 1 % of
noise, the winner seems 0.9 % better than it is, and Student's interval of it holds the truth in 83
of 100 sweeps. So what is stated of a winner is

- its mean, plus what a choice from all blocks but one lost on average in the block left out
  (leave-one-out cross-validation), as far as it is ahead of the reference at all: there is no more
  luck than lead;
- up to an upper end that holds for all m candidates at once (Šidák: the quantile at
  (1 - 0.05/2)^(1/m)), by the spread of its own runs or
  that of the runs of all settings, whichever is more. The lower end is Student's: being picked
  does not make a winner seem worse.

Where a search has settled on a setting and then confirmed it, runs of the confirmation had no part
in the choice, and the mean of these alone is stated. How far runs scatter, winning does not touch:
that is taken from all runs about their settings and boards, since two pairs that happen to agree
would state an error of nothing.

Leaving blocks out alone is not enough: the choices overlap, and Student's interval of what they
gave in the blocks left out holds the truth in 90 of 100.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from joulewise.analyse.chunks import Bools, Floats, Ints
from joulewise.analyse.student_t import student, t_quantile
from joulewise.metrics.intervals import Ratios, interval, means
from joulewise.metrics.result import Interval

# A candidate has at least this share of the runs of the setting with the most (chosen: one lucky
# run is no match for five; with 1, a setting with one failed run could never win).
_MIN_RUNS_SHARE: Final = 0.5
# Pairs of a confirmation from which on a mean with an interval can be stated.
_MIN_PAIRS: Final = 2
# Of a 95 % interval.
_OUTSIDE_SHARE: Final = 0.05


@dataclass(frozen=True)
class Picked:
    """The row of the winner among so many ``candidates``.

    ``without`` is what would have been picked without each column, -1 where nothing could;
    ``fresh`` are the columns that had no part in the choice, none where all had. ``share`` is
    how much of the luck that these tell is believed.
    """

    row: int
    candidates: int
    without: Ints
    fresh: Ints
    share: float = 1.0


def settled(by: Ratios, row: int, reference: int, fresh: Bools) -> Picked | None:
    """The setting that a search has chosen; None where no run of it is left."""
    if not by.means.n[row]:
        return None
    pairs = np.flatnonzero(fresh & ~np.isnan(by.log[row]) & ~np.isnan(by.log[reference]))
    tried = int((by.means.n > 0).sum())
    no_winner = np.full(by.log.shape[1], -1)
    return Picked(row, tried, no_winner, pairs if len(pairs) >= _MIN_PAIRS else pairs[:0])


def pick(by: Ratios, reference: int) -> Picked | None:
    """The lowest mean among the settings with enough runs.

    None where the reference has no score: without it no ratio is known.
    """
    n = by.means.n.copy()
    others = np.delete(n, reference)
    enough = (n >= _MIN_RUNS_SHARE * others.max(initial=0)) & (n > 0)
    enough[reference] = n[reference] > 0
    allowed = enough & ~by.ruled_out
    if not allowed.any():
        return None
    mean = by.means.mean
    row = int(np.argmin(np.where(allowed, mean, np.inf)))
    candidates = int(allowed.sum() - allowed[reference])
    picked = Picked(row, max(candidates, 1), _without(by, allowed), np.zeros(0, dtype=np.int64))
    luck, lead = _luck(picked, by.log, by.means.n[row]), max(-mean[row], 0.0)
    return replace(picked, share=lead / luck) if luck > lead else picked


def stated(picked: Picked, of: Ratios, reference: int) -> Interval | None:
    """A ratio of the winner to the reference, by whatever metric it was picked."""
    row = picked.row
    mean, half, n = of.means.mean[row], of.means.half[row], of.means.n[row]
    if row == reference or np.isnan(mean):
        return of.interval(row)
    if len(picked.fresh):
        floors = of.floors[:, picked.fresh][[row, reference]]
        return _confirmed(of.log[row, picked.fresh], floors, of.scatter)
    pooled, dof = of.pooled
    error = np.fmax(half / student(n - 1), np.sqrt(2 * pooled / n))
    at_once = (1 - _OUTSIDE_SHARE / 2) ** (1 / picked.candidates)
    high = mean + np.maximum(t_quantile(max(dof, n - 1, 1), at_once) * error, of.means.floor[row])
    low = mean - (student(dof) * error if np.isnan(half) else half)
    best = mean + picked.share * _luck(picked, of.log, n)
    return interval(*np.exp([best, np.minimum(low, best), np.maximum(high, best)]))


def _confirmed(log: Floats, floors: Floats, scatter: tuple[float, int]) -> Interval | None:
    """The mean of the pairs; ``scatter`` is the variance of single runs, and its dof."""
    of_pairs = means(log[None], np.hypot(*floors)[None])
    mean, half, (variance, dof) = of_pairs.mean[0], of_pairs.half[0], scatter
    pairs = int(of_pairs.n[0])
    if dof > pairs - 1:
        half = np.fmax(student(dof) * np.sqrt(2 * variance / max(pairs, 1)), of_pairs.floor[0])
    return interval(*np.exp([mean, mean - half, mean + half]))


def _without(by: Ratios, allowed: Bools) -> Ints:
    """The winner of all columns but one, of those that have a run in that one, for each."""
    known = ~np.isnan(by.log)
    values = np.where(known, by.log, 0.0)
    left = known.sum(axis=1, keepdims=True) - known
    elsewhere = (values.sum(axis=1, keepdims=True) - values) / np.maximum(left, 1)
    usable = known & (left > 0) & allowed[:, None]
    winner = np.where(usable, elsewhere, np.inf).argmin(axis=0)
    return np.where(usable.any(axis=0), winner, -1)


def _luck(picked: Picked, log: Floats, n: int) -> float:
    """How much higher a pick was in the columns that had no part in it; the more, the worse."""
    columns = np.flatnonzero(picked.without >= 0)
    rows = picked.without[columns]
    if not len(columns) or n < 2:
        return 0.0
    there, runs = log[rows, columns], log[rows]
    others = np.maximum((~np.isnan(runs)).sum(axis=1) - 1, 1)
    gaps = there - (np.nansum(runs, axis=1) - there) / others
    gaps = gaps[~np.isnan(gaps)]  # a run may have a time and no energy
    if not len(gaps):
        return 0.0
    # As much less as a mean of n runs is surer than one of n - 1.
    return float(gaps.mean() * np.sqrt((n - 1) / n))
