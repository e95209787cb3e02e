"""Which setting to run next: the one that is expected to make the choice most certain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from joulewise.search.decision import MetricJudgement, PosteriorSamples

# Simulated outcomes of a run, over which the gain is averaged. Chosen: the time to ask, some 10 ms,
# is in proportion to it, and the settings that compete differ little in gain.
_OUTCOMES: Final = 16
# How many runs of a setting are looked ahead: what a single one would change is mostly nothing.
_RUNS_AHEAD: Final = 2.0


def next_by_information_gain(
    samples: PosteriorSamples, judgements: Sequence[MetricJudgement], candidates: Sequence[int]
) -> int:
    """The candidate whose next run raises the expected probability of a correct choice most.

    A knowledge-gradient acquisition. The run is simulated: its outcome is that of some posterior
    samples plus noise. Given an outcome, all samples are weighted by their likelihood, and the best
    choice by these weights is as probable as its weighted mean of ``within``.
    """
    noise = np.random.default_rng(0).standard_normal((2, _OUTCOMES)) / np.sqrt(_RUNS_AHEAD)
    outcomes = np.linspace(0, len(samples.log_time) - 1, _OUTCOMES).astype(int)
    # In units of the noise of a run, so that likelihoods are those of standard normal numbers.
    scaled = np.stack(
        [
            samples.log_time / np.median(samples.time_noise),
            samples.log_power / np.median(samples.power_noise),
        ]
    )
    scaled -= scaled.mean(axis=1, keepdims=True)
    gains = []
    for candidate in candidates:
        expected = scaled[:, :, candidate]
        simulated = expected[:, outcomes] + noise
        log_likelihood = simulated.T @ expected - 0.5 * (expected**2).sum(axis=0)
        most = log_likelihood.max(axis=1, keepdims=True)
        weights = np.exp(_RUNS_AHEAD * (log_likelihood - most))
        correct = sum((weights @ judgement.within).max(axis=1) for judgement in judgements)
        gains.append((correct / weights.sum(axis=1)).mean())
    return candidates[int(np.argmax(gains))]
