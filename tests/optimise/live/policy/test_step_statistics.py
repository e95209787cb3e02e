"""Means of steps and their noise: exact without outliers, robust with them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.optimise.live.policy.step_statistics import StepStatistics

LOOK = st.lists(
    st.tuples(st.floats(-0.01, 0.01), st.floats(-0.01, 0.01)), min_size=1, max_size=20
).map(np.array)


@given(st.lists(LOOK, min_size=1, max_size=5), st.floats(-5, 5))
def test_means_are_those_of_all_steps_and_move_with_the_level(looks, level):
    seen, moved = StepStatistics(), StepStatistics()
    for look in looks:
        seen.add(3, look)
        moved.add(3, look + level)
    steps = np.concatenate(looks)
    assert seen.means[3].steps == len(steps)
    assert seen.means[3].mean == pytest.approx(steps.mean(axis=0), abs=1e-12)
    assert moved.means[3].mean == pytest.approx(steps.mean(axis=0) + level, abs=1e-9)
    assert moved.noise == pytest.approx(seen.noise, rel=1e-6)


def add_looks(make_look, count=30):
    rng, seen = np.random.default_rng(5), StepStatistics()
    for number in range(count):
        seen.add(number % 3, make_look(rng))
    return seen


@pytest.mark.parametrize("sigma", [0.002, 0.05])
def test_noise_is_learned(sigma):
    seen = add_looks(lambda rng: rng.normal(0, sigma, (20, 2)))
    assert seen.noise == pytest.approx([sigma, sigma], rel=0.4)


def test_autocorrelated_steps_have_wider_means():
    def look(rng, rho=0.7):
        values = np.zeros((20, 2))
        for i in range(1, 20):
            values[i] = rho * values[i - 1] + rng.normal(0, 0.01, 2)
        return values

    independent = add_looks(lambda rng: rng.normal(0, 0.014, (20, 2)))
    correlated = add_looks(look)
    assert (correlated.noise > 1.3 * independent.noise).all()


def test_a_step_with_a_validation_is_left_out():
    def look(rng):
        values = rng.normal(0, 0.01, (10, 2))
        values[4] += np.log(10)
        return values

    seen = add_looks(look)
    assert sum(each.steps for each in seen.means.values()) == 30 * 9
    assert all(abs(each.mean).max() < 0.01 for each in seen.means.values())
    assert seen.noise == pytest.approx([0.01, 0.01], rel=0.4)


def test_uneven_steps_all_count():
    def look(rng):
        values = rng.normal(0, 0.01, (12, 2))
        values[::3] += np.log(1.5)  # every third step has more work
        return values

    seen = add_looks(look)
    assert sum(each.steps for each in seen.means.values()) == 30 * 12
    for each in seen.means.values():
        assert each.mean == pytest.approx(np.full(2, np.log(1.5) / 3), abs=0.01)


def test_a_mean_of_steps_is_thought_to_be_less_noisy():
    single, blocks = StepStatistics(), StepStatistics(steps_in_value=4)
    assert blocks.noise == pytest.approx(single.noise / 2)
    # But its steps are not all independent.
    assert (StepStatistics(steps_in_value=1000).noise > single.noise / 3).all()
    # And what was seen counts for more than what was thought.
    seen = np.random.default_rng(1).normal(0, 0.05, (200, 2))
    blocks.add(0, seen)
    assert blocks.noise == pytest.approx(np.full(2, 0.05), rel=0.15)
