"""When the energy was drawn that a poll of the counter showed.

A counter moves at ticks, and what it shows at a tick was drawn some time before it (its *lag*). A
poll gets the last tick's value, which is up to a period old. Two things tell when the ticks are:

* A counter that moved between two polls had a tick there; one that did not had none. Where its
  period is known, that of the driver's samples, this bounds the *phase* of the ticks.
* With the right phase, counter and power curve go together: their difference changes least from
  poll to poll.

Nothing tells the lag. It stays as uncertain as the sensor's profile has it.

Method: importance sampling over a grid of hypotheses (phase, lag, and, where the averaging window
is not stated, the delay of the readings), each weighted with its prior and its likelihood, then
systematic resampling. The result is a handful of placements that are about equally likely. How far
energies differ between them is a part of the error.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from joulewise.analyse.chunks import Bools, Floats
from joulewise.analyse.energy.power_curve import PowerCurve
from joulewise.analyse.energy.sensor_timing import ReadingTiming

# All constants below were chosen on simulated boards, unless they say otherwise.
# Phases that are tried: a 100 ms counter is placed within 4 ms, which the error allows for.
_PHASES: Final = 24
# Standard deviations by which the lag is moved, with the weights of Gauss-Hermite quadrature.
_LAGS: Final = ((0.0, 2 / 3), (-(3**0.5), 1 / 6), (3**0.5, 1 / 6))
# Placements that are drawn from all weighted hypotheses; the time for an energy grows with them.
_PLACEMENTS: Final = 12
# Intervals between polls at which hypotheses are compared; more cost time and tell hardly more.
_COMPARED_INTERVALS: Final = 160
# The weight of one interval's likelihood (a tempered likelihood). Differences between polls are no
# independent normal deviates: with a weight of 1 a phase is taken for certain that is not.
_EVIDENCE_WEIGHT: Final = 0.1
# A contradiction between a poll and a phase, in units of log likelihood: plain, and so close to
# a tick that its jitter explains it; and the most that all of them count together.
_CONTRADICTION: Final = 6.0
_NEAR_CONTRADICTION: Final = 0.5
_MAX_CONTRADICTION: Final = 30.0
# Pairs of polls further apart than this many periods always have a tick between them.
_TELLING_PERIODS: Final = 1.9
# More pairs of polls take memory and tell nothing new.
_MAX_PAIRS: Final = 4096
# Ticks come early or late by about this share of their period: intervals with the published
# coefficient of variation of 1.14 % lie between two of them, so it is that by the root of 2.
_JITTER_SHARE: Final = 0.008
# A call of the driver takes some tens of microseconds, and the value is from within it.
_CALL_S: Final = 6e-5
# If every phase contradicts more than this share of the polls, the counter has no such ticks.
_MAX_UNEXPLAINED_SHARE: Final = 0.1
# A poll within so many times that of a tick is close to it.
_NEAR_JITTERS: Final = 4.0
# The share of the readings' variance over a cell that the offset scatters by at a poll.
CELL_SHARE: Final = 0.2
# The share of the squared differences that count as they are; larger ones count as its largest.
_UNCUT_SHARE: Final = 0.9
# The scatter of differences below which they do not tell phases apart.
_MIN_SCATTER2: Final = 0.05**2


@dataclass(frozen=True)
class Polls:
    """Polls that got a new value of the counter, in seconds from the origin of the curve.

    ``before_s`` is the last poll that did not have it yet; ``joined`` says whether the element
    before is the value before it in the recording.
    """

    t_s: Floats
    before_s: Floats
    count_j: Floats
    joined: Bools


@dataclass(frozen=True)
class Placement:
    """When the energy of each poll was drawn, the variance of that time, and the curve it rests on.

    ``share`` is its probability among all placements.
    """

    t_s: Floats
    variance_s2: Floats
    curve: PowerCurve
    share: float


@dataclass(frozen=True)
class _Hypothesis:
    phase_s: float | None
    lag_s: float
    curve: PowerCurve
    log_prior: float


def place_polls(
    polls: Polls,
    curves: list[tuple[PowerCurve, float]],
    timing: ReadingTiming,
    period_s: float | None,
) -> list[Placement]:
    """The likely placements of the polls, the likeliest first.

    ``curves`` are those that the readings may mean, each with a weight; ``period_s`` is that of the
    ticks, None where it is not known.
    """
    phases_s: list[float | None] = [None]
    log_phase = np.zeros(1)
    if period_s:
        grid_s = (np.arange(_PHASES) + 0.5) / _PHASES * period_s
        log_grid = _log_likelihood_of_ticks(polls, grid_s, period_s)
        if log_grid is not None:
            phases_s, log_phase = grid_s.tolist(), log_grid
    lag_sigma_s = timing.counter_lag_sigma_s
    if phases_s == [None]:
        # Polls in step with the ticks all get values of the same unknown age.
        age_s2 = float(np.median(ages_s(polls, timing)[1]))
        lag_sigma_s = (lag_sigma_s**2 + age_s2) ** 0.5
    lags_s = [
        (timing.counter_lag_s + sigmas * lag_sigma_s, weight)
        for sigmas, weight in (_LAGS if lag_sigma_s else _LAGS[:1])
    ]
    hypotheses = [
        _Hypothesis(phase_s, lag_s, curve, float(np.log(weight * lag_weight) + log_phase[j]))
        for (curve, weight), (lag_s, lag_weight), (j, phase_s) in product(
            curves, lags_s, enumerate(phases_s)
        )
    ]
    log_weight = np.array([hypothesis.log_prior for hypothesis in hypotheses])
    if phases_s != [None] or len(curves) > 1:
        log_weight += _log_likelihood_of_energies(polls, hypotheses, timing, period_s)
    weight = np.exp(log_weight - log_weight.max())
    order = np.argsort(-weight, kind="stable")
    # Systematic resampling: evenly spaced points on the cumulative weights.
    cumulative = np.cumsum(weight[order]) / weight.sum()
    points = np.searchsorted(cumulative, (np.arange(_PLACEMENTS) + 0.5) / _PLACEMENTS)
    drawn, times = np.unique(np.minimum(points, len(order) - 1), return_counts=True)
    return [
        _placement(polls, hypotheses[order[rank]], timing, period_s, number / _PLACEMENTS)
        for rank, number in zip(drawn.tolist(), times.tolist(), strict=True)
    ]


def ages_s(polls: Polls, timing: ReadingTiming) -> tuple[Floats, Floats]:
    """The age of the values and its variance, where the ticks are not known.

    A uniform distribution from now to the poll that did not have the value yet, or to one period
    ago: mean a/2 and variance a²/12.
    """
    longest_s = timing.counter_s * (1 + timing.spread)
    oldest_s = np.minimum(polls.t_s - polls.before_s, longest_s)
    return oldest_s / 2, oldest_s**2 / 12


def _placement(
    polls: Polls,
    hypothesis: _Hypothesis,
    timing: ReadingTiming,
    period_s: float | None,
    share: float,
) -> Placement:
    if hypothesis.phase_s is None or not period_s:
        age_s, variance_s2 = ages_s(polls, timing)
        placed_s = polls.t_s - age_s - hypothesis.lag_s
        return Placement(placed_s, variance_s2 + _CALL_S**2, hypothesis.curve, share)
    age_s = np.mod(polls.t_s - hypothesis.phase_s, period_s)
    sigma_s2 = (period_s / _PHASES) ** 2 / 12 + (_JITTER_SHARE * period_s) ** 2 + _CALL_S**2
    # A poll so close to a tick may have got the value of either side of it.
    apart = np.minimum(age_s, period_s - age_s) / sigma_s2**0.5
    other_side = _normal_tail(apart)
    variance_s2 = sigma_s2 + period_s**2 * other_side * (1 - other_side)
    return Placement(polls.t_s - age_s - hypothesis.lag_s, variance_s2, hypothesis.curve, share)


def _log_likelihood_of_ticks(polls: Polls, phases_s: Floats, period_s: float) -> Floats | None:
    """Of each phase, by the polls between which the counter moved or did not.

    None where no phase explains them.
    """
    moved = np.column_stack([polls.before_s, polls.t_s])
    unmoved = np.column_stack([polls.t_s[:-1], polls.before_s[1:]])[polls.joined[1:]]
    unmoved = unmoved[unmoved[:, 1] > unmoved[:, 0]]
    pairs = np.concatenate([moved, unmoved])
    has_tick = np.arange(len(pairs)) < len(moved)
    short = pairs[:, 1] - pairs[:, 0] < _TELLING_PERIODS * period_s
    pairs, has_tick = pairs[short], has_tick[short]
    if len(pairs) > _MAX_PAIRS:
        evenly = np.linspace(0, len(pairs) - 1, _MAX_PAIRS).astype(np.intp)
        pairs, has_tick = pairs[evenly], has_tick[evenly]
    if not len(pairs):
        return np.zeros(len(phases_s))
    turns = (pairs[None] - phases_s[:, None, None]) / period_s
    ticks = np.floor(turns[..., 1]) - np.floor(turns[..., 0])
    wrong = np.where(has_tick, ticks < 1, ticks >= 1)
    to_tick = np.abs(turns - np.rint(turns)).min(axis=-1)
    # Half the distance between two phases that are tried is added.
    close = to_tick < _NEAR_JITTERS * _JITTER_SHARE + 0.5 / len(phases_s)
    plain = wrong & ~close
    if plain.mean(axis=1).min() > _MAX_UNEXPLAINED_SHARE:
        return None
    against = _CONTRADICTION * plain.sum(axis=1) + _NEAR_CONTRADICTION * (wrong & close).sum(axis=1)
    return np.asarray(np.maximum(against.min() - against, -_MAX_CONTRADICTION))


def _log_likelihood_of_energies(
    polls: Polls, hypotheses: list[_Hypothesis], timing: ReadingTiming, period_s: float | None
) -> Floats:
    """Of each hypothesis, by how much counter and curve differ from poll to poll.

    A normal likelihood with an unknown scale: -n/2 · log of the mean squared difference, in units
    of what the curve's clock expects. The largest, beyond _UNCUT_SHARE of all, are cut to the
    next smaller (winsorised).
    """
    pairs = np.flatnonzero(polls.joined[1:])
    number = len(pairs)
    if number < 3:
        return np.zeros(len(hypotheses))
    if number > _COMPARED_INTERVALS:
        pairs = pairs[np.linspace(0, number - 1, _COMPARED_INTERVALS).astype(np.intp)]
    rise_j = polls.count_j[pairs + 1] - polls.count_j[pairs]
    ends_s = np.stack([polls.t_s[pairs], polls.t_s[pairs + 1]])
    age_s = np.stack([ages_s(polls, timing)[0][pairs + i] for i in (0, 1)])
    expected_s = ends_s - age_s - timing.counter_lag_s
    log_likelihood = np.empty(len(hypotheses))
    for curve in {id(h.curve): h.curve for h in hypotheses}.values():
        same_curve = [i for i, h in enumerate(hypotheses) if h.curve is curve]
        drawn_s = np.stack([ends_s - hypotheses[i].lag_s for i in same_curve])
        if period_s and hypotheses[0].phase_s is not None:
            phases_s = np.array([hypotheses[i].phase_s for i in same_curve])
            drawn_s -= np.mod(ends_s - phases_s[:, None, None], period_s)
        else:
            drawn_s -= age_s
        off_j = rise_j - np.diff(curve.energy_j(drawn_s), axis=1)[:, 0]
        expected_j2 = np.diff(curve.clock_j2(expected_s), axis=0)[0]
        expected_j2 += CELL_SHARE * timing.step_s**2 * curve.variance_w2(expected_s).sum(axis=0)
        squares = off_j**2 / np.maximum(expected_j2, 1e-9)
        rank = int(np.ceil(_UNCUT_SHARE * len(pairs))) - 1
        cut = np.partition(squares, rank, axis=1)[:, rank : rank + 1]
        scatter2 = np.minimum(squares, cut).mean(axis=1)
        log_likelihood[same_curve] = (
            -0.5 * _EVIDENCE_WEIGHT * len(pairs) * np.log(scatter2 + _MIN_SCATTER2)
        )
    return log_likelihood


def _normal_tail(sigmas: Floats) -> Floats:
    """The probability beyond so many standard deviations, within 0.0003.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.27; numpy has no error function.
    """
    x = sigmas / 2**0.5
    series = 1 + x * (0.278393 + x * (0.230389 + x * (0.000972 + x * 0.078108)))
    return np.asarray(0.5 / series**4)
