"""Fits the physics to curves of time and energy over the cap, all loads of a board at once.

Three figures are common to the board (the ridge, the voltage below it, the idle with clocks up)
and five belong to each load (:class:`Profile`). They are sought as logarithms and logits, so that
none can leave the range in which it means something.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from scipy.optimize import least_squares

from joulewise.simulate.like import COMPUTE, STALL
from joulewise.simulate.model import Board
from joulewise.simulate.workloads import Profile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Predict = Callable[[Board, Profile], tuple[Array, Array]]
    Also = Callable[[Array, Array], Array]

SHARED: Final = 3
OWN: Final = 5
RIDGE: Final = (0.2, 0.9)
FLOOR_V: Final = (0.4, 0.98)
USUAL: Final = Profile(step_s=1.0, stall=0.1, compute=0.6, core_w=190.0, fixed_w=28.0)
"""Where every search starts, for want of a better guess; ``step_s`` comes from the curve."""
LOOSE: Final = (0.5, 1.5, 1.5, 0.3, 0.5)
"""How far from there a load may be, in the logarithms and logits of its five figures."""
LEAST: Final = (0.02, 0.2, 0.2, 0.1, 0.1)
"""How far at least loads of one board may be from each other, in the same."""

_DIFFERENCE: Final = 1e-6
_LONGEST: Final = 150
_TOLERANCE: Final = 1e-5


@dataclass(frozen=True)
class Curves:
    """What is known: rows are loads, columns caps; not a number where nothing is.

    ``noise`` is the relative error that a figure is expected to have. ``clocks_up_w`` is the range
    in which that idle lies. ``predict`` gives time and energy at all ``caps_w`` (the last axis);
    ``also`` what else is off, from both. A curve's time is that of so many ``steps``.
    """

    board: Board
    time_s: Array
    energy_j: Array
    noise: float
    clocks_up_w: tuple[float, float]
    predict: Predict
    also: Also | None = None
    steps: Array | float = 1.0


@dataclass(frozen=True)
class Prior:
    """Where the loads' figures are expected (logarithms and logits), and how surely."""

    centre: Array
    whiten: Array


@dataclass(frozen=True)
class WorkloadFit:
    board: Board
    profiles: tuple[Profile, ...]
    time_s: Array
    energy_j: Array
    cost: float
    own: Array
    shared: Array


def start_at(curves: Curves) -> tuple[Array, Prior]:
    """The usual load, as long as each curve's shortest time says."""
    own = np.tile(_own(USUAL), (len(curves.time_s), 1))
    own[:, 0] = np.log(0.97 * np.nanmin(curves.time_s, axis=1) / curves.steps)
    return own, Prior(own, np.diag(1 / np.asarray(LOOSE)))


def resembling(found: WorkloadFit, prior: Prior) -> Prior:
    """The loads of a board resemble each other: what a first fit found of all, expected of each.

    A load of which little is shown then falls back on the others. Times have no such likeness.
    """
    centre = np.broadcast_to(np.median(found.own, axis=0), found.own.shape).copy()
    centre[:, 0] = prior.centre[:, 0]
    spread = np.cov((found.own - centre).T) + np.diag(np.square(LEAST))
    return Prior(centre, np.linalg.cholesky(np.linalg.inv(spread)).T)


def fit(
    curves: Curves, own: Array, prior: Prior, ridge: float = 0.45, floor_v: float = 0.7
) -> WorkloadFit:
    """The figures that leave the least squares, from one start."""
    loads = len(own)
    up_w = sum(curves.clocks_up_w) / 2
    shared = [_logit(ridge, RIDGE), _logit(floor_v, FLOOR_V), _logit(up_w, curves.clocks_up_w)]

    def residuals(x: Array) -> Array:
        return _residuals(curves, prior, *_split(x[None], loads))[:, 0].ravel()

    def jacobian(x: Array) -> Array:
        """Each load depends on its own five and the shared three: nine evaluations do for all."""
        tries = np.repeat(x[None], 1 + SHARED + OWN, axis=0)
        for i in range(SHARED):
            tries[1 + i, i] += _DIFFERENCE
        for i in range(OWN):
            tries[1 + SHARED + i, SHARED + i :: OWN] += _DIFFERENCE
        values = _residuals(curves, prior, *_split(tries, loads))
        slopes = (values[:, 1:] - values[:, :1]) / _DIFFERENCE
        out = np.zeros((loads, values.shape[2], x.size))
        out[:, :, :SHARED] = slopes[:, :SHARED].transpose(0, 2, 1)
        for load in range(loads):
            first = SHARED + OWN * load
            out[load, :, first : first + OWN] = slopes[load, SHARED:].T
        return out.reshape(-1, x.size)

    found = least_squares(
        residuals,
        np.concatenate([shared, own.ravel()]),
        jac=cast("Any", jacobian),
        x_scale="jac",
        max_nfev=_LONGEST,
        ftol=_TOLERANCE,
    )
    return _result(curves, found.x, loads, float(found.cost))


def fit_own(curves: Curves, own: Array, prior: Prior, shared: Array) -> WorkloadFit:
    """The loads' figures that leave the least squares on a board that stays as it is."""

    def with_board(x: Array) -> Array:
        return np.concatenate([shared, x])

    def residuals(x: Array) -> Array:
        return _residuals(curves, prior, *_split(with_board(x)[None], len(own)))[:, 0].ravel()

    found = least_squares(residuals, own.ravel(), x_scale="jac", max_nfev=_LONGEST, ftol=_TOLERANCE)
    return _result(curves, with_board(found.x), len(own), float(found.cost))


def _result(curves: Curves, x: Array, loads: int, cost: float) -> WorkloadFit:
    shared, own = _split(x[None], loads)
    board, profile = _unpack(curves, shared, own)
    time_s, energy_j = curves.predict(board, profile)
    one = _unpack(curves, x[:SHARED], own[:, 0])[0]
    clocks = replace(
        one.clocks,
        ridge_mhz=float(np.ravel(one.clocks.ridge_mhz)[0]),
        floor_v=float(np.ravel(one.clocks.floor_v)[0]),
    )
    up_w = float(np.ravel(one.idle.clocks_up_w)[0])
    board = replace(one, clocks=clocks, idle=replace(one.idle, clocks_up_w=up_w))
    profiles = tuple(
        Profile(*(float(np.ravel(v)[0]) for v in vars(_profile(own[i, 0])).values()))
        for i in range(loads)
    )
    return WorkloadFit(board, profiles, time_s[:, 0], energy_j[:, 0], cost, own[:, 0], x[:SHARED])


def _residuals(curves: Curves, prior: Prior, shared: Array, own: Array) -> Array:
    """(loads, tries, residuals)."""
    time_s, energy_j = curves.predict(*_unpack(curves, shared, own))
    parts = [
        _off(time_s, curves.time_s) / curves.noise,
        _off(energy_j, curves.energy_j) / curves.noise,
        (own - prior.centre[:, None]) @ prior.whiten.T,
    ]
    if curves.also is not None:
        parts.append(curves.also(time_s, energy_j))
    return np.concatenate(parts, axis=-1)


def _off(found: Array, wanted: Array) -> Array:
    known = np.isfinite(wanted)[:, None]
    return np.where(known, np.log(found / np.where(np.isfinite(wanted), wanted, 1.0)[:, None]), 0.0)


def _split(x: Array, loads: int) -> tuple[Array, Array]:
    """(tries, parameters) into shared (tries, 3) and own (loads, tries, 5)."""
    own = x[:, SHARED:].reshape(len(x), loads, OWN)
    return x[:, :SHARED], own.transpose(1, 0, 2)


def _unpack(curves: Curves, shared: Array, own: Array) -> tuple[Board, Profile]:
    """A board and a load whose figures are arrays, with a last axis of one for the caps."""
    board = curves.board
    ridge, floor_v, up_w = (
        _within(shared[..., i, None], limits)
        for i, limits in enumerate((RIDGE, FLOOR_V, curves.clocks_up_w))
    )
    clocks = replace(
        board.clocks, ridge_mhz=_as(ridge * board.clocks.sm_max_mhz), floor_v=_as(floor_v)
    )
    return replace(board, clocks=clocks, idle=replace(board.idle, clocks_up_w=_as(up_w))), _profile(
        own
    )


def _profile(own: Array) -> Profile:
    return Profile(
        step_s=_as(np.exp(own[..., 0, None])),
        stall=_as(_within(own[..., 1, None], STALL)),
        compute=_as(_within(own[..., 2, None], COMPUTE)),
        core_w=_as(np.exp(own[..., 3, None])),
        fixed_w=_as(np.exp(own[..., 4, None])),
    )


def _own(profile: Profile) -> Array:
    return np.array(
        [
            np.log(profile.step_s),
            _logit(profile.stall, STALL),
            _logit(profile.compute, COMPUTE),
            np.log(profile.core_w),
            np.log(profile.fixed_w),
        ]
    )


def _within(value: Array, limits: tuple[float, float]) -> Array:
    low, high = limits
    return np.asarray(low + (high - low) / (1 + np.exp(-value)))


def _logit(value: float, limits: tuple[float, float]) -> float:
    low, high = limits
    return float(np.log((value - low) / (high - value)))


def _as(value: Array) -> float:
    """An array where a data class says float: the physics takes both."""
    return cast("float", value)
