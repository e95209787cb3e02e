"""Curves of several runs on one grid: cubic, and masked where a run has ended."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.analyse.curves.series import Curve, average_curves, cubic, grid

brief = settings(max_examples=60, deadline=None)
times = st.lists(st.floats(0.05, 2.0), min_size=3, max_size=30).map(np.cumsum)
numbers = st.floats(-100, 100)


@brief
@given(times, numbers, numbers, numbers)
def test_a_parabola_comes_back(t_s, a, b, c):
    def parabola(at):
        return a + b * at + c * at**2

    grid_s = np.linspace(t_s[0], t_s[-1], 50)
    found = cubic(Curve(t_s, parabola(t_s)), grid_s)
    assert found == pytest.approx(parabola(grid_s), abs=1e-6 * (1 + np.abs(parabola(t_s)).max()))


@brief
@given(times, st.integers(0, 5))
def test_it_goes_through_every_reading(t_s, seed):
    values = np.random.default_rng(seed).normal(200, 50, len(t_s))
    assert cubic(Curve(t_s, values), t_s) == pytest.approx(values)


def test_before_its_start_and_after_its_end_a_run_is_not_there():
    found = cubic(Curve(np.array([1.0, 2.0, 3.0]), np.ones(3)), np.array([0.9, 1.0, 3.0, 3.1]))
    assert np.isnan(found).tolist() == [True, False, False, True]


def test_what_was_not_read_is_bridged():
    found = cubic(Curve(np.arange(4.0), np.array([1.0, np.nan, 1.0, 1.0])), np.array([1.0]))
    assert found == pytest.approx([1.0])


def test_the_mean_is_of_the_runs_that_are_still_there():
    short, long = (Curve(np.arange(n + 1.0), np.full(n + 1, float(n))) for n in (4, 8))
    found = average_curves([short, long, long], np.arange(9.0))
    assert found.count.tolist() == [3] * 5 + [2] * 4
    assert found.mean == pytest.approx([20 / 3] * 5 + [8.0] * 4)
    assert found.sigma == pytest.approx([np.std([4, 8, 8], ddof=1)] * 5 + [0.0] * 4)


def test_one_run_alone_has_no_deviation():
    found = average_curves([Curve(np.arange(3.0), np.ones(3))], np.arange(4.0))
    assert found.count.tolist() == [1, 1, 1, 0]
    assert np.isnan(found.sigma).all()
    assert np.isnan(found.mean[-1])


def test_two_new_values_a_second_make_a_grid_of_4_hz():
    assert np.diff(grid(60.0, 2.0, 10_000)) == pytest.approx(np.full(240, 0.25))
    assert len(grid(3600.0, 50.0, 600)) == 601
