"""Conditioning on values and on lower bounds, against plain arithmetic and rejection sampling."""

from __future__ import annotations

import math

import numpy as np
import pytest

from joulewise.optimise.recurring.policy.curve_mixture import (
    CurveMixture,
    CurveValues,
    LowerBounds,
    log_survival,
    smooth_covariance,
)

POSITIONS = np.arange(4.0)


def mixture():
    means = np.array([[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 2.0, 3.0]])
    return CurveMixture(means, smooth_covariance(POSITIONS, 0.5, 1.0), np.zeros(2))


def test_a_value_moves_its_place_and_its_neighbours():
    values = CurveValues(np.array([1]), np.array([1.2]), np.array([[1e-6]]))
    curves = mixture().condition(values).sample(LowerBounds.none(), 4000, np.random.default_rng(0))
    assert curves[:, 1].mean() == pytest.approx(1.2, abs=0.01)
    assert curves[:, 1].std() < 0.01
    # The shape that grows had the larger likelihood: exp(-0.5 * (0.2² - 1.2²) / 0.25) to 1.
    odds = math.exp(-0.5 * (0.2**2 - 1.2**2) / 0.25)
    gain = math.exp(-0.5 * 4)
    expected = (odds * (3 + 0.2 * gain) + 1.2 * gain) / (odds + 1)
    assert curves[:, 3].mean() == pytest.approx(expected, abs=0.05)


def test_lower_bounds_agree_with_rejection_sampling():
    rng = np.random.default_rng(1)
    bounds = LowerBounds(np.array([0, 2]), np.array([0.3, 1.0]), np.array([0.04, 0.04]))
    curves = mixture().sample(bounds, 20_000, rng)
    free = mixture().sample(LowerBounds.none(), 400_000, rng)
    noisy = free[:, [0, 2]] + 0.2 * rng.standard_normal((len(free), 2))
    wanted = free[(noisy > [0.3, 1.0]).all(axis=1)]
    np.testing.assert_allclose(curves.mean(axis=0), wanted.mean(axis=0), atol=0.03)
    np.testing.assert_allclose(curves.std(axis=0), wanted.std(axis=0), atol=0.03)


def test_density_and_exceedance_of_one_place():
    rng = np.random.default_rng(2)
    drawn = mixture().sample(LowerBounds.none(), 400_000, rng)[:, 3]
    drawn = drawn + 0.1 * rng.standard_normal(len(drawn))
    above = math.exp(mixture().log_exceedance(3, 2.5, 0.01))
    assert above == pytest.approx((drawn > 2.5).mean(), abs=0.005)
    density = math.exp(mixture().log_density(3, 2.5, 0.01))
    assert density == pytest.approx((abs(drawn - 2.5) < 0.1).mean() / 0.2, rel=0.05)


@pytest.mark.parametrize("z", [-5.0, 0.0, 1.96, 10.0])
def test_log_survival(z):
    exact = math.log(0.5 * math.erfc(z / math.sqrt(2)))
    assert log_survival(np.array([z]))[0] == pytest.approx(exact, abs=1e-6)
