"""The posterior of time and power over several axes: Gaussian-process regression.

The logarithm of either is a smooth surface over the axes, plus effects that runs share: the level
of a board, the drift of a block, and of probes a level, since they measure steps and not whole
runs. Along each axis alone and along all together the kernel is Matérn's 5/2 (an additive kernel,
Duvenaud et al., 2011). Hyperparameters, and the parameters of the clock model where there is one,
maximise the posterior density (MAP; Rasmussen and Williams, "Gaussian Processes for Machine
Learning", chapter 5).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

from joulewise.search.many_axes.grid import ClockModel
from joulewise.search.objective import PosteriorSamples

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

SAMPLES: Final = 200  # of the posterior: a probability is then known to 1.5 % at 95 %
# Standard deviations of the shared effects, as shares.
_LEVEL: Final = 1.0  # of the level of all runs: the runs alone determine it
_BOARD: Final = 0.05  # between boards of one kind
_PROBE: Final = 0.3  # by how much runs are longer than their steps
_PROBE_OF_VARIANT: Final = 0.01  # and how much that differs from one command to the next
# Prior median of each hyperparameter, and standard deviation of its logarithm. Chosen: 0.7 is a
# factor of two either way. Lengths are over that of an axis, all others shares.
_PRIORS: Final = {
    "length": (0.7, 0.7),
    "alone": (0.3, 0.7),  # amplitude along each axis alone
    "together": (0.05, 0.7),  # amplitude of what axes do together
    "noise": (0.006, 0.8),  # of a run
    "block": (0.002, 0.8),  # drift from block to block
    "residual": (0.005, 0.8),  # amplitude of the departure from the clock model
}
_RESIDUAL_LENGTH: Final = 0.5  # of that departure, over the length of an axis
_CLOCK_ROUNDS: Final = 2  # of fitting the clock model and the hyperparameters in turn
_PRECISION: Final = 1e-5  # of the log density, at which a fit ends: runs say no more
_JITTER: Final = 1e-8  # added to a covariance, so that rounding leaves it positive definite
_BOUND_SIGMAS: Final = 3  # prior standard deviations within which a fit stays


class Observation(NamedTuple):
    """A run or a probe: the index of its point, and the logarithms of its time and power.

    The time of a probe is that of as many such steps as the whole run of its variant has.
    """

    at: int
    variant: int
    block: int
    board: str
    is_probe: bool
    log_time: float
    log_power: float


@dataclass(frozen=True)
class GaussianProcessPosterior:
    """Surfaces of time and power given some runs; ``coordinates`` are those of all points."""

    time: GaussianProcess
    power: GaussianProcess
    coordinates: Array

    @classmethod
    def fit(
        cls,
        runs: Sequence[Observation],
        coordinates: Array,
        columns: Sequence[int],
        clock: ClockModel | None = None,
    ) -> GaussianProcessPosterior:
        """Fit both surfaces; ``columns`` names the axis of each coordinate.

        With a ``clock`` model, its coordinates are used instead.
        """
        at, effects = [run.at for run in runs], _SharedEffects.of(runs)
        values = np.array([(run.log_time, run.log_power) for run in runs]).T

        def fit_both(
            coordinates: Array,
            columns: Sequence[int],
            start: GaussianProcessPosterior | None = None,
        ) -> GaussianProcessPosterior:
            inputs, axes = coordinates[at], np.array(columns)
            starts = (start.time, start.power) if start else (None, None)
            residual_axes = 2 if clock else 0
            time, power = (
                _fit(inputs, axes, effects, one, start=like, residual_axes=residual_axes)
                for one, like in zip(values, starts, strict=True)
            )
            return cls(time, power, coordinates)

        if clock is None:
            return fit_both(coordinates, columns)
        fitted = fit_both(clock.coordinates(clock.prior[0]), clock.columns)
        for _ in range(_CLOCK_ROUNDS):
            parameters = _fit_clock(clock, at, effects, (fitted.time, fitted.power), values)
            fitted = fit_both(clock.coordinates(parameters), clock.columns, fitted)
        return fitted

    def sample(self, coordinates: Array, seed: int) -> PosteriorSamples:
        """Samples of both surfaces at points with these coordinates."""
        rng = np.random.default_rng(seed)
        return PosteriorSamples(
            self.time.sample(coordinates, rng),
            self.power.sample(coordinates, rng),
            np.full(SAMPLES, self.time.hyperparameters.noise),
            np.full(SAMPLES, self.power.hyperparameters.noise),
        )


@dataclass(frozen=True)
class GaussianProcess:
    """A fitted surface: the inputs of its runs, and what predictions need of them."""

    inputs: Array
    columns: NDArray[np.int64]
    hyperparameters: _Hyperparameters
    level: float
    lower: Array
    weights: Array

    def mean(self, at: Array) -> Array:
        return np.asarray(self.level + self._covariance(at, self.inputs) @ self.weights)

    def sample(self, at: Array, rng: np.random.Generator) -> Array:
        explained = solve_triangular(self.lower, self._covariance(at, self.inputs).T, lower=True)
        covariance = self._covariance(at, at) - explained.T @ explained
        root = cholesky(covariance + _JITTER * np.eye(len(at)), lower=True)
        return np.asarray(self.mean(at) + rng.standard_normal((SAMPLES, len(at))) @ root.T)

    def _covariance(self, one: Array, other: Array) -> Array:
        return _LEVEL**2 + self.hyperparameters.kernel(squared_distances(one, other, self.columns))


@dataclass(frozen=True)
class _Hyperparameters:
    """How a surface varies along each axis alone, and by what axes do together.

    Axes beyond the lengths are those of limit and lock beside the clock model.
    """

    length: Array
    alone: float
    together: float
    noise: float
    block: float
    residual: float

    @classmethod
    def of(cls, logs: Array) -> _Hyperparameters:
        *length, alone, together, noise, block, residual = np.exp(logs).tolist()
        return cls(np.array(length), alone, together, noise, block, residual)

    @property
    def logs(self) -> Array:
        rest = self.alone, self.together, self.noise, self.block, self.residual
        return np.log([*self.length, *rest])

    def kernel(self, squared: Array) -> Array:
        """Covariance by the squared distances along each axis."""
        axes = len(self.length)
        scaled = squared[:axes] / self.length[:, None, None] ** 2
        alone = sum(matern52(distances) for distances in scaled)
        covariance = self.alone**2 * alone + self.together**2 * matern52(scaled.sum(axis=0))
        if len(squared) > axes:
            beside = matern52(squared[1:].sum(axis=0) / _RESIDUAL_LENGTH**2)
            covariance = covariance + self.residual**2 * beside
        return np.asarray(covariance)


class _SharedEffects(NamedTuple):
    """Covariance of each pair of runs by what they share, of known size; and whether one block."""

    fixed: Array
    block: Array

    @classmethod
    def of(cls, runs: Sequence[Observation]) -> _SharedEffects:
        def same(keys: Sequence[object]) -> Array:
            numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
            column = np.array([numbers[key] for key in keys])
            return np.asarray(column[:, None] == column, dtype=float)

        probes = np.array([run.is_probe for run in runs], dtype=float)
        both = np.outer(probes, probes)
        variants = same([run.variant for run in runs])
        boards = same([run.board for run in runs])
        probe = both * (_PROBE**2 + _PROBE_OF_VARIANT**2 * variants)
        fixed = _LEVEL**2 + _BOARD**2 * boards + probe
        return cls(fixed, same([(run.block, run.board) for run in runs]))


def _fit(
    inputs: Array,
    columns: NDArray[np.int64],
    effects: _SharedEffects,
    values: Array,
    *,
    start: GaussianProcess | None,
    residual_axes: int,
) -> GaussianProcess:
    """Fit a surface, from ``start`` if given; the last ``residual_axes`` are limit and lock."""
    level = float(values.mean())
    residuals, squared = values - values.mean(), squared_distances(inputs, inputs, columns)
    lengths = ["length"] * (len(squared) - residual_axes)
    names = (*lengths, "alone", "together", "noise", "block", "residual")
    mean = np.log([_PRIORS[name][0] for name in names])
    spread = np.array([_PRIORS[name][1] for name in names])

    def loss(logs: Array) -> float:
        likelihood = negative_log_likelihood(_Hyperparameters.of(logs), squared, effects, residuals)
        return likelihood + negative_log_prior(logs, mean, spread)

    first = start.hyperparameters.logs if start else mean
    fitted = _Hyperparameters.of(_minimise(loss, first, mean, spread))
    solution = _solve(fitted, squared, effects, residuals)
    return GaussianProcess(inputs, columns, fitted, level, *solution)


def _fit_clock(
    clock: ClockModel,
    at: Sequence[int],
    effects: _SharedEffects,
    surfaces: Sequence[GaussianProcess],
    values: Array,
) -> Array:
    """The parameters of the clock model that fit the runs best, for given hyperparameters."""

    def loss(parameters: Array) -> float:
        inputs = clock.coordinates(parameters)[at]
        squared = squared_distances(inputs, inputs, surfaces[0].columns)
        likelihoods = (
            negative_log_likelihood(one.hyperparameters, squared, effects, its - one.level)
            for one, its in zip(surfaces, values, strict=True)
        )
        return sum(likelihoods) + negative_log_prior(parameters, *clock.prior)

    return _minimise(loss, clock.prior[0], *clock.prior)


def _minimise(loss: Callable[[Array], float], start: Array, mean: Array, spread: Array) -> Array:
    low, high = mean - _BOUND_SIGMAS * spread, mean + _BOUND_SIGMAS * spread
    bounds = list(zip(low, high, strict=True))
    return np.asarray(minimize(loss, start, method="L-BFGS-B", bounds=bounds, tol=_PRECISION).x)


def negative_log_prior(parameters: Array, mean: Array, spread: Array) -> float:
    return float(0.5 * (((parameters - mean) / spread) ** 2).sum())


def negative_log_likelihood(
    hyperparameters: _Hyperparameters, squared: Array, effects: _SharedEffects, residuals: Array
) -> float:
    lower, weights = _solve(hyperparameters, squared, effects, residuals)
    return float(0.5 * residuals @ weights + np.log(np.diag(lower)).sum())


def _solve(
    hyperparameters: _Hyperparameters, squared: Array, effects: _SharedEffects, residuals: Array
) -> tuple[Array, Array]:
    """Cholesky factor of the runs' covariance, and its inverse times the residuals."""
    shared = effects.fixed + hyperparameters.block**2 * effects.block
    noise = (hyperparameters.noise**2 + _JITTER) * np.eye(len(residuals))
    covariance = hyperparameters.kernel(squared) + shared + noise
    lower = cholesky(covariance, lower=True, check_finite=False)
    return lower, cho_solve((lower, True), residuals, check_finite=False)


def squared_distances(one: Array, other: Array, columns: NDArray[np.int64]) -> Array:
    """Squared distance of each pair of points along each axis."""
    squared = (one[:, None] - other) ** 2
    return np.stack([squared[:, :, columns == axis].sum(axis=2) for axis in np.unique(columns)])


def matern52(squared: Array) -> Array:
    """Matérn's kernel of smoothness 5/2, by squared distances."""
    scaled = np.sqrt(5.0 * squared)
    return np.asarray((1 + scaled + scaled**2 / 3) * np.exp(-scaled))
