"""Student's quantiles, beside those of scipy."""

import numpy as np
import pytest
from scipy.special import stdtrit

from joulewise.analyse.student_t import t_quantile


@pytest.mark.parametrize("p", [0.75, 0.975, 0.99918, 0.9999])
def test_they_are_those_of_scipy(p):
    dof = np.array([1, 2, 3, 4, 5, 7.5, 10, 30, 100, 616, 1000, 10_000])
    assert t_quantile(dof, p) == pytest.approx(stdtrit(dof, p), rel=2e-4)


def test_many_degrees_of_freedom_are_as_good_as_more():
    assert t_quantile(1e9, 0.975) == pytest.approx(1.96, abs=1e-3)


def test_without_a_degree_of_freedom_there_is_none():
    found = t_quantile([[0, 1], [4, 0.5]], 0.975)
    assert np.isnan(found).tolist() == [[True, False], [False, True]]
