"""Simulated boards that differ from the tables: a small part of benchmarks/truth.py.

Each bound leaves room for three standard deviations of so few windows.
"""

import numpy as np
import pytest
from helpers.truth_windows import FAMILIES, Setup
from truth import many

EACH = 8
SEED = 77


@pytest.fixture(scope="module")
def judged_windows():
    return many(SEED, EACH)


def test_the_truth_is_inside(judged_windows):
    assert judged_windows.sensed_covered > 0.91
    assert judged_windows.energy_covered > 0.91


@pytest.mark.parametrize("family", FAMILIES)
def test_the_truth_is_inside_for_each_load(judged_windows, family):
    part = judged_windows.only(judged_windows.family == family)
    assert part.sensed_covered > 0.8
    assert part.energy_covered > 0.8


def test_the_error_is_no_wider_than_it_must_be(judged_windows):
    assert judged_windows.width < 1.5
    steady = judged_windows.only(judged_windows.family == "constant")
    assert np.median(steady.sampling / steady.value) < 1e-4


def test_without_a_counter_where_the_load_is_not_in_step_with_the_sensor():
    judged_windows = many(SEED + 1, 4, Setup(counter=False))
    locked = judged_windows.family == "locked"
    assert judged_windows.only(~locked).sensed_covered > 0.85
    assert (
        np.mean((judged_windows.off <= judged_windows.sampling + judged_windows.blind)[locked])
        > 0.9
    )
