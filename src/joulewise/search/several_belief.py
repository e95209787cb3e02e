"""What all runs and looks together say about time and power at every setting.

The logarithm of either is a smooth surface over the axes (a Gaussian process), plus what a run is
off by: its board, its block (drift), its own noise, and of a look a level, since it has the cost
of a step and not of a run, much the same for all commands. How smooth, how noisy: whatever makes
the runs most likely, held near what is usual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

from joulewise.search.adaptive_belief import Draws

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
}
"""The median of each, and the spread of its logarithm."""
_ROUNDING: Final = 1e-8


class Seen(NamedTuple):
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
class Belief:
    """Of time and power, after some runs."""

    time: Surface
    power: Surface

    @classmethod
    def after(cls, seen: Sequence[Seen], where: Array, columns: Sequence[int]) -> Belief:
        """``where`` has the coordinates of all points, each of the axis that ``columns`` names."""
        at, effects = where[[it.at for it in seen]], _effects(seen)
        values = np.array([(it.time, it.power) for it in seen]).T
        return cls(*(_fit(at, np.array(columns), effects, each) for each in values))

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
class Surface:
    """A Gaussian process after its runs."""

    at: Array
    columns: NDArray[np.int64]
    shape: _Shape
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
class _Shape:
    """How a surface varies: along each axis by itself, and by what axes do together."""

    length: Array
    alone: float
    together: float
    noise: float
    block: float

    @classmethod
    def of(cls, logs: Array) -> _Shape:
        *length, alone, together, noise, block = np.exp(logs)
        return cls(np.array(length), float(alone), float(together), float(noise), float(block))

    def alike(self, apart: Array) -> Array:
        scaled = apart / self.length[:, None, None] ** 2
        alone = sum(_smooth(each) for each in scaled)
        return np.asarray(self.alone**2 * alone + self.together**2 * _smooth(scaled.sum(axis=0)))


class _Effects(NamedTuple):
    """What runs have in common, each pair: fixed in size, and of one block."""

    fixed: Array
    block: Array


def _effects(seen: Sequence[Seen]) -> _Effects:
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


def _fit(at: Array, columns: NDArray[np.int64], effects: _Effects, values: Array) -> Surface:
    level, apart = float(values.mean()), _apart(at, at, columns)
    names = (*["length"] * len(apart), "alone", "together", "noise", "block")
    middle = np.log([_USUAL[name][0] for name in names])
    spread = np.array([_USUAL[name][1] for name in names])
    eye = np.eye(len(at))

    def solved(shape: _Shape) -> tuple[Array, Array]:
        common = effects.fixed + shape.block**2 * effects.block
        runs = shape.alike(apart) + common + (shape.noise**2 + _ROUNDING) * eye
        lower = cholesky(runs, lower=True, check_finite=False)
        return lower, cho_solve((lower, True), values - level, check_finite=False)

    def misfit(logs: Array) -> float:
        lower, weights = solved(_Shape.of(logs))
        unlikely = 0.5 * (values - level) @ weights + np.log(np.diag(lower)).sum()
        return float(unlikely + 0.5 * (((logs - middle) / spread) ** 2).sum())

    bounds = list(zip(middle - 3 * spread, middle + 3 * spread, strict=True))
    shape = _Shape.of(minimize(misfit, middle, method="L-BFGS-B", bounds=bounds).x)
    return Surface(at, columns, shape, level, *solved(shape))


def _apart(one: Array, other: Array, columns: NDArray[np.int64]) -> Array:
    """How far apart they are along each axis, squared."""
    squared = (one[:, None] - other) ** 2
    return np.stack([squared[:, :, columns == axis].sum(axis=2) for axis in np.unique(columns)])


def _smooth(apart: Array) -> Array:
    """Matérn's 5/2."""
    far = np.sqrt(5.0 * apart)
    return np.asarray((1 + far + far**2 / 3) * np.exp(-far))
