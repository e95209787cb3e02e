"""What the chosen setting saves against the reference, from blocks of steps at both.

Blocks alternate inside the live job: in ABBA order while a saving is proved
(:class:`SavingProof`), and rarely while the choice is held (standing checks). Both are one series
of blocks, and :func:`estimate_saving` fits one model to the logarithm of their time and energy per
step::

    log y = level + trend * t + log(ratio) * is_choice + heat * z + noise

- The sensor's gain is a factor of all blocks: it is part of ``level``.
- Drift is the linear trend and, in the noise, a random walk.
- Heat: leakage grows with the temperature, which follows power with a time constant of about a
  minute. A block of a few seconds at the choice is therefore warmer than steps that stay there, and
  one at the reference cooler. ``z`` is how far the board's heat is from what the setting itself
  would lead to, as a share of its power; at ``z = 0`` the ratio is that of steps that stay.

Method: generalised least squares with a weak prior on ``heat``, averaged over a grid of the time
constant and of the share of the random walk by their restricted likelihood (Patterson and Thompson,
Biometrika 58, 1971; Hoeting et al., Bayesian model averaging, Statistical Science 14, 1999).
The half-width by noise is Student's, so that few blocks give a wide interval. What the priors leave
open is normal, whatever the number of blocks from eight on, and is added in squares. Of several
proofs on one board that part is the same: the interval holds the truth in 95 of 100 proofs on 100
boards.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.student_t import student
from joulewise.data.tuning import ProgramMetric, SavedShare, Saving, StepEstimate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Flags = NDArray[np.bool_]

# Chosen: thermal time constants of boards, from a bare heat sink with a fan to a heavy one.
_HEAT_TIMES_S: Final = (20.0, 45.0, 100.0)
# Variance of the random walk over the time of one block, in variances of a block's own noise.
# Chosen: from none to a walk that is as large as the noise.
_WALK_SHARES: Final = (0.0, 0.01, 0.1, 1.0)
# Prior of the heat coefficient: mean and standard deviation. Without noise and drift, the cases of
# benchmarks/live_prove.py are without bias at 0.014 to 0.020 for energy, and at 0 to 0.0105 for
# time (where the power limit holds, leakage lengthens steps). Leakage and heat of these boards are
# assumed; with half and twice of them coefficients are half and twice as large. Doubled, the
# deviation nearly doubles the interval: heat is most of the error.
_HEAT_PRIORS: Final = {"energy": (0.02, 0.0105), "time": (0.007, 0.007)}
_NORMAL_95: Final = 1.96  # standard deviations of a 95 % interval
# Standard deviation of what the heat before the first block still adds to it, as a share: it is
# unknown, and decays. Chosen: a start that is wrong by a quarter of the power.
_START_DEVIATION: Final = 0.006
# A block's noise is not believed to be smaller than this share of its mean: rounding of the counter
# and of the clock. Chosen.
_LEAST_NOISE: Final = 1e-5
# A block whose own noise is this many standard deviations (by the median) is left out: the job
# stalled in it. Of normal noise that is 1 in 16,000.
_OUTLIER_SIGMAS: Final = 4.0
_LEAST_FOR_OUTLIERS: Final = 8  # blocks, below which no scale is known
_LEAST_FOR_PRIORS: Final = 8  # blocks that know their noise beside all five coefficients (chosen)
_MOST_OUTLIERS: Final = 0.15  # of the blocks
# The fewest blocks: level, trend and ratio take three, and one is left for the noise.
MIN_BLOCKS: Final = 4
# Of a longer series only the last blocks are used, to bound the time of a fit (cubic).
MAX_BLOCKS: Final = 240
_VARIANCE_ROUNDS: Final = 6  # of fitting the noise and the coefficients in turn, which converges
# Blocks after which the proof is judged. Few looks, each with half as many blocks again: a look
# after every block would stop when the noise happens to look small, and the interval would cover
# the truth less often than it says.
_LOOKS: Final = (12, 20, 32, 48, 72, 108, 160, 240)
# What the program logs is compared from so many differences on, of four stretches of values each
# (chosen): with fewer, the interval is too wide to tell anything.
_LEAST_FOURS: Final = 3


@dataclass(frozen=True)
class PairedBlock:
    """Steps at the reference or the choice: when, and the mean time and energy of one of them.

    ``step_energy_j`` is of the GPUs; ``overhead_w`` is the power of what counts besides.
    """

    start_s: float
    end_s: float
    is_choice: bool
    step_time_s: float
    step_energy_j: float
    overhead_w: float = 0.0

    @property
    def power_w(self) -> float:
        """Of the GPUs."""
        return self.step_energy_j / self.step_time_s

    @property
    def whole_step_energy_j(self) -> float:
        """With what counts besides the GPUs."""
        return self.step_energy_j + self.overhead_w * self.step_time_s


@dataclass(frozen=True)
class SavingEstimate:
    """Logarithms of the ratio of choice to reference with their 95 % half-widths, per step."""

    log_energy: float
    log_energy_half: float
    log_time: float
    log_time_half: float
    pairs: int

    def as_saving(self, method: str) -> Saving:
        energy = saved_share(self.log_energy, self.log_energy_half)
        return Saving(energy, saved_share(self.log_time, self.log_time_half), method, self.pairs)


def saved_share(log_ratio: float, half: float) -> SavedShare:
    """The share saved from the logarithm of a ratio; the longer side of its interval as error."""
    ratio = math.exp(log_ratio)
    return SavedShare(1 - ratio, ratio * math.expm1(half))


class SavingProof:
    """Which setting the next block of a proof has, and when the proof is over.

    The order is reference, choice, choice, reference, and so on. It is over when the saving of
    energy and that of time are known to ``target`` (95 % half-width, as a share), or after
    ``most_blocks``. It is judged after few fixed numbers of blocks only.
    """

    def __init__(self, target: float = 0.01, most_blocks: int = MAX_BLOCKS) -> None:
        self.blocks: tuple[PairedBlock, ...] = ()
        self.estimate: SavingEstimate | None = None  # of the last look
        self.is_finished = False
        self.is_reached = False
        self._latest = SavingCache()
        self._target = target
        self._most_blocks = most_blocks
        self._looks = [look for look in _LOOKS if look < most_blocks] + [most_blocks]

    @staticmethod
    def is_choice(place: int) -> bool:
        """Whether the block at that place of the series (from 0) is at the choice."""
        return place % 4 in {1, 2}

    def add(self, block: PairedBlock) -> None:
        self.blocks = (*self.blocks, block)
        if self.is_finished or not self._looks or len(self.blocks) < self._looks[0]:
            return
        del self._looks[0]
        self.estimate = estimate = estimate_saving(self.blocks)
        if estimate is not None:
            halves = (
                saved_share(estimate.log_energy, estimate.log_energy_half).error,
                saved_share(estimate.log_time, estimate.log_time_half).error,
            )
            self.is_reached = max(halves) <= self._target
        self.is_finished = self.is_reached or len(self.blocks) >= self._most_blocks

    def judge(self) -> SavingEstimate | None:
        """What is known now, as at the end of a job; it decides nothing.

        After the proof that is the estimate with which it ended, and before from all blocks so far.
        """
        return self.estimate if self.is_finished else self._latest.of(self.blocks)


def estimate_saving(blocks: Sequence[PairedBlock]) -> SavingEstimate | None:
    """The ratio of choice to reference, from blocks of both in any order, oldest first.

    None where there are too few: at least two of each setting.
    """
    used = [block for block in blocks if block.step_time_s > 0 and block.step_energy_j > 0]
    used = used[-MAX_BLOCKS:]
    choices = sum(block.is_choice for block in used)
    pairs = min(choices, len(used) - choices)
    if len(used) < MIN_BLOCKS or pairs < 2:
        return None
    log_energy = _fit_ratio(used, np.log([block.whole_step_energy_j for block in used]), "energy")
    log_time = _fit_ratio(used, np.log([block.step_time_s for block in used]), "time")
    return SavingEstimate(*log_energy, *log_time, pairs)


class SavingCache:
    """The estimate of a growing series, made again when there are other blocks.

    It takes 0.1 s of processor time with 240 blocks, and is shown every second.
    """

    def __init__(self) -> None:
        self._blocks: tuple[PairedBlock, ...] | None = None
        self._estimate: SavingEstimate | None = None

    def of(self, blocks: Iterable[PairedBlock]) -> SavingEstimate | None:
        now = tuple(blocks)
        if now != self._blocks:
            self._blocks, self._estimate = now, estimate_saving(now)
        return self._estimate


def _fit_ratio(blocks: Sequence[PairedBlock], values: Array, kind: str) -> tuple[float, float]:
    """The logarithm of the ratio and its 95 % half-width."""
    kept = np.ones(len(blocks), dtype=bool)
    if len(blocks) >= _LEAST_FOR_OUTLIERS:
        kept &= ~_find_outliers(_fit_all(blocks, values, kept, kind))
        kept = kept if _has_both(blocks, kept) else np.ones(len(blocks), dtype=bool)
    fits = _fit_all(blocks, values, kept, kind)
    likelihood = np.array([fit.log_likelihood for fit in fits])
    weight = np.exp(likelihood - likelihood.max())
    weight /= weight.sum()
    ratios = np.array([fit.ratio for fit in fits])
    mean = float(weight @ ratios)
    variance = float(weight @ (np.array([fit.variance for fit in fits]) + (ratios - mean) ** 2))
    by_noise = float(weight @ np.array([fit.noise_variance for fit in fits]))
    by_priors = max(variance - by_noise, 0.0)
    factor = float(student(max(1, int(kept.sum()) - 3)))
    # Of few blocks, noise can pass for heat.
    factor_of_priors = _NORMAL_95 if kept.sum() >= _LEAST_FOR_PRIORS else factor
    return mean, math.sqrt(factor**2 * by_noise + factor_of_priors**2 * by_priors)


@dataclass(frozen=True)
class _Fit:
    """One fit; ``own_noise`` is each block's noise apart from drift, NaN where it was left out.

    ``noise_variance`` is the part of the variance that is estimated from the blocks; the rest is of
    the priors.
    """

    ratio: float
    variance: float
    noise_variance: float
    log_likelihood: float
    own_noise: Array


def _fit_all(blocks: Sequence[PairedBlock], values: Array, kept: Flags, kind: str) -> list[_Fit]:
    middle_s = np.array([(block.start_s + block.end_s) / 2 for block in blocks])
    is_choice = np.array([block.is_choice for block in blocks], dtype=float)
    span_s = max(middle_s[-1] - middle_s[0], 1e-9)
    trend = (middle_s - middle_s.mean()) / span_s
    block_s = float(np.median([block.end_s - block.start_s for block in blocks]))
    walk = np.minimum.outer(middle_s, middle_s)[np.ix_(kept, kept)] - middle_s[0]
    ones = np.ones(len(blocks))
    fits = []
    for heat_s in _HEAT_TIMES_S:
        start = np.exp(-(middle_s - middle_s[0]) / heat_s)
        excess = _excess_heat(blocks, heat_s, has_overhead=kind == "energy")
        columns = [ones, trend, is_choice, excess, start]
        design = np.stack(columns, axis=1)[kept]
        for share in _WALK_SHARES:
            covariance = np.eye(int(kept.sum())) + share / block_s * walk
            fits.append(_fit(design, values, kept, covariance, _HEAT_PRIORS[kind]))
    return fits


def _fit(
    design: Array, values: Array, kept: Flags, covariance: Array, heat: tuple[float, float]
) -> _Fit:
    """Generalised least squares with a prior on the last two coefficients, heat and start."""
    inverse = np.linalg.inv(covariance)
    centre = np.array([0.0, 0.0, 0.0, heat[0], 0.0])
    precision = np.diag([0.0, 0.0, 0.0, heat[1] ** -2, _START_DEVIATION**-2])
    offset = values[kept].mean()  # for the arithmetic only
    seen = values[kept] - offset
    information = design.T @ inverse @ design
    moment = design.T @ inverse @ seen
    variance = max(float(np.var(np.diff(seen))), _LEAST_NOISE**2)
    for _ in range(_VARIANCE_ROUNDS):
        posterior = np.linalg.inv(information / variance + precision)
        coefficients = posterior @ (moment / variance + precision @ centre)
        rest = seen - design @ coefficients
        # Each coefficient takes as much of a degree of freedom as the blocks decide it.
        taken = float(np.trace(posterior @ information)) / variance
        squares = float(rest @ inverse @ rest)
        variance = max(squares / max(len(seen) - taken, 1.0), _LEAST_NOISE**2)
    posterior = np.linalg.inv(information / variance + precision)
    off = coefficients - centre
    log_likelihood = -0.5 * (
        (len(seen) - 3) * math.log(variance)
        + float(np.linalg.slogdet(covariance)[1])
        + squares / variance
        + float(off @ precision @ off)
        + float(np.linalg.slogdet(information / variance + precision)[1])
    )
    by_noise = posterior @ information @ posterior / variance
    own = np.full(len(values), np.nan)
    own[kept] = inverse @ rest / math.sqrt(variance)
    ratio, variances = float(coefficients[2]), (float(posterior[2, 2]), float(by_noise[2, 2]))
    return _Fit(ratio, *variances, log_likelihood, own)


def _find_outliers(fits: Sequence[_Fit]) -> Flags:
    own = abs(max(fits, key=lambda fit: fit.log_likelihood).own_noise)
    scale = 1.4826 * float(np.median(own))  # of normal noise the standard deviation
    is_far = own > _OUTLIER_SIGMAS * max(scale, 1e-12)
    most = int(_MOST_OUTLIERS * len(own))
    if is_far.sum() > most:  # the farthest ones
        is_far &= own >= np.sort(own)[len(own) - most] if most else np.zeros_like(is_far)
    return np.asarray(is_far)


def _has_both(blocks: Sequence[PairedBlock], kept: Flags) -> bool:
    choices = np.array([block.is_choice for block in blocks])[kept]
    return len(choices) >= MIN_BLOCKS and 2 <= choices.sum() <= len(choices) - 2


def _excess_heat(blocks: Sequence[PairedBlock], heat_s: float, *, has_overhead: bool) -> Array:
    """How far the heat in each block is from what its setting leads to, as a share of its power.

    That is the power of the GPUs, ``has_overhead`` with what counts besides: heat changes the time
    of a step by a share of the former, and its whole energy by a share of the latter.

    Heat is told in the watts that would keep it: it follows power exponentially. The time between
    two blocks is given to the later one, whose setting was in force for most of it. Where it was
    before the first block is not known: it is taken as the mean of both settings.
    """
    own_w = {
        side: float(np.median([b.power_w for b in blocks if b.is_choice == side]))
        for side in (False, True)
    }
    heat_w = sum(own_w.values()) / 2
    excess, before_s = [], blocks[0].start_s
    for block in blocks:
        power_w = own_w[block.is_choice]
        heat_w = power_w + (heat_w - power_w) * math.exp(-(block.start_s - before_s) / heat_s)
        length = max((block.end_s - block.start_s) / heat_s, 1e-9)
        mean_w = power_w + (heat_w - power_w) * -math.expm1(-length) / length
        besides_w = block.overhead_w if has_overhead else 0.0
        excess.append((mean_w - power_w) / (power_w + besides_w))
        heat_w = power_w + (heat_w - power_w) * math.exp(-length)
        before_s = block.end_s
    return np.array(excess)


def compare_logged(
    name: str,
    reference: Sequence[tuple[float, float]],
    chosen: Sequence[tuple[float, float]],
) -> ProgramMetric | None:
    """A logged figure (loss, accuracy) at both settings; None where one of them has no value.

    Values come with the progress of the training at which they were logged (steps or epochs). A
    loss falls while the training goes on, whatever the setting, by a curve that nobody knows:
    settings are compared only where they alternate. Of each four stretches in a row the means are
    fitted by the difference of the settings and a line in the logarithm of the progress. The
    differences of all fours, which share no values, have the interval of their mean. Where there
    are too few, the difference is that of all values, and there is no verdict.
    """
    both = [(*pair, False) for pair in reference] + [(*pair, True) for pair in chosen]
    rows = sorted(row for row in both if math.isfinite(row[0]) and math.isfinite(row[1]))
    sides = np.array([row[2] for row in rows], dtype=bool)
    values = np.array([row[1] for row in rows])
    if sides.all() or not sides.any():
        return None
    means = [_mean_estimate(values[sides == side]) for side in (False, True)]
    differences = _local_differences(np.log1p([row[0] for row in rows]), values, sides)
    if len(differences) < _LEAST_FOURS:
        plain = StepEstimate(means[1].mean - means[0].mean)
        return ProgramMetric(name, means[0], means[1], plain, None)
    difference = _mean_estimate(differences)
    low, high = difference.low, difference.high
    differs = low is not None and high is not None and not low <= 0 <= high
    return ProgramMetric(name, means[0], means[1], difference, differs)


def _local_differences(progress: Array, values: Array, sides: Flags) -> Array:
    """Choice minus reference in each four stretches of values, which alternate."""
    ends = np.flatnonzero(np.diff(sides)) + 1
    places = [float(part.mean()) for part in np.split(progress, ends)]
    means = [float(part.mean()) for part in np.split(values, ends)]
    found = []
    for at in range(0, len(means) - 3, 4):
        is_choice = np.array([0.0, 1.0, 0.0, 1.0]) if not sides[0] else np.array([1.0, 0, 1, 0])
        place = np.array(places[at : at + 4]) - places[at]
        design = np.stack([np.ones(4), place, is_choice], axis=1)
        coefficients, _, rank, _ = np.linalg.lstsq(design, np.array(means[at : at + 4]), rcond=None)
        if rank == design.shape[1]:
            found.append(float(coefficients[2]))
    return np.array(found)


def _mean_estimate(values: Array) -> StepEstimate:
    mean = float(values.mean())
    if len(values) < 2:
        return StepEstimate(mean)
    half = float(student(len(values) - 1)) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return StepEstimate(mean, mean - half, mean + half)
