"""Worlds that may be, drawn ever closer to those that explain the runs.

Each weighs by how well it explains them, over how densely worlds were drawn where it is (the
balance heuristic of importance sampling), so that it does not matter where they were drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.search.adaptive_curves import DIMENSIONS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Whole = NDArray[np.int64]

_ENOUGH: Final = 30.0  # worlds that weigh, for the next ones to be drawn around them


@dataclass(frozen=True)
class Worlds:
    """Points, their curves, how they fit the runs, and how many were drawn where they are.

    ``fits`` are of time and of power, a row for each kind of departure and noise; ``fit`` is of
    both, by whatever kind.
    """

    points: Array
    time: Array
    power: Array
    fits: tuple[Array, Array]
    fit: Array
    per_prior: Array

    @classmethod
    def of(
        cls, points: Array, curves: tuple[Array, Array], fits: tuple[Array, Array], per_prior: Array
    ) -> Worlds:
        return cls(points, *curves, fits, _total(fits[0]) + _total(fits[1]), per_prior)

    @property
    def _weights(self) -> Array:
        return self.fit - self.per_prior

    def pick(self, shares: Array) -> Whole:
        heaped = np.cumsum(_normal(self._weights))
        return np.minimum(np.searchsorted(heaped, shares), len(heaped) - 1)

    def around(self, count: int) -> Around:
        """Where the weight is; flattened as long as that is on too few of them."""
        cold = self._weights
        heat, weights = 1.0, _normal(cold)
        while 1 / (weights**2).sum() < _ENOUGH and heat > 0.01:
            heat *= 0.8
            weights = _normal(heat * cold)
        middle = weights @ self.points
        off = self.points - middle
        shape = (weights[:, None] * off).T @ off + 0.01 * np.eye(DIMENSIONS)
        return Around(count, middle, np.linalg.cholesky(shape))

    def met_by(self, around: Around) -> Worlds:
        per_prior = np.logaddexp(self.per_prior, around.per_prior(self.points))
        return replace(self, per_prior=per_prior)

    def and_also(self, more: Worlds) -> Worlds:
        return Worlds(
            np.concatenate([self.points, more.points]),
            np.concatenate([self.time, more.time]),
            np.concatenate([self.power, more.power]),
            (
                np.concatenate([self.fits[0], more.fits[0]], axis=1),
                np.concatenate([self.fits[1], more.fits[1]], axis=1),
            ),
            np.concatenate([self.fit, more.fit]),
            np.concatenate([self.per_prior, more.per_prior]),
        )


@dataclass(frozen=True)
class Around:
    """A Gaussian from which more worlds are drawn."""

    count: int
    middle: Array
    root: Array

    def draw(self, rng: np.random.Generator) -> Array:
        return np.asarray(self.middle + rng.standard_normal((self.count, DIMENSIONS)) @ self.root.T)

    def per_prior(self, points: Array) -> Array:
        """Logarithm of how many of its worlds there are at the points, over the prior's density."""
        off = np.linalg.solve(self.root, (points - self.middle).T)
        scale = np.log(self.count) - np.log(np.diag(self.root)).sum()
        return np.asarray(scale - 0.5 * (off**2).sum(axis=0) + 0.5 * (points**2).sum(axis=1))


def _normal(logarithms: Array) -> Array:
    weights = np.exp(logarithms - logarithms.max())
    return np.asarray(weights / weights.sum())


def _total(fits: Array) -> Array:
    most = fits.max(axis=0)
    return np.asarray(most + np.log(np.exp(fits - most).sum(axis=0)))
