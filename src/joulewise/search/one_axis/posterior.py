"""The posterior of time and power at every setting, given the runs so far, as samples.

The logarithms of time and of power are each a curve of the physical model, plus a smooth departure
from it (a Gaussian process), plus a level, plus the noise of a run. The parameters of the curve,
and the sizes of departure and noise, are sampled by adaptive importance sampling (Cappé et al.,
"Population Monte Carlo", 2004) with the balance heuristic (Veach and Guibas, 1995). Level and
departure are Gaussian, and are sampled exactly (Matheron's rule; Wilson et al., 2020).

The physical model of :func:`log_curves` knows no particular board or load. A part of the power does
not depend on the clock; the cores' power rises with the clock, steeply while the voltage rises with
it, and in proportion below. A part of the work takes a time that depends on the clock, and the rest
does not. During a part of the run the board draws less. What boards and loads do besides is left to
the departure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

from joulewise.data.sweeps import CPU_LIMIT, MEM_CLOCK, POWER_LIMIT, SM_CLOCK
from joulewise.search.objective import PosteriorSamples

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Indices = NDArray[np.int64]

CAPS: Final = (POWER_LIMIT, CPU_LIMIT)
CLOCKS: Final = (SM_CLOCK, MEM_CLOCK)

# The prior of each parameter is uniform in its range. Chosen, so wide that no board or workload is
# ruled out; wider ranges only leave fewer particles where boards are.
_RANGES: Final = (
    (np.log(0.4), np.log(2.0)),  # log of the need: uncapped power or clock over the reference's
    (0.05, 0.6),  # share of that power that does not depend on the clock
    (0.25, 0.95),  # exponent p of clock ~ core power ** p, while the voltage rises
    (0.0, 0.7),  # share of core power below which the voltage is constant, and clock ~ power
    (0.05, 1.0),  # share of the busy part's time that depends on the clock
    (0.0, 0.7),  # share of the run's time in which the board draws less
    (0.1, 1.0),  # power in that part, over that of the busy part
    (0.0, 1.0),  # how far time and power of that part depend on the clock, too
)
DIMENSIONS: Final = len(_RANGES)
_LOW: Final = np.array([low for low, _ in _RANGES])
_WIDTH: Final = np.array([high - low for low, high in _RANGES])
# The least share of core power: no board runs on less, and its logarithm stays finite.
_LEAST_CORE_SHARE: Final = 0.02
# Keeps the quantiles of the normal distribution finite, at 4.8 standard deviations.
_MARGIN: Final = 1e-6

# Counts of samples and particles. 1000 samples, or twice as many particles, choose no better
# setting (docs/explanation/adaptive.md, "What was tried"), and take twice as long.
SAMPLES: Final = 400
_PRIOR_PARTICLES: Final = 1024
_PROPOSAL_PARTICLES: Final = (512, 512)
# The effective sample size below which the weights are flattened before the next proposal is
# fitted to them. Chosen: 8 dimensions need a few particles each for a covariance.
_LEAST_EFFECTIVE: Final = 30.0
_COOLING: Final = 0.8  # factor of the exponent of the weights, for each flattening
_LEAST_EXPONENT: Final = 0.01  # the weights are then those of the prior, all but equal
_PROPOSAL_VARIANCE: Final = 0.01  # added in each dimension, so that no proposal collapses

# Standard deviations between runs, as shares, among which the data decide; log-normal about 1 %,
# which is usual of training runs.
_NOISE: Final = np.array([0.002, 0.004, 0.007, 0.01, 0.014, 0.02, 0.03, 0.045, 0.07])
_NOISE_MEDIAN: Final = 0.01
# Sizes of the departure from the model, as shares, among which the data decide. Half as large
# again, a third smaller, or five sizes choose no better (docs/explanation/adaptive.md).
_DEPARTURE: Final = np.array([0.002, 0.006, 0.02])
# Correlation length of the departure, in logarithms of the setting. 0.13 and 0.3 choose worse.
_LENGTH: Final = 0.2
_LEVEL: Final = 0.5  # prior standard deviation of the level: the runs alone determine it
_BOARD: Final = 0.03  # standard deviation between boards of one kind, as a share
_UNLOCKED: Final = 1.02  # position of an unlocked clock: just above the highest candidate
_JITTER: Final = 1e-9  # added to a covariance, so that rounding leaves it positive definite


def log_curves(axis: str, positions: Array, points: Array) -> tuple[Array, Array]:
    """Logarithms of time and power over those of an uncapped run; a row for each point.

    A point has a standard normal number for each parameter of the model. ``positions`` are limits
    over the reference's, or clocks over the highest candidate (infinite where not locked).
    """
    parameters = _LOW + _WIDTH * ndtr(points)
    need, fixed, exponent, floor, bound, idle, idle_power, coupling = (
        column[:, None] for column in parameters.T
    )
    need = np.exp(need)
    if axis in CAPS:
        core = np.clip((positions / need - fixed) / (1 - fixed), _LEAST_CORE_SHARE, 1.0)
        clock = _bent_power(core, exponent, floor)
    else:
        clock = np.minimum(positions, need)
        core = _bent_power(clock, 1 / exponent, floor)
    slowdown = 1 / clock - 1
    busy_power = fixed + (1 - fixed) * core
    busy_time = (1 - idle) * (1 + bound * slowdown)
    idle_time = idle * (1 + bound * coupling * slowdown)
    time = busy_time + idle_time
    energy = busy_time * busy_power + idle_time * idle_power * (
        1 - coupling + coupling * busy_power
    )
    return np.log(time), np.log(energy / time)


@lru_cache(maxsize=8)
def sobol_points(count: int) -> Array:
    """Points that fill the space of the prior evenly (Sobol's sequence), always the same."""
    uniform = qmc.Sobol(DIMENSIONS, seed=0).random(count)
    return np.asarray(ndtri(np.clip(uniform, _MARGIN, 1 - _MARGIN)))


def _bent_power(x: Array, exponent: Array, floor: Array) -> Array:
    """A smooth curve: ``x ** exponent`` above ``floor``, in proportion to ``x`` below, 1 at 1."""
    bend = (1 + floor**4) / (1 + np.square(np.square(floor / x)))
    return np.asarray(np.exp(exponent * np.log(x) + (1 - exponent) / 4 * np.log(bend)))


class Observations(NamedTuple):
    """Runs: the index of the setting, the number of the board, logarithms of time and power."""

    at: Indices
    board: Indices
    log_time: Array
    log_power: Array


@dataclass(frozen=True)
class GaussianProposal:
    """A Gaussian over the parameters, from which ``count`` particles are drawn."""

    count: int
    mean: Array
    cholesky: Array

    def draw(self, rng: np.random.Generator) -> Array:
        noise = rng.standard_normal((self.count, DIMENSIONS))
        return np.asarray(self.mean + noise @ self.cholesky.T)

    def log_density(self, points: Array) -> Array:
        """Log of the expected number of its particles at points, over the prior's density."""
        off = np.linalg.solve(self.cholesky, (points - self.mean).T)
        scale = np.log(self.count) - np.log(np.diag(self.cholesky)).sum()
        return np.asarray(scale - 0.5 * (off**2).sum(axis=0) + 0.5 * (points**2).sum(axis=1))


@dataclass(frozen=True)
class Particles:
    """Parameters of the model, weighted by their likelihood.

    ``log_likelihoods`` are of the curves of time and of power, a row for each pair of departure and
    noise; ``log_likelihood`` is that of both, summed over the rows. ``log_density`` is that of all
    proposals together, over the prior's: the weight is likelihood over density, wherever a particle
    came from (the balance heuristic).
    """

    points: Array
    log_time: Array
    log_power: Array
    log_likelihoods: tuple[Array, Array]
    log_likelihood: Array
    log_density: Array

    def reweight(self, proposal: GaussianProposal) -> Particles:
        """Count a further proposal among those that the particles may come from."""
        density = np.logaddexp(self.log_density, proposal.log_density(self.points))
        return replace(self, log_density=density)

    def concatenate(self, other: Particles) -> Particles:
        def join(name: str) -> Array:
            return np.concatenate([getattr(self, name), getattr(other, name)])

        pairs = zip(self.log_likelihoods, other.log_likelihoods, strict=True)
        time, power = (np.concatenate(pair, axis=1) for pair in pairs)
        names = "points", "log_time", "log_power", "log_likelihood", "log_density"
        return Particles(
            **{name: join(name) for name in names},
            log_likelihoods=(time, power),
        )

    def resample(self, quantiles: Array) -> Indices:
        """Indices of particles at these quantiles of the weights (systematic resampling)."""
        cumulative = np.cumsum(_normalise(self._log_weights))
        return np.minimum(np.searchsorted(cumulative, quantiles), len(cumulative) - 1)

    def fit_proposal(self, count: int) -> GaussianProposal:
        """A Gaussian with the moments of the particles, flattened while few of them have weight."""
        exponent, weights = 1.0, _normalise(self._log_weights)
        while 1 / (weights**2).sum() < _LEAST_EFFECTIVE and exponent > _LEAST_EXPONENT:
            exponent *= _COOLING
            weights = _normalise(exponent * self._log_weights)
        mean = weights @ self.points
        off = self.points - mean
        covariance = (weights[:, None] * off).T @ off + _PROPOSAL_VARIANCE * np.eye(DIMENSIONS)
        return GaussianProposal(count, mean, np.linalg.cholesky(covariance))

    @property
    def _log_weights(self) -> Array:
        return self.log_likelihood - self.log_density


@dataclass(frozen=True)
class ParticlePosterior:
    """Samples curves of time and power over the settings, given some runs.

    ``positions`` are the settings relative to the reference, whose index is ``reference``.
    """

    axis: str
    positions: tuple[float, ...]
    reference: int
    seed: int = 0

    def sample(self, runs: Observations) -> PosteriorSamples:
        rng = np.random.default_rng((self.seed, 1))
        likelihood = _RunLikelihood.of(self._departure_covariance, runs)
        levels = runs.log_time.mean(), runs.log_power.mean()
        particles = self._particles(runs, likelihood, levels)
        picked = particles.resample((np.arange(SAMPLES) + rng.random()) / SAMPLES)
        curves = (particles.log_time, runs.log_time), (particles.log_power, runs.log_power)
        quantities = zip(
            curves, levels, particles.log_likelihoods, self._prior_departures, strict=True
        )
        sampled = []
        for (bank, values), level, log_likelihoods, departures in quantities:
            kind = _draw_rows(log_likelihoods[:, picked], rng)
            drawn = likelihood.draw(bank[picked], values - level, kind, departures, rng)
            sampled.append((level + drawn, np.tile(_NOISE, len(_DEPARTURE))[kind]))
        (time, time_noise), (power, power_noise) = sampled
        return PosteriorSamples(time, power, time_noise, power_noise)

    @cached_property
    def _departure_covariance(self) -> Array:
        """Covariance of the departures at two settings, for a size of 1 (Matérn 5/2 kernel).

        They are larger and change faster far below the reference, where boards meet their floors.
        """
        log_position = np.log(np.where(np.isinf(self.positions), _UNLOCKED, self.positions))
        distance = np.sqrt(5) * np.abs(log_position[:, None] - log_position) / _LENGTH
        scale = 0.5 + 1.5 * np.abs(log_position)
        kernel = (1 + distance + distance**2 / 3) * np.exp(-distance)
        return np.asarray(kernel * scale[:, None] * scale)

    @cached_property
    def _prior_departures(self) -> Array:
        """Samples of the departures of time and of power before any run, of a size of 1."""
        shape = 2, SAMPLES, len(self.positions)
        noise = np.random.default_rng((self.seed, 2)).standard_normal(shape)
        covariance = self._departure_covariance + _JITTER * np.eye(len(self.positions))
        return np.asarray(noise @ np.linalg.cholesky(covariance).T)

    def _curves(self, points: Array) -> tuple[Array, Array]:
        """Log of time and power over those of the reference."""
        time, power = log_curves(self.axis, np.asarray(self.positions), points)
        column = slice(self.reference, self.reference + 1)
        return time - time[:, column], power - power[:, column]

    @cached_property
    def _prior_curves(self) -> tuple[Array, Array]:
        return self._curves(sobol_points(_PRIOR_PARTICLES))

    def _particles(
        self, runs: Observations, likelihood: _RunLikelihood, levels: tuple[float, float]
    ) -> Particles:
        """Particles of the prior, and of proposals that are fitted to the particles before them."""

        def weigh(points: Array, curves: tuple[Array, Array], log_density: Array) -> Particles:
            log_likelihoods = (
                likelihood.evaluate(curves[0], runs.log_time - levels[0]),
                likelihood.evaluate(curves[1], runs.log_power - levels[1]),
            )
            total = _log_sum(log_likelihoods[0]) + _log_sum(log_likelihoods[1])
            return Particles(points, *curves, log_likelihoods, total, log_density)

        prior = np.log(_PRIOR_PARTICLES)
        particles = weigh(
            sobol_points(_PRIOR_PARTICLES), self._prior_curves, np.full(_PRIOR_PARTICLES, prior)
        )
        proposals: list[GaussianProposal] = []
        for count in _PROPOSAL_PARTICLES:
            proposals.append(particles.fit_proposal(count))
            points = proposals[-1].draw(np.random.default_rng((self.seed, 3, len(proposals))))
            log_density = np.full(count, prior)
            for proposal in proposals:
                log_density = np.logaddexp(log_density, proposal.log_density(points))
            particles = particles.reweight(proposals[-1])
            particles = particles.concatenate(weigh(points, self._curves(points), log_density))
        return particles


@dataclass(frozen=True)
class _RunLikelihood:
    """The Gaussian part of the model: departure, level, board and noise.

    For each size of the departure, ``parts`` has the eigenvectors of the covariance of the runs,
    and one over its eigenvalues, a row for each size of the noise.
    """

    at: Indices
    covariance: Array
    parts: tuple[tuple[Array, Array], ...]

    @classmethod
    def of(cls, departures: Array, runs: Observations) -> _RunLikelihood:
        among = departures[np.ix_(runs.at, runs.at)]
        level = _LEVEL**2 + _BOARD**2 * (runs.board[:, None] == runs.board)
        parts = []
        for size in _DEPARTURE:
            values, vectors = np.linalg.eigh(size**2 * among + level)
            parts.append((vectors, 1 / (np.maximum(values, 0) + _NOISE[:, None] ** 2)))
        return cls(runs.at, departures[runs.at], tuple(parts))

    def evaluate(self, bank: Array, values: Array) -> Array:
        """Log-likelihood of each curve of the bank (columns), by departure and noise (rows)."""
        residuals = (values - bank[:, self.at]).T
        log_prior = -0.5 * np.log(_NOISE / _NOISE_MEDIAN) ** 2
        rows = [
            (log_prior + 0.5 * np.log(precision).sum(axis=1))[:, None]
            - 0.5 * precision @ (vectors.T @ residuals) ** 2
            for vectors, precision in self.parts
        ]
        return np.concatenate(rows)

    def draw(
        self, bank: Array, values: Array, kind: Indices, departures: Array, rng: np.random.Generator
    ) -> Array:
        """Curves with level and departure given the runs, one for each row of the bank.

        Matheron's rule: draw all of it from the prior, and correct it by the runs' residuals.
        ``kind`` is the row of :meth:`evaluate` that says how large departure and noise are.
        """
        size, noise = kind // len(_NOISE), kind % len(_NOISE)
        level = _LEVEL * rng.standard_normal((len(bank), 1))
        drawn = bank + level + _DEPARTURE[size][:, None] * departures
        run_noise = _NOISE[noise][:, None] * rng.standard_normal((len(bank), len(values)))
        residuals = values - drawn[:, self.at] - run_noise
        for number, (vectors, precision) in enumerate(self.parts):
            rows = np.flatnonzero(size == number)
            solved = ((residuals[rows] @ vectors) * precision[noise[rows]]) @ vectors.T
            departure = _DEPARTURE[number] ** 2 * (solved @ self.covariance)
            drawn[rows] += departure + _LEVEL**2 * solved.sum(axis=1, keepdims=True)
        return np.asarray(drawn)


def _normalise(log_weights: Array) -> Array:
    weights = np.exp(log_weights - log_weights.max())
    return np.asarray(weights / weights.sum())


def _log_sum(rows: Array) -> Array:
    """Log of the sum of exponentials of each column."""
    most = rows.max(axis=0)
    return np.asarray(most + np.log(np.exp(rows - most).sum(axis=0)))


def _draw_rows(log_weights: Array, rng: np.random.Generator) -> Indices:
    """For each column one of its rows, by its weight."""
    cumulative = np.cumsum(np.exp(log_weights - log_weights.max(axis=0)), axis=0)
    below = cumulative < rng.random(log_weights.shape[1]) * cumulative[-1]
    return np.asarray(np.minimum(below.sum(axis=0), len(log_weights) - 1))
