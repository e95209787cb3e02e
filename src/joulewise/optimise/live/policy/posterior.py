"""The posterior of time and energy per step at every candidate, as samples.

Bayesian calibration of a physical model with a discrepancy (Kennedy and O'Hagan, "Bayesian
calibration of computer models", 2001). The logarithms of time and of power are each a curve of
``response_model``, plus a smooth discrepancy (a Gaussian process with a
Matérn 5/2 kernel), plus a level of the run. Points of the model's parameters are sampled by
``tempering`` of their likelihood. Level and discrepancy are Gaussian, and are sampled exactly
(Matheron's rule; Wilson et al., "Efficiently sampling functions from Gaussian process posteriors",
2020). All random numbers are drawn once, so that two posteriors differ by their data alone.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.optimise.live.policy.response_model import (
    PARAMETERS,
    LoadCurves,
    Positions,
    curves_of,
)
from joulewise.optimise.live.policy.tempering import PosteriorPoints, sample_tempered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Indices = NDArray[np.int64]

# Points of the prior that tempering begins with. Chosen: four times those that it goes on with.
_PRIOR_POINTS: Final = 1000
_CLOCK_POINTS: Final = 200  # of them, whose mean clock the discrepancy follows at first
# Samples of the posterior: a probability of 0.97 has a standard error of 0.01 by them.
SAMPLES: Final = 256
# Sizes of the discrepancy in log time, as standard deviations, among which the data decide.
# Chosen: good physical fits, and boards with steps of their governor. Half as large again, a tuning
# of both axes takes ten steps more.
_DISCREPANCY_SIZES: Final = (0.004, 0.012, 0.04)
# Size of the discrepancy in log power over that in log time. Power follows the model more closely,
# since limits hold it; at 1, some five steps more are needed.
_POWER_RATIO: Final = 0.6
# Correlation length of the discrepancy, as a share of the highest limit or clock. At 0.3, a tenth
# fewer steps are explored, and of measured curves two tunings in a hundred more end off the best.
_LENGTH: Final = 0.2
# Prior standard deviation of the level, in logarithms: vague, the steps alone determine it.
_LEVEL: Final = 10.0
# Size of the smooth difference between two runs of one program on one board, in logarithms.
# Chosen: one board reproduces within half a percent; at 0.01, earlier runs save no looks.
_RUN_SIZE: Final = 0.004
# With several axes, the share of the discrepancy's variance that depends on the settings apart from
# the clock they lead to. At 1, every pair of settings is on its own, and 150 steps are too few; at
# 0.005, a tuning of both axes takes ten steps more.
_SETTING_SHARE: Final = 0.001
_JITTER: Final = 1e-8  # added to a covariance, so that rounding leaves it positive definite


@dataclass(frozen=True)
class StepMeans:
    """Means of steps, an entry for each run and candidate.

    ``at`` is the index of the candidate and ``run`` the number of the run, 0 for this one. The
    means are those of the logarithms of s and J, and the variances are those of the means.
    """

    at: Indices
    run: Indices
    log_time: Array
    log_energy: Array
    time_variance: Array
    energy_variance: Array

    def concatenate(self, other: StepMeans) -> StepMeans:
        return StepMeans(
            *(
                np.concatenate([getattr(self, each.name), getattr(other, each.name)])
                for each in fields(self)
            )
        )

    def level(self, run: int) -> tuple[float, float]:
        """Mean log time and log energy of a run."""
        rows = self.run == run
        return float(self.log_time[rows].mean()), float(self.log_energy[rows].mean())

    def centre(self) -> StepMeans:
        """Less the level of each run, so that units and sizes of the job do not matter."""
        log_time, log_energy = self.log_time.copy(), self.log_energy.copy()
        for run in np.unique(self.run):
            level = self.level(run)
            log_time[self.run == run] -= level[0]
            log_energy[self.run == run] -= level[1]
        return replace(self, log_time=log_time, log_energy=log_energy)

    def select(self, rows: NDArray[np.bool_]) -> StepMeans:
        return StepMeans(*(getattr(self, each.name)[rows] for each in fields(self)))


@dataclass(frozen=True)
class CurveSamples:
    """Samples (rows) of the logarithms of s and J a step at every candidate (columns)."""

    log_time: Array
    log_energy: Array


@dataclass(frozen=True)
class CurveFit:
    """Samples of the curves of this run, and the log of the marginal likelihood of its means.

    The likelihood is up to a constant for each mean.
    """

    samples: CurveSamples
    clock: Array  # that each candidate leads to, as a share of the highest
    log_evidence: float


class CurvePosterior:
    """Samples the curves of this run, given means of its steps and of earlier runs."""

    def __init__(self, positions: Positions, runs: int, rng: np.random.Generator) -> None:
        """``runs`` is the number of runs that means come from, this one included."""
        count = len(positions.limit)
        # The last coordinate is the size of the discrepancy.
        self._prior = rng.random((_PRIOR_POINTS, PARAMETERS + 1))
        self._positions = positions
        self._normal = rng.standard_normal((2, SAMPLES, count))
        self._level = _LEVEL * rng.standard_normal((2, runs, SAMPLES))
        # Earlier runs differ from this one, which is the first.
        self._run_normal = rng.standard_normal((2, runs - 1, SAMPLES, count))
        self._step_noise = rng.standard_normal((2, SAMPLES, runs * count))
        self._seed = int(rng.integers(2**63))
        axes = np.stack([positions.limit, positions.clock, positions.memory])
        self._setting_kernel = _matern(axes)
        self._has_many_axes = positions.axes > 1
        self._set_kernel(self._setting_kernel)
        self.follow_clock(curves_of(self._prior[:_CLOCK_POINTS, :-1], positions).clock.mean(axis=0))

    def fit(self, means: StepMeans) -> CurveFit:
        """The curves of this run; at least one of the means has to be of it."""
        log_time, log_energy = means.level(0)
        means = means.centre()
        inverses, fitted = self._temper(means)
        curves = curves_of(fitted.points[:, :-1], self._positions)
        samples = self._draw(means, curves, _size_of(fitted.points), inverses)
        samples = CurveSamples(samples.log_time + log_time, samples.log_energy + log_energy)
        return CurveFit(samples, curves.clock.mean(axis=0), fitted.log_evidence)

    def log_evidence(self, means: StepMeans) -> float:
        """Log of the marginal likelihood, up to a constant for each mean."""
        return self._temper(means.centre())[1].log_evidence

    def follow_clock(self, clock: Array) -> None:
        """With several axes, let the discrepancy follow the clock that the settings lead to.

        A limit that a locked clock does not reach changes nothing, and the reverse: settings that
        lead to one clock are alike. Which clock that is, the last fit tells (plug-in estimate).
        """
        if not self._has_many_axes:
            return
        by_clock = _matern(np.stack([clock, self._positions.memory]))
        self._set_kernel((1 - _SETTING_SHARE) * by_clock + _SETTING_SHARE * self._setting_kernel)

    def _set_kernel(self, kernel: Array) -> None:
        self._kernel = kernel
        root = np.linalg.cholesky(kernel + _JITTER * np.eye(len(kernel))).T
        self._discrepancy = self._normal @ root
        self._run_difference = _RUN_SIZE * (self._run_normal @ root)

    def _temper(self, means: StepMeans) -> tuple[list[Array], PosteriorPoints]:
        """Points of the posterior, and the inverse covariance for each size of discrepancy."""
        positions = self._positions.select(means.at)
        data = np.concatenate([means.log_time, means.log_energy])
        whitens, inverses, log_determinants = [], [], []
        for size in _DISCREPANCY_SIZES:
            cholesky = np.linalg.cholesky(self._covariance(means, size))
            whiten = np.linalg.inv(cholesky)
            whitens.append(whiten)
            inverses.append(whiten.T @ whiten)
            log_determinants.append(np.log(np.diag(cholesky)).sum())

        def log_likelihood(points: Array) -> Array:
            curves = curves_of(points[:, :-1], positions)
            energy = curves.log_time + curves.log_power
            residual = data - np.concatenate([curves.log_time, energy], axis=1)
            values = np.empty(len(points))
            sizes = _size_of(points)
            for number, whiten in enumerate(whitens):
                rows = sizes == number
                white = residual[rows] @ whiten.T
                values[rows] = -0.5 * (white**2).sum(axis=1) - log_determinants[number]
            return values

        rng = np.random.default_rng(self._seed)  # two posteriors differ by their data alone
        return inverses, sample_tempered(log_likelihood, self._prior, SAMPLES, rng)

    def _covariance(self, means: StepMeans, size: float) -> Array:
        """Covariance of the means of log time and of log energy, beside each other."""
        among = self._kernel[np.ix_(means.at, means.at)]
        same_run = means.run[:, None] == means.run
        shared = _LEVEL**2 * same_run + _RUN_SIZE**2 * among * (same_run & (means.run > 0))
        time = size**2 * among + shared
        power = (_POWER_RATIO * size) ** 2 * among + shared
        noise = np.diag(np.concatenate([means.time_variance, means.energy_variance]))
        return np.asarray(np.block([[time, time], [time, time + power]]) + noise)

    def _draw(
        self, means: StepMeans, curves: LoadCurves, sizes: Indices, inverses: list[Array]
    ) -> CurveSamples:
        """Matheron's rule: draw all from the prior, and correct it by the residuals."""
        at, run, count = means.at, means.run, len(means.at)
        size = np.asarray(_DISCREPANCY_SIZES)[sizes][:, None]
        time_level, power_level = self._level
        time = curves.log_time + size * self._discrepancy[0]
        energy = time + curves.log_power + _POWER_RATIO * size * self._discrepancy[1]
        run_time = time_level[run].T
        run_power = power_level[run].T
        is_earlier = run > 0
        for level, difference in zip((run_time, run_power), self._run_difference, strict=True):
            level[:, is_earlier] += difference[run[is_earlier] - 1, :, at[is_earlier]].T
        noise = self._step_noise[:, :, :count]
        residual = np.concatenate(
            [
                means.log_time - (time[:, at] + run_time + noise[0] * np.sqrt(means.time_variance)),
                means.log_energy
                - (energy[:, at] + run_time + run_power)
                - noise[1] * np.sqrt(means.energy_variance),
            ],
            axis=1,
        )
        time += time_level[0][:, None]
        energy += (time_level[0] + power_level[0])[:, None]
        kernel = self._kernel[at]
        is_this_run = (run == 0).astype(float)
        for number, prior_size in enumerate(_DISCREPANCY_SIZES):
            rows = np.flatnonzero(sizes == number)
            solved = residual[rows] @ inverses[number]
            both, power = solved[:, :count] + solved[:, count:], solved[:, count:]
            add_time, add_power = (
                scale**2 * part @ kernel + _LEVEL**2 * (part @ is_this_run)[:, None]
                for scale, part in ((prior_size, both), (_POWER_RATIO * prior_size, power))
            )
            time[rows] += add_time
            energy[rows] += add_time + add_power
        return CurveSamples(time, energy)


def _matern(axes: Array) -> Array:
    """Correlation of the discrepancy at two candidates (Matérn 5/2 kernel), an axis a row."""
    distance = np.sqrt(((axes[:, :, None] - axes[:, None, :]) ** 2).sum(axis=0))
    scaled = np.sqrt(5) * distance / _LENGTH
    return np.asarray((1 + scaled + scaled**2 / 3) * np.exp(-scaled))


def _size_of(points: Array) -> Indices:
    """The number of each point's size of the discrepancy."""
    return np.minimum(points[:, -1] * len(_DISCREPANCY_SIZES), len(_DISCREPANCY_SIZES) - 1).astype(
        np.int64
    )
