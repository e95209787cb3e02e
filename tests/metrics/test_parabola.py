import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.data.sweeps import Setting, Trial, TrialState
from joulewise.metrics.evaluate import evaluate
from joulewise.metrics.power_caps import parabola
from tests.helpers.sweeps import grid, limit, sweep, trial

LIMITS = np.repeat(np.arange(150.0, 301, 25), 5)


def bowl(limits_w, lowest_w=200.0, steepness=0.01, bottom=50.0):
    return steepness * (limits_w - lowest_w) ** 2 + bottom


@given(st.floats(160, 290), st.floats(1e-4, 1e3), st.floats(1, 1e6))
def test_an_exact_parabola_is_found(lowest_w, steepness, bottom):
    fit = parabola("energy", LIMITS, bowl(LIMITS, lowest_w, steepness, bottom))
    assert fit.minimum_w == pytest.approx(lowest_w, abs=0.01 + 1e-8 * bottom / steepness)
    a, b, c = fit.coefficients
    drawn = a * LIMITS**2 + b * LIMITS + c
    assert drawn == pytest.approx(bowl(LIMITS, lowest_w, steepness, bottom), rel=1e-6)


def test_how_well_it_fits_is_told_by_single_runs():
    rng = np.random.default_rng(1)
    values = bowl(LIMITS) + rng.normal(0, 5, len(LIMITS))
    fit = parabola("energy", LIMITS, values)
    expected = np.polynomial.Polynomial.fit(LIMITS, values, 2)
    residual = ((values - expected(LIMITS)) ** 2).sum()
    r2 = 1 - residual / ((values - values.mean()) ** 2).sum()
    assert fit.r2 == pytest.approx(r2)
    assert fit.dof == 35 - 3
    assert fit.adjusted_r2 == pytest.approx(1 - (1 - r2) * 34 / 32)
    assert not fit.problem


def test_how_well_the_means_fit_stands_beside_it_also_where_it_is_refused():
    rng = np.random.default_rng(1)
    values = bowl(LIMITS) + rng.normal(0, 120, len(LIMITS))
    fit = parabola("energy", LIMITS, values)
    at, means = np.unique(LIMITS), values.reshape(-1, 5).mean(axis=1)
    expected = np.polynomial.Polynomial.fit(at, means, 2)
    r2 = 1 - ((means - expected(at)) ** 2).sum() / ((means - means.mean()) ** 2).sum()
    assert "of the spread" in fit.problem
    assert fit.means_r2 == pytest.approx(r2)
    assert fit.r2 < fit.means_r2
    limits_w = np.repeat([150.0, 200.0, 300.0], 5)
    three = parabola("energy", limits_w, bowl(limits_w) + rng.normal(0, 5, 15))
    assert three.means_r2 == pytest.approx(1)
    assert three.r2 < 1
    assert three.coefficients is None
    two = parabola("energy", limits_w[:10], bowl(limits_w[:10]))
    assert (two.r2, two.means_r2) == (None, None)


@pytest.mark.parametrize(
    ("limits_w", "values", "problem"),
    [
        (
            [150, 200, 300] * 5,
            bowl(np.array([150, 200, 300] * 5)),
            "at least 4 limits with finished runs are needed, not 3",
        ),
        (LIMITS, -bowl(LIMITS), "maximum instead of a minimum"),
        (LIMITS, np.full(len(LIMITS), 3.0), "all runs have the same value"),
        (LIMITS, np.random.default_rng(2).normal(9, 1, len(LIMITS)), "of the spread"),
    ],
)
def test_a_fit_that_fails_says_why(limits_w, values, problem):
    fit = parabola("energy", np.asarray(limits_w, float), np.asarray(values, float))
    assert problem in fit.problem


@pytest.mark.parametrize("lowest_w", [100.0, 320.0])
def test_a_curve_that_only_falls_or_rises_fits_and_has_no_minimum(lowest_w):
    fit = parabola("energy", LIMITS, bowl(LIMITS, lowest_w))
    assert not fit.problem
    assert fit.adjusted_r2 == pytest.approx(1)
    assert fit.minimum_w is None


def test_a_sweep_has_fits_of_energy_time_and_edp():
    made = grid(lambda w: (100 + (300 - w) / 3, bowl(w)), range(150, 301, 25), 300, noise=0.01)
    fits = {fit.quantity: fit for fit in evaluate(made).fits}
    assert set(fits) == {"energy", "time", "edp"}
    assert fits["energy"].minimum_w == pytest.approx(200, abs=3)
    assert fits["energy"].dof == 35 - 3
    assert not fits["energy"].problem


@pytest.mark.parametrize("seen", [{"capped": 0.0}, {"clock_mhz": 1500.0}])
def test_a_limit_that_never_binds_is_not_fitted(seen):
    made = grid(lambda w: (100, bowl(w)), range(150, 301, 25), 300, **seen)
    assert {fit.problem for fit in evaluate(made).fits} == {
        "no limit binds: the differences are noise"
    }


def test_every_combination_of_the_others_has_its_own():
    trials = [
        trial(limit(w, batch_size=size), block, 10.0, bowl(w, lowest) + block)
        for w in range(150, 301, 25)
        for size, lowest in (("32", 200), ("64", 250))
        for block in range(2)
    ]
    fits = evaluate(sweep(trials, limit(300, batch_size="32"))).fits
    lowest = {fit.where: fit.minimum_w for fit in fits if fit.quantity == "energy"}
    assert lowest == {
        Setting.of({"batch_size": "32"}): pytest.approx(200),
        Setting.of({"batch_size": "64"}): pytest.approx(250),
    }


def test_limits_that_were_tried_and_have_no_energy_are_counted():
    """It said that there were 0 limits."""
    trials = [
        Trial(limit(w), block, TrialState.DONE, time_s=100.0 - w / 10, energy={})
        for w in range(150, 301, 25)
        for block in range(2)
    ]
    problems = {fit.quantity: fit.problem for fit in evaluate(sweep(trials, limit(300))).fits}
    assert problems["energy"] == "no energy is known at any of the 7 limits"
    assert problems["edp"] == problems["energy"]
    assert "energy" not in problems["time"]
