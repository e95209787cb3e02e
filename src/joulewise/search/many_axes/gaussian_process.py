"""What all runs and looks together say about time and power at every setting.

The logarithm of either is a smooth surface over the axes (a Gaussian process), plus what a run is
off by: its board, its block (drift), its own noise, and of a look a level, since it has the cost
of a step and not of a run, much the same for all commands. Where there are limits and clocks, both
are one axis, the clock that comes of them. How smooth, how noisy, which clock: whatever makes the
runs most likely, held near what is usual.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

from joulewise.search.many_axes.grid import Clock
from joulewise.search.one_axis.posterior import Draws

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

DRAWS: Final = 200
_LEVEL: Final = 1.0
_BOARD: Final = 0.05
_LOOK: Final = 0.3  # by how much runs are longer than their steps
_LOOK_OF_WORK: Final = 0.01  # and how much that differs from one command to the next
_USUAL: Final = {
    "length": (0.7, 0.7),
    "alone": (0.3, 0.7),
    "together": (0.05, 0.7),
    "noise": (0.006, 0.8),
    "block": (0.002, 0.8),
    "beside": (0.005, 0.8),
}
"""The median of each, and the spread of its logarithm."""
_BESIDE: Final = 0.5  # of an axis, over which a departure from the clock stays alike
_AGAIN: Final = 2  # times that the clock is found once the shapes are, and these anew
_NEAR: Final = 1e-5  # of what is likely: a nearer end of the fit tells no more
_ROUNDING: Final = 1e-8


class Observation(NamedTuple):
    """A run or a look: where it was, and the logarithms of its time and power.

    The time of a look is that of as many such steps as the whole run has.
    """

    at: int
    work: int
    block: int
    board: str
    is_look: bool
    time: float
    power: float


@dataclass(frozen=True)
class GaussianProcessPosterior:
    """Of time and power, after some runs; ``where`` has the coordinates of all points."""

    time: GaussianProcess
    power: GaussianProcess
    where: Array

    @classmethod
    def after(
        cls,
        seen: Sequence[Observation],
        where: Array,
        columns: Sequence[int],
        clock: Clock | None = None,
    ) -> GaussianProcessPosterior:
        """``where`` has the coordinates of all points, each of the axis that ``columns`` names.

        With a ``clock`` there are others instead.
        """
        at, effects = [it.at for it in seen], _effects(seen)
        both = np.array([(it.time, it.power) for it in seen]).T

        def fitted(
            where: Array, columns: Sequence[int], like: GaussianProcessPosterior | None = None
        ) -> GaussianProcessPosterior:
            there, axes = where[at], np.array(columns)
            starts = (like.time.shape, like.power.shape) if like else (None, None)
            beside = 2 if clock else 0
            time, power = (
                _fit(there, axes, effects, values, start, beside=beside)
                for values, start in zip(both, starts, strict=True)
            )
            return cls(time, power, where)

        if clock is None:
            return fitted(where, columns)
        found = fitted(clock.coordinates(clock.usual[0]), clock.columns)
        for _ in range(_AGAIN):
            traits = _traits(clock, at, effects, (found.time, found.power), both)
            found = fitted(clock.coordinates(traits), clock.columns, found)
        return found

    def draws(self, where: Array, seed: int) -> Draws:
        """What may be true at points with these coordinates."""
        rng = np.random.default_rng(seed)
        return Draws(
            self.time.draws(where, rng),
            self.power.draws(where, rng),
            np.full(DRAWS, self.time.noise),
            np.full(DRAWS, self.power.noise),
        )


@dataclass(frozen=True)
class GaussianProcess:
    """A Gaussian process after its runs."""

    at: Array
    columns: NDArray[np.int64]
    shape: _Hyperparameters
    level: float
    lower: Array
    weights: Array

    @property
    def noise(self) -> float:
        return self.shape.noise

    def mean(self, at: Array) -> Array:
        return np.asarray(self.level + self._alike(at, self.at) @ self.weights)

    def draws(self, at: Array, rng: np.random.Generator) -> Array:
        across = solve_triangular(self.lower, self._alike(at, self.at).T, lower=True)
        left = self._alike(at, at) - across.T @ across
        root = cholesky(left + _ROUNDING * np.eye(len(at)), lower=True)
        return np.asarray(self.mean(at) + rng.standard_normal((DRAWS, len(at))) @ root.T)

    def _alike(self, one: Array, other: Array) -> Array:
        return _LEVEL**2 + self.shape.alike(_apart(one, other, self.columns))


@dataclass(frozen=True)
class _Hyperparameters:
    """How a surface varies: along each axis by itself, and by what axes do together.

    Axes that have no length are those of limit and lock: what these do beside the clock, which is
    the first, is little.
    """

    length: Array
    alone: float
    together: float
    noise: float
    block: float
    beside: float

    @classmethod
    def of(cls, logs: Array) -> _Hyperparameters:
        *length, alone, together, noise, block, beside = np.exp(logs).tolist()
        return cls(np.array(length), alone, together, noise, block, beside)

    @property
    def logs(self) -> Array:
        rest = self.alone, self.together, self.noise, self.block, self.beside
        return np.log([*self.length, *rest])

    def alike(self, apart: Array) -> Array:
        axes = len(self.length)
        scaled = apart[:axes] / self.length[:, None, None] ** 2
        alone = sum(_smooth(each) for each in scaled)
        alike = self.alone**2 * alone + self.together**2 * _smooth(scaled.sum(axis=0))
        if len(apart) > axes:
            alike = alike + self.beside**2 * _smooth(apart[1:].sum(axis=0) / _BESIDE**2)
        return np.asarray(alike)


class _Effects(NamedTuple):
    """What runs have in common, each pair: fixed in size, and of one block."""

    fixed: Array
    block: Array


def _effects(seen: Sequence[Observation]) -> _Effects:
    def same(keys: Sequence[object]) -> Array:
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        of = np.array([numbers[key] for key in keys])
        return np.asarray(of[:, None] == of, dtype=float)

    looks = np.array([it.is_look for it in seen], dtype=float)
    both = np.outer(looks, looks)
    works = same([it.work for it in seen])
    boards = same([it.board for it in seen])
    fixed = _LEVEL**2 + _BOARD**2 * boards + both * (_LOOK**2 + _LOOK_OF_WORK**2 * works)
    return _Effects(fixed, same([(it.block, it.board) for it in seen]))


def _fit(
    at: Array,
    columns: NDArray[np.int64],
    effects: _Effects,
    values: Array,
    start: _Hyperparameters | None = None,
    *,
    beside: int = 0,
) -> GaussianProcess:
    """``beside`` is how many of the axes, the last, are those of limit and lock."""
    off, apart = values - values.mean(), _apart(at, at, columns)
    lengths = ["length"] * (len(apart) - beside)
    names = (*lengths, "alone", "together", "noise", "block", "beside")
    middle = np.log([_USUAL[name][0] for name in names])
    spread = np.array([_USUAL[name][1] for name in names])

    def misfit(logs: Array) -> float:
        return _unlikely(_Hyperparameters.of(logs), apart, effects, off) + _odd(
            logs, middle, spread
        )

    shape = _Hyperparameters.of(_least(misfit, start.logs if start else middle, middle, spread))
    level = float(values.mean())
    return GaussianProcess(at, columns, shape, level, *_solved(shape, apart, effects, off))


def _traits(
    clock: Clock, at: Sequence[int], effects: _Effects, fits: Sequence[GaussianProcess], both: Array
) -> Array:
    """Those that make the runs most likely, as far as the surfaces are known."""

    def misfit(traits: Array) -> float:
        there = clock.coordinates(traits)[at]
        apart = _apart(there, there, fits[0].columns)
        runs = (
            _unlikely(fit.shape, apart, effects, values - fit.level)
            for fit, values in zip(fits, both, strict=True)
        )
        return sum(runs) + _odd(traits, *clock.usual)

    return _least(misfit, clock.usual[0], *clock.usual)


def _least(misfit: Callable[[Array], float], start: Array, middle: Array, spread: Array) -> Array:
    bounds = list(zip(middle - 3 * spread, middle + 3 * spread, strict=True))
    return np.asarray(minimize(misfit, start, method="L-BFGS-B", bounds=bounds, tol=_NEAR).x)


def _odd(traits: Array, middle: Array, spread: Array) -> float:
    return float(0.5 * (((traits - middle) / spread) ** 2).sum())


def _unlikely(shape: _Hyperparameters, apart: Array, effects: _Effects, off: Array) -> float:
    lower, weights = _solved(shape, apart, effects, off)
    return float(0.5 * off @ weights + np.log(np.diag(lower)).sum())


def _solved(
    shape: _Hyperparameters, apart: Array, effects: _Effects, off: Array
) -> tuple[Array, Array]:
    common = effects.fixed + shape.block**2 * effects.block
    runs = shape.alike(apart) + common + (shape.noise**2 + _ROUNDING) * np.eye(len(off))
    lower = cholesky(runs, lower=True, check_finite=False)
    return lower, cho_solve((lower, True), off, check_finite=False)


def _apart(one: Array, other: Array, columns: NDArray[np.int64]) -> Array:
    """How far apart they are along each axis, squared."""
    squared = (one[:, None] - other) ** 2
    return np.stack([squared[:, :, columns == axis].sum(axis=2) for axis in np.unique(columns)])


def _smooth(apart: Array) -> Array:
    """Matérn's 5/2."""
    far = np.sqrt(5.0 * apart)
    return np.asarray((1 + far + far**2 / 3) * np.exp(-far))
