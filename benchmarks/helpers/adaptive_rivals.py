"""What else could have chosen a limit: all runs, one limit for all, or luck."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from helpers.adaptive_cases import Curve
from joulewise.metrics.metric import Metric, Reference

REPEATS = 5


def full_grid(curve: Curve, metric: Metric, noise: float, seed: int) -> tuple[int, float]:
    """Every limit five times: the least mean, and the saving that these runs state."""
    which = range(len(curve.limits_w))
    runs = np.array(
        [[curve.run(at, noise, "grid", seed, n) for n in range(REPEATS)] for at in which]
    )
    time_s, energy_j = runs.mean(axis=1).T
    return _least(curve, metric, time_s, energy_j)


def luck(
    curve: Curve, metric: Metric, noise: float, seed: int, runs: int
) -> tuple[int, float, float]:
    """As many runs as the search took: the reference once, and limits at random.

    Besides the choice and the saving: by how much the score of the run that won is too good.
    """
    draw = np.random.default_rng(seed)
    tried = draw.choice(len(curve.limits_w) - 1, size=runs - 1, replace=False)
    time_s = np.full(len(curve.limits_w), np.inf)
    energy_j = time_s.copy()
    for at in (*tried, len(curve.limits_w) - 1):
        time_s[at], energy_j[at] = curve.run(int(at), noise, "luck", metric.name, seed)
    chosen, saving = _least(curve, metric, time_s, energy_j)
    truly = Reference(curve.time_s[-1], curve.energy_j[-1], float(curve.limits_w[-1]))
    seen = float(metric.score(time_s[chosen], energy_j[chosen], truly))
    return chosen, saving, 1 - seen / float(curve.scores(metric)[chosen])


def best_constant(curves: Sequence[Curve], metric: Metric, tolerance: float) -> list[int]:
    """For each curve the one limit of its board that, in hindsight, does for most of them."""
    chosen = {}
    for board in {curve.board for curve in curves}:
        losses = np.array([curve.losses(metric) for curve in curves if curve.board == board])
        chosen[board] = int((losses <= tolerance).sum(axis=0).argmax())
    return [chosen[curve.board] for curve in curves]


def _least(
    curve: Curve, metric: Metric, time_s: NDArray[np.float64], energy_j: NDArray[np.float64]
) -> tuple[int, float]:
    reference = Reference(time_s[-1], energy_j[-1], float(curve.limits_w[-1]))
    chosen = int(np.argmin(metric.score(time_s, energy_j, reference)))
    return chosen, float(1 - energy_j[chosen] / energy_j[-1])
