"""What the runs so far say about time and power at every setting, as draws from what may be true.

Logarithms of time and of power are each a curve of physics, plus a smooth departure from it, plus
the noise of a run, plus a level. Which curve, how large departure and noise are: all of it is
weighed by how well it explains the runs (importance sampling, drawn ever closer to what explains
them); level and departure are Gaussian, and drawn exactly (Matheron's rule).

Worlds that may be, drawn ever closer to those that explain the runs.

Each weighs by how well it explains them, over how densely worlds were drawn where it is (the
balance heuristic of importance sampling), so that it does not matter where they were drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from joulewise.search.one_axis.physics_prior import DIMENSIONS, curves, spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Whole = NDArray[np.int64]

_ENOUGH: Final = 30.0  # worlds that weigh, for the next ones to be drawn around them


@dataclass(frozen=True)
class Particles:
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
    ) -> Particles:
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

    def met_by(self, around: Around) -> Particles:
        per_prior = np.logaddexp(self.per_prior, around.per_prior(self.points))
        return replace(self, per_prior=per_prior)

    def and_also(self, more: Particles) -> Particles:
        return Particles(
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


DRAWS: Final = 400
_FIRST: Final = 1024
_MORE: Final = (512, 512)

_NOISE: Final = np.array([0.002, 0.004, 0.007, 0.01, 0.014, 0.02, 0.03, 0.045, 0.07])
_NOISE_USUAL: Final = 0.01
_DEPARTURE: Final = np.array([0.002, 0.006, 0.02])
_SMOOTH: Final = 0.2  # over how much of a logarithm of the setting a departure stays alike
_LEVEL: Final = 0.5
_BOARD: Final = 0.03  # by how much boards of one kind differ
_FREE: Final = 1.02  # where a clock that is left alone is put among those that are locked
_JITTER: Final = 1e-9


class Observations(NamedTuple):
    """Runs: where each was (an index), on which board (a number), logarithms of time and power."""

    at: Whole
    board: Whole
    time: Array
    power: Array


@dataclass(frozen=True)
class Draws:
    """Rows are worlds that may be, columns settings; logarithms of s and W, noise of each world."""

    time: Array
    power: Array
    time_noise: Array
    power_noise: Array


@dataclass(frozen=True)
class ParticlePosterior:
    """``where`` has the settings relative to the reference, which is number ``reference``."""

    axis: str
    where: tuple[float, ...]
    reference: int
    seed: int = 0

    def after(self, seen: Observations) -> Draws:
        rng = np.random.default_rng((self.seed, 1))
        explained = _Explained.by(self._departures, seen)
        middles = seen.time.mean(), seen.power.mean()
        worlds = self._worlds(seen, explained, middles)
        picked = worlds.pick((np.arange(DRAWS) + rng.random()) / DRAWS)
        columns = (worlds.time, seen.time), (worlds.power, seen.power)
        both = zip(columns, middles, worlds.fits, self._wander, strict=True)
        found = []
        for (bank, values), middle, fits, wander in both:
            kind = _drawn(fits[:, picked], rng)
            drawn = explained.draw(bank[picked], values - middle, kind, wander, rng)
            found.append((middle + drawn, np.tile(_NOISE, len(_DEPARTURE))[kind]))
        (time, time_noise), (power, power_noise) = found
        return Draws(time, power, time_noise, power_noise)

    @cached_property
    def _departures(self) -> Array:
        """How alike the departures at two settings are, for an amplitude of 1.

        They are larger and change faster far below the reference, where boards meet their floors.
        """
        far = np.log(np.where(np.isinf(self.where), _FREE, self.where))
        apart = np.sqrt(5) * np.abs(far[:, None] - far) / _SMOOTH
        size = 0.5 + 1.5 * np.abs(far)
        return np.asarray((1 + apart + apart**2 / 3) * np.exp(-apart) * size[:, None] * size)

    @cached_property
    def _wander(self) -> Array:
        """Departures of time and of power before any run, of an amplitude of 1."""
        shape = 2, DRAWS, len(self.where)
        noise = np.random.default_rng((self.seed, 2)).standard_normal(shape)
        root = np.linalg.cholesky(self._departures + _JITTER * np.eye(len(self.where)))
        return np.asarray(noise @ root.T)

    def _curves(self, points: Array) -> tuple[Array, Array]:
        time, power = curves(self.axis, np.asarray(self.where), points)
        here = slice(self.reference, self.reference + 1)
        return time - time[:, here], power - power[:, here]

    @cached_property
    def _first(self) -> tuple[Array, Array]:
        return self._curves(spread(_FIRST))

    def _worlds(
        self, seen: Observations, explained: _Explained, middles: tuple[float, float]
    ) -> Particles:
        def made(points: Array, curves: tuple[Array, Array], per_prior: Array) -> Particles:
            fits = (
                explained.fit(curves[0], seen.time - middles[0]),
                explained.fit(curves[1], seen.power - middles[1]),
            )
            return Particles.of(points, curves, fits, per_prior)

        worlds = made(spread(_FIRST), self._first, np.full(_FIRST, np.log(_FIRST)))
        around: list[Around] = []
        for count in _MORE:
            around.append(worlds.around(count))
            points = around[-1].draw(np.random.default_rng((self.seed, 3, len(around))))
            per_prior = np.full(count, np.log(_FIRST))
            for one in around:
                per_prior = np.logaddexp(per_prior, one.per_prior(points))
            worlds = worlds.met_by(around[-1])
            worlds = worlds.and_also(made(points, self._curves(points), per_prior))
        return worlds


@dataclass(frozen=True)
class _Explained:
    """The Gaussian part, for each departure's size: eigenvectors, and 1 over variances by noise."""

    at: Whole
    alike: Array
    parts: tuple[tuple[Array, Array], ...]

    @classmethod
    def by(cls, departures: Array, seen: Observations) -> _Explained:
        among = departures[np.ix_(seen.at, seen.at)]
        level = _LEVEL**2 + _BOARD**2 * (seen.board[:, None] == seen.board)
        parts = []
        for size in _DEPARTURE:
            values, vectors = np.linalg.eigh(size**2 * among + level)
            parts.append((vectors, 1 / (np.maximum(values, 0) + _NOISE[:, None] ** 2)))
        return cls(seen.at, departures[seen.at], tuple(parts))

    def fit(self, bank: Array, values: Array) -> Array:
        """Log-likelihood of each curve of the bank, by departure and noise (rows)."""
        off = (values - bank[:, self.at]).T
        usual = -0.5 * np.log(_NOISE / _NOISE_USUAL) ** 2
        rows = [
            (usual + 0.5 * np.log(sharp).sum(axis=1))[:, None]
            - 0.5 * sharp @ (vectors.T @ off) ** 2
            for vectors, sharp in self.parts
        ]
        return np.concatenate(rows)

    def draw(
        self, bank: Array, values: Array, kind: Whole, wander: Array, rng: np.random.Generator
    ) -> Array:
        """Curves with their level and departure, given the runs; one for each row of the bank."""
        size, noise = kind // len(_NOISE), kind % len(_NOISE)
        level = _LEVEL * rng.standard_normal((len(bank), 1))
        drawn = bank + level + _DEPARTURE[size][:, None] * wander
        off = _NOISE[noise][:, None] * rng.standard_normal((len(bank), len(values)))
        missing = values - drawn[:, self.at] - off
        for number, (vectors, sharp) in enumerate(self.parts):
            rows = np.flatnonzero(size == number)
            pull = ((missing[rows] @ vectors) * sharp[noise[rows]]) @ vectors.T
            departed = _DEPARTURE[number] ** 2 * (pull @ self.alike)
            drawn[rows] += departed + _LEVEL**2 * pull.sum(axis=1, keepdims=True)
        return np.asarray(drawn)


def _drawn(fits: Array, rng: np.random.Generator) -> Whole:
    """For each column one of its rows, by its weight."""
    heaped = np.cumsum(np.exp(fits - fits.max(axis=0)), axis=0)
    below = heaped < rng.random(fits.shape[1]) * heaped[-1]
    return np.asarray(np.minimum(below.sum(axis=0), len(fits) - 1))
