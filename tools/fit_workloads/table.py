"""The published table as curves to fit, and cross-validation of the fit (leave one cap out)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from joulewise.simulate.boards import load_board
from joulewise.simulate.model import Board
from joulewise.simulate.physics import steady_state
from joulewise.simulate.published_caps import PublishedRow
from joulewise.simulate.workloads import Profile, build_workload
from tools.fit_workloads.published_metrics import BANDS, METRICS, grid_w, scores
from tools.fit_workloads.solve import Curves, WorkloadFit, fit, fit_own, start_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tools.fit_workloads.solve import Also

    Array = NDArray[np.float64]

CLOCKS_UP_W: Final = {"v100": (55.0, 75.0), "rtx6000": (24.0, 70.0)}
"""Chosen: from idle power with a context to what is seen under loads that hardly compute."""

# How much each kind of error weighs. Chosen: an optimum that is OPTIMUM_W off, a score that is BAND
# off 1 at a band's edge, and a score at the published optimum that exceeds the least by TOLERATED
# and EXCESS more, count as much as a time or an energy that is NOISE off. One of them doubled has a
# quarter of its weight.
NOISE: Final = 0.003
OPTIMUM_W: Final = 15.0
BAND: Final = 0.03
EXCESS: Final = 0.002
TOLERATED: Final = 0.005

BEATEN: Final = 0.008
"""Chosen: a network whose score at a published optimum exceeds the least by more is fitted again
alone: there every cap that beats the published one counts, ``EXCESS`` as ``NOISE``."""

STARTS: Final = ((0.35, 0.6), (0.55, 0.6))
"""Chosen: ridge (relative to the highest clock) and voltage below it, where the fits start."""

# The optimum is a mean of the caps, weighted by exp(-(score - least) / _SOFTNESS), so that it moves
# smoothly with the parameters. Chosen: about the noise; doubled, flat optima move to the middle.
_SOFTNESS: Final = 0.003


@dataclass(frozen=True)
class LeftOut:
    """A row that was left out of a fit, and the relative errors of its prediction."""

    row: PublishedRow
    time_error: float
    energy_error: float


def networks(rows: Sequence[PublishedRow], key: str) -> tuple[str, ...]:
    """The networks that were measured on a board."""
    return tuple(dict.fromkeys(row.network for row in rows if row.board == key))


def fit_board(key: str, rows: Sequence[PublishedRow]) -> WorkloadFit:
    """The best fit to these rows, of several starts.

    A network for which another cap than the published one is better by too much is then fitted
    again alone, on the fitted board: its minima are as much a measurement as its rows are.
    """
    curves = table_curves(key, rows)
    own, prior = start_at(curves)
    best = min(
        (fit(curves, own, prior, *start) for start in STARTS), key=lambda result: result.cost
    )
    for load, name in enumerate(networks(rows, key)):
        shown = [row for row in rows if row.network == name]
        best = _refit_if_beaten(best, load, table_curves(key, shown, alone=True))
    return best


def leave_out(key: str, rows: Sequence[PublishedRow]) -> list[LeftOut]:
    """Fit with each cap of each network left out in turn, also as an optimum."""
    limits = load_board(key).limits
    caps_w = list(grid_w(limits.minimum_w, limits.maximum_w))
    names = networks(rows, key)
    left_out = []
    for name, cap_w in dict.fromkeys((r.network, r.cap_w) for r in rows if r.board == key):
        hidden = [r for r in rows if (r.board, r.network, r.cap_w) == (key, name, cap_w)]
        board_fit = fit_board(key, [r for r in rows if r not in hidden])
        at = names.index(name), caps_w.index(cap_w)
        row = hidden[0]
        time_error = float(board_fit.time_s[at] / row.time_s - 1)
        left_out.append(LeftOut(row, time_error, float(board_fit.energy_j[at] / row.energy_j - 1)))
    return left_out


def table_curves(key: str, rows: Sequence[PublishedRow], *, alone: bool = False) -> Curves:
    """The rows as curves; with ``alone``, each cap that beats a published optimum counts."""
    board = load_board(key)
    caps_w = grid_w(board.limits.minimum_w, board.limits.maximum_w)
    names = networks(rows, key)
    time_s = np.full((len(names), len(caps_w)), np.nan)
    energy_j = time_s.copy()
    optima = np.full((len(names), len(METRICS)), -1)
    for row in rows:
        if row.board == key:
            load, at = names.index(row.network), int(np.searchsorted(caps_w, row.cap_w))
            time_s[load, at], energy_j[load, at] = row.time_s, row.energy_j
            if row.metric in METRICS:
                optima[load, METRICS.index(row.metric)] = at
    idle = Profile(1.0, 0.0, 0.0, 0.0, 0.0)
    workloads = [build_workload(name, board, idle, samples_of=key) for name in names]
    samples, batch_size = (
        np.array(figures)[:, None, None]
        for figures in zip(*((it.samples, it.batch_size) for it in workloads), strict=True)
    )

    def predict(board: Board, profile: Profile) -> tuple[Array, Array]:
        workload = build_workload(names[0], board, profile, samples_of=key)
        workload = replace(
            workload, samples=cast("int", samples), batch_size=cast("int", batch_size)
        )
        return steady_state.steady_run(board, workload, caps_w)

    def also(time_s: Array, energy_j: Array) -> Array:
        by_metric = scores(time_s, energy_j)
        if alone:
            return _beaten_errors(optima, by_metric)
        return _optimum_errors(key, caps_w, optima, by_metric)

    steps = np.ceil(samples / batch_size)[:, 0, 0]
    return Curves(board, time_s, energy_j, NOISE, CLOCKS_UP_W[key], predict, also, steps)


def _refit_if_beaten(before: WorkloadFit, load: int, curves: Curves) -> WorkloadFit:
    """Fit one load again alone where a cap beats its published optimum by too much."""
    row = slice(load, load + 1)
    also = cast("Also", curves.also)
    if EXCESS * also(before.time_s[row, None], before.energy_j[row, None]).max() <= BEATEN:
        return before
    again = fit_own(curves, before.own[row], start_at(curves)[1], before.shared)
    time_s, energy_j, own = before.time_s.copy(), before.energy_j.copy(), before.own.copy()
    time_s[row], energy_j[row], own[row] = again.time_s, again.energy_j, again.own
    profiles = (*before.profiles[:load], *again.profiles, *before.profiles[load + 1 :])
    return replace(before, profiles=profiles, time_s=time_s, energy_j=energy_j, own=own)


def _optimum_errors(
    key: str, caps_w: Array, optima: NDArray[np.int_], by_metric: dict[str, Array]
) -> Array:
    """The errors of the optima and of the edges of the bands."""
    errors = []
    for metric, at in zip(METRICS, optima.T, strict=True):
        score = by_metric[metric]
        known = (at >= 0)[:, None]
        least = score.min(axis=-1)
        weight = np.exp((least[..., None] - score) / _SOFTNESS)
        centre_w = (weight * caps_w).sum(axis=-1) / weight.sum(axis=-1)
        at_optimum = np.take_along_axis(score, at[:, None, None], axis=-1)[..., 0]
        errors += [
            np.where(known, (centre_w - caps_w[at][:, None]) / OPTIMUM_W, 0),
            np.where(known, np.maximum(at_optimum / least - 1 - TOLERATED, 0) / EXCESS, 0),
        ]
        low_w = BANDS.get((key, metric), (0.0, 0.0))[0]
        if low_w > caps_w[0]:
            errors.append((score[..., int(np.searchsorted(caps_w, low_w))] - 1) / BAND)
    return np.stack(errors, axis=-1)


def _beaten_errors(optima: NDArray[np.int_], by_metric: dict[str, Array]) -> Array:
    """By how much the score at a published optimum exceeds that at each cap."""
    errors = []
    for metric, at in zip(METRICS, optima.T, strict=True):
        score = by_metric[metric]
        at_optimum = np.take_along_axis(score, at[:, None, None], axis=-1)
        known = (at >= 0)[:, None, None]
        errors.append(np.where(known, np.maximum(at_optimum / score - 1, 0) / EXCESS, 0))
    return np.concatenate(errors, axis=-1)
