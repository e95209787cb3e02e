"""The published table as curves to fit, and how far a fit is from what the table does not show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from joulewise.simulate.boards import load_board
from joulewise.simulate.model import Board
from joulewise.simulate.physics import steady_state
from joulewise.simulate.published import BANDS, METRICS, PublishedRow, grid_w, scores
from joulewise.simulate.workloads import Profile, build_workload
from tools.fit_workloads.solve import Curves, WorkloadFit, fit, fit_own, start_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tools.fit_workloads.solve import Also

    Array = NDArray[np.float64]

CLOCKS_UP_W: Final = {"v100": (55.0, 75.0), "rtx6000": (24.0, 70.0)}
"""From the idle with a context to what is seen under loads that hardly compute."""

NOISE: Final = 0.003
PLACE_W: Final = 15.0
BAND: Final = 0.03
EXCESS: Final = 0.002
FREE: Final = 0.005
"""An optimum ``PLACE_W`` off its place, a score ``BAND`` off 1 at a band's edge, and a score at the
published optimum that exceeds the least by ``FREE`` and ``EXCESS`` more, count as a time or an
energy that is ``NOISE`` off."""

BEATEN: Final = 0.008
"""A network whose score at a published optimum exceeds the least by more is fitted again alone:
there every cap that beats the published one counts, ``EXCESS`` as ``NOISE``."""

STARTS: Final = ((0.35, 0.6), (0.55, 0.6))
"""Ridge (relative to the highest clock) and voltage below it, to set out from."""

_SOFT: Final = 0.003


@dataclass(frozen=True)
class LeftOut:
    """One row that a fit was not shown, and by how much the fit missed it."""

    row: PublishedRow
    time_error: float
    energy_error: float


def networks(rows: Sequence[PublishedRow], key: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row.network for row in rows if row.board == key))


def fit_board(key: str, rows: Sequence[PublishedRow]) -> WorkloadFit:
    """The best fit to these rows, of several starts.

    A network that another cap than the published one suits too well is then fitted again alone,
    on the board as it was found: its minima are as much a measurement as its rows are.
    """
    curves = table_curves(key, rows)
    own, prior = start_at(curves)
    found = min((fit(curves, own, prior, *start) for start in STARTS), key=lambda it: it.cost)
    for load, name in enumerate(networks(rows, key)):
        shown = [row for row in rows if row.network == name]
        found = _again_if_beaten(found, load, table_curves(key, shown, alone=True))
    return found


def leave_out(key: str, rows: Sequence[PublishedRow]) -> list[LeftOut]:
    """Each cap of each network left out in turn, its place as an optimum included."""
    limits = load_board(key).limits
    caps_w = list(grid_w(limits.minimum_w, limits.maximum_w))
    names = networks(rows, key)
    out = []
    for name, cap_w in dict.fromkeys((r.network, r.cap_w) for r in rows if r.board == key):
        hidden = [r for r in rows if (r.board, r.network, r.cap_w) == (key, name, cap_w)]
        found = fit_board(key, [r for r in rows if r not in hidden])
        at = names.index(name), caps_w.index(cap_w)
        row = hidden[0]
        time_error = float(found.time_s[at] / row.time_s - 1)
        out.append(LeftOut(row, time_error, float(found.energy_j[at] / row.energy_j - 1)))
    return out


def table_curves(key: str, rows: Sequence[PublishedRow], *, alone: bool = False) -> Curves:
    """What the rows show; of a network alone, each cap that beats a published optimum counts."""
    board = load_board(key)
    caps_w = grid_w(board.limits.minimum_w, board.limits.maximum_w)
    names = networks(rows, key)
    time_s = np.full((len(names), len(caps_w)), np.nan)
    energy_j = time_s.copy()
    place = np.full((len(names), len(METRICS)), -1)
    for row in rows:
        if row.board == key:
            load, at = names.index(row.network), int(np.searchsorted(caps_w, row.cap_w))
            time_s[load, at], energy_j[load, at] = row.time_s, row.energy_j
            if row.metric in METRICS:
                place[load, METRICS.index(row.metric)] = at
    idle = Profile(1.0, 0.0, 0.0, 0.0, 0.0)
    trained = [build_workload(name, board, idle, samples_of=key) for name in names]
    samples, batch_size = (
        np.array(figures)[:, None, None]
        for figures in zip(*((it.samples, it.batch_size) for it in trained), strict=True)
    )

    def predict(board: Board, profile: Profile) -> tuple[Array, Array]:
        workload = build_workload(names[0], board, profile, samples_of=key)
        workload = replace(
            workload, samples=cast("int", samples), batch_size=cast("int", batch_size)
        )
        return steady_state.run(board, workload, caps_w)

    def also(time_s: Array, energy_j: Array) -> Array:
        found = scores(time_s, energy_j)
        return _beaten(place, found) if alone else _misplaced(key, caps_w, place, found)

    steps = np.ceil(samples / batch_size)[:, 0, 0]
    return Curves(board, time_s, energy_j, NOISE, CLOCKS_UP_W[key], predict, also, steps)


def _again_if_beaten(found: WorkloadFit, load: int, curves: Curves) -> WorkloadFit:
    this = slice(load, load + 1)
    also = cast("Also", curves.also)
    if EXCESS * also(found.time_s[this, None], found.energy_j[this, None]).max() <= BEATEN:
        return found
    again = fit_own(curves, found.own[this], start_at(curves)[1], found.shared)
    time_s, energy_j, own = found.time_s.copy(), found.energy_j.copy(), found.own.copy()
    time_s[this], energy_j[this], own[this] = again.time_s, again.energy_j, again.own
    profiles = (*found.profiles[:load], *again.profiles, *found.profiles[load + 1 :])
    return replace(found, profiles=profiles, time_s=time_s, energy_j=energy_j, own=own)


def _misplaced(key: str, caps_w: Array, place: NDArray[np.int_], found: dict[str, Array]) -> Array:
    """What is off in the places of the optima and the edges of the bands."""
    off = []
    for metric, at in zip(METRICS, place.T, strict=True):
        score = found[metric]
        known = (at >= 0)[:, None]
        least = score.min(axis=-1)
        weight = np.exp((least[..., None] - score) / _SOFT)
        centre_w = (weight * caps_w).sum(axis=-1) / weight.sum(axis=-1)
        there = np.take_along_axis(score, at[:, None, None], axis=-1)[..., 0]
        off += [
            np.where(known, (centre_w - caps_w[at][:, None]) / PLACE_W, 0),
            np.where(known, np.maximum(there / least - 1 - FREE, 0) / EXCESS, 0),
        ]
        low_w = BANDS.get((key, metric), (0.0, 0.0))[0]
        if low_w > caps_w[0]:
            off.append((score[..., int(np.searchsorted(caps_w, low_w))] - 1) / BAND)
    return np.stack(off, axis=-1)


def _beaten(place: NDArray[np.int_], found: dict[str, Array]) -> Array:
    """By how much the score at a published optimum exceeds that at each cap."""
    off = []
    for metric, at in zip(METRICS, place.T, strict=True):
        score = found[metric]
        there = np.take_along_axis(score, at[:, None, None], axis=-1)
        known = (at >= 0)[:, None, None]
        off.append(np.where(known, np.maximum(there / score - 1, 0) / EXCESS, 0))
    return np.concatenate(off, axis=-1)
