"""Fits the physics to curves of time and energy over the power cap, all loads of a board at once.

Three parameters are common to the board (the ridge, the voltage below it, idle power with clocks
up) and five belong to each load (:class:`Profile`). The method is nonlinear least squares (scipy)
with a normal prior on each load's parameters. They are fitted as logarithms and logits, so that
none can leave its range.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from scipy.optimize import least_squares

from joulewise.simulate.model import Board
from joulewise.simulate.recorded_workload import COMPUTE, STALL
from joulewise.simulate.workloads import Profile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Predict = Callable[[Board, Profile], tuple[Array, Array]]
    Also = Callable[[Array, Array], Array]

# The number of parameters of a board and of a load.
SHARED: Final = 3
OWN: Final = 5
# Chosen: the ranges in which the ridge (relative to the highest clock) and the voltage below it
# (relative to that at the highest clock) are searched. The V100's ridge ends near the lower bound.
RIDGE: Final = (0.2, 0.9)
FLOOR_V: Final = (0.4, 0.98)
TYPICAL: Final = Profile(step_s=1.0, stall=0.1, compute=0.6, core_w=190.0, fixed_w=28.0)
"""Chosen: where every search starts; ``step_s`` comes from the curve."""
LOOSE_SIGMAS: Final = (0.5, 1.5, 1.5, 0.3, 0.5)
"""Chosen: the prior's standard deviations around ``TYPICAL``, of the logarithms and logits of a
load's five parameters. Doubled, the prior has a quarter of its weight."""
LEAST_SIGMAS: Final = (0.02, 0.2, 0.2, 0.1, 0.1)
"""Chosen: the least standard deviations between the loads of one board, in the same."""

# Numerical settings of the fit, chosen: the step of finite differences, the most evaluations, and
# the relative change of the cost at which it ends. With a larger one, it ends earlier.
_DIFFERENCE: Final = 1e-6
_MAX_EVALUATIONS: Final = 150
_TOLERANCE: Final = 1e-5


@dataclass(frozen=True)
class Curves:
    """The curves to fit: rows are loads, columns caps; NaN where nothing was measured.

    ``noise`` is the expected relative error. ``clocks_up_w`` is the range of idle power with clocks
    up. ``predict`` returns time and energy at all caps (the last axis), ``also`` further residuals
    from both. A curve's time is that of ``steps`` steps.
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
    """The normal prior of the loads' parameters (logarithms and logits): mean and whitening."""

    centre: Array
    whiten: Array


@dataclass(frozen=True)
class WorkloadFit:
    """A fitted board and its loads; ``own`` and ``shared`` are the parameters as fitted."""

    board: Board
    profiles: tuple[Profile, ...]
    time_s: Array
    energy_j: Array
    cost: float
    own: Array
    shared: Array


def start_at(curves: Curves) -> tuple[Array, Prior]:
    """Where to start, and the prior: the typical load, as long as each curve's shortest time."""
    own = np.tile(_parameters(TYPICAL), (len(curves.time_s), 1))
    own[:, 0] = np.log(0.97 * np.nanmin(curves.time_s, axis=1) / curves.steps)
    return own, Prior(own, np.diag(1 / np.asarray(LOOSE_SIGMAS)))


def pooled_prior(first: WorkloadFit, prior: Prior) -> Prior:
    """A prior from a first fit of all loads: the loads of a board resemble each other.

    A load with few rows then falls back on the others. Times do not resemble each other.
    """
    centre = np.broadcast_to(np.median(first.own, axis=0), first.own.shape).copy()
    centre[:, 0] = prior.centre[:, 0]
    spread = np.cov((first.own - centre).T) + np.diag(np.square(LEAST_SIGMAS))
    return Prior(centre, np.linalg.cholesky(np.linalg.inv(spread)).T)


def fit(
    curves: Curves, own: Array, prior: Prior, ridge: float = 0.45, floor_v: float = 0.7
) -> WorkloadFit:
    """The least-squares fit of the board and its loads, from one start."""
    loads = len(own)
    up_w = sum(curves.clocks_up_w) / 2
    shared = [_logit(ridge, RIDGE), _logit(floor_v, FLOOR_V), _logit(up_w, curves.clocks_up_w)]

    def residuals(x: Array) -> Array:
        return _residuals(curves, prior, *_split(x[None], loads))[:, 0].ravel()

    def jacobian(x: Array) -> Array:
        """By finite differences: nine evaluations do, since no load depends on another's."""
        trials = np.repeat(x[None], 1 + SHARED + OWN, axis=0)
        for i in range(SHARED):
            trials[1 + i, i] += _DIFFERENCE
        for i in range(OWN):
            trials[1 + SHARED + i, SHARED + i :: OWN] += _DIFFERENCE
        values = _residuals(curves, prior, *_split(trials, loads))
        slopes = (values[:, 1:] - values[:, :1]) / _DIFFERENCE
        out = np.zeros((loads, values.shape[2], x.size))
        out[:, :, :SHARED] = slopes[:, :SHARED].transpose(0, 2, 1)
        for load in range(loads):
            first = SHARED + OWN * load
            out[load, :, first : first + OWN] = slopes[load, SHARED:].T
        return out.reshape(-1, x.size)

    solution = least_squares(
        residuals,
        np.concatenate([shared, own.ravel()]),
        jac=cast("Any", jacobian),
        x_scale="jac",
        max_nfev=_MAX_EVALUATIONS,
        ftol=_TOLERANCE,
    )
    return _result(curves, solution.x, loads, float(solution.cost))


def fit_own(curves: Curves, own: Array, prior: Prior, shared: Array) -> WorkloadFit:
    """The least-squares fit of the loads on a board that stays as it is."""

    def with_board(x: Array) -> Array:
        return np.concatenate([shared, x])

    def residuals(x: Array) -> Array:
        return _residuals(curves, prior, *_split(with_board(x)[None], len(own)))[:, 0].ravel()

    solution = least_squares(
        residuals, own.ravel(), x_scale="jac", max_nfev=_MAX_EVALUATIONS, ftol=_TOLERANCE
    )
    return _result(curves, with_board(solution.x), len(own), float(solution.cost))


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
    """An array (loads, trials, residuals)."""
    time_s, energy_j = curves.predict(*_unpack(curves, shared, own))
    parts = [
        _log_errors(time_s, curves.time_s) / curves.noise,
        _log_errors(energy_j, curves.energy_j) / curves.noise,
        (own - prior.centre[:, None]) @ prior.whiten.T,
    ]
    if curves.also is not None:
        parts.append(curves.also(time_s, energy_j))
    return np.concatenate(parts, axis=-1)


def _log_errors(predicted: Array, measured: Array) -> Array:
    known = np.isfinite(measured)
    return np.where(
        known[:, None], np.log(predicted / np.where(known, measured, 1.0)[:, None]), 0.0
    )


def _split(x: Array, loads: int) -> tuple[Array, Array]:
    """(trials, parameters) as shared (trials, 3) and own (loads, trials, 5)."""
    own = x[:, SHARED:].reshape(len(x), loads, OWN)
    return x[:, :SHARED], own.transpose(1, 0, 2)


def _unpack(curves: Curves, shared: Array, own: Array) -> tuple[Board, Profile]:
    """A board and a load whose figures are arrays, with a last axis of length 1 for the caps."""
    board = curves.board
    ridge, floor_v, up_w = (
        _within(shared[..., i, None], limits)
        for i, limits in enumerate((RIDGE, FLOOR_V, curves.clocks_up_w))
    )
    clocks = replace(
        board.clocks, ridge_mhz=_as(ridge * board.clocks.sm_max_mhz), floor_v=_as(floor_v)
    )
    idle = replace(board.idle, clocks_up_w=_as(up_w))
    return replace(board, clocks=clocks, idle=idle), _profile(own)


def _profile(own: Array) -> Profile:
    return Profile(
        step_s=_as(np.exp(own[..., 0, None])),
        stall=_as(_within(own[..., 1, None], STALL)),
        compute=_as(_within(own[..., 2, None], COMPUTE)),
        core_w=_as(np.exp(own[..., 3, None])),
        fixed_w=_as(np.exp(own[..., 4, None])),
    )


def _parameters(profile: Profile) -> Array:
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
    """An array where a data class declares a float: the physics accepts both."""
    return cast("float", value)
