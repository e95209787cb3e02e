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
def found():
    return many(SEED, EACH)


def test_the_truth_is_inside(found):
    assert found.sensed_covered > 0.91
    assert found.energy_covered > 0.91


@pytest.mark.parametrize("family", FAMILIES)
def test_the_truth_is_inside_for_each_load(found, family):
    part = found.only(found.family == family)
    assert part.sensed_covered > 0.8
    assert part.energy_covered > 0.8


def test_the_error_is_no_wider_than_it_must_be(found):
    assert found.width < 1.5
    steady = found.only(found.family == "constant")
    assert np.median(steady.sampling / steady.value) < 1e-4


def test_without_a_counter_where_the_load_is_not_in_step_with_the_sensor():
    found = many(SEED + 1, 4, Setup(counter=False))
    locked = found.family == "locked"
    assert found.only(~locked).sensed_covered > 0.85
    assert np.mean((found.off <= found.sampling + found.blind)[locked]) > 0.9
