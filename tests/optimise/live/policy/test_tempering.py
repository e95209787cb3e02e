"""Tempering finds the mass of a posterior, its width and its evidence, however narrow it is."""

from __future__ import annotations

import numpy as np
import pytest

from joulewise.optimise.live.policy.tempering import sample_tempered

DIMENSIONS = 6
CENTRE = np.linspace(0.3, 0.7, DIMENSIONS)


def sample(log_likelihood, seed=0):
    rng = np.random.default_rng(seed)
    return sample_tempered(log_likelihood, rng.random((1000, DIMENSIONS)), 256, rng)


@pytest.mark.parametrize("sigma", [0.2, 0.02, 0.005])
def test_a_normal_posterior(sigma):
    def log_likelihood(points):
        return -0.5 * (((points - CENTRE) / sigma) ** 2).sum(axis=1)

    found = [sample(log_likelihood, seed) for seed in range(12)]
    points = np.concatenate([each.points for each in found])
    if sigma < 0.1:  # at 0.2 the cube cuts it off
        assert abs(points.mean(axis=0) - CENTRE).max() < 0.3 * sigma
        assert points.std(axis=0).mean() == pytest.approx(sigma, rel=0.2)
        exact = DIMENSIONS * np.log(np.sqrt(2 * np.pi) * sigma)
        assert np.mean([each.log_evidence for each in found]) == pytest.approx(exact, abs=1.5)
    assert all(len(np.unique(each.points, axis=0)) > 200 for each in found)
    assert ((points >= 0) & (points <= 1)).all()


def test_a_posterior_of_two_peaks_keeps_both():
    def log_likelihood(points):
        peaks = [
            -0.5 * (((points - centre) / 0.04) ** 2).sum(axis=1) for centre in (CENTRE, 1 - CENTRE)
        ]
        return np.logaddexp(*peaks)

    shares = [(sample(log_likelihood, seed).points[:, 0] < 0.5).mean() for seed in range(6)]
    assert 0.2 < np.mean(shares) < 0.8
