"""The prior's curves obey physics at every setting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.optimise.live import TuningCandidate
from joulewise.optimise.live.policy.response_model import PARAMETERS, Positions, curves_of
from tests.optimise.live.policy.training_curves import clocks, limits


def draw_curves(candidates, seed=0, count=300):
    loads = np.random.default_rng(seed).random((count, PARAMETERS))
    return curves_of(loads, Positions.of(candidates))


@settings(max_examples=20)
@given(st.integers(0, 1000), st.sampled_from(["limits", "clocks"]))
def test_more_power_or_clock_is_never_slower_and_never_draws_less(seed, axis):
    candidates = {"limits": limits(), "clocks": clocks()}[axis]
    curves = draw_curves(candidates, seed)
    assert np.isfinite(curves.log_time).all()
    assert (np.diff(curves.log_time) <= 1e-9).all()
    assert np.mean(np.diff(curves.log_power) >= -1e-9) > 0.9  # all but where the host draws more


def test_slower_memory_takes_longer_and_draws_less():
    candidates = [TuningCandidate(500.0, 1500.0, mhz) for mhz in (405.0, 5001.0, 9501.0)]
    curves = draw_curves([*candidates, TuningCandidate(2000.0, 1500.0, 9501.0)])
    binds = curves.clock[:, 2] < 1  # less power for the memory leaves more for the cores
    assert (np.diff(curves.log_time[~binds, :3]) <= 1e-9).all()
    assert curves.log_time[:, 0].mean() > curves.log_time[:, 2].mean() + 0.1
    assert curves.log_power[:, 0].mean() < curves.log_power[:, 2].mean()


def test_a_limit_holds_the_power_or_the_clock_is_at_its_floor():
    curves = draw_curves(limits(), count=2000)
    held = curves.clock < 1
    assert 0.2 < held.mean() < 0.95  # some limits bind and some do not, under the prior
    assert (np.diff(curves.clock) >= -1e-9).all()


def test_a_limit_out_of_reach_changes_nothing():
    candidates = [
        TuningCandidate(power_limit_w=limit_w, sm_clock_mhz=clock_mhz)
        for limit_w in (150.0, 300.0)
        for clock_mhz in (300.0, 1500.0)
    ]
    curves = draw_curves(candidates, count=2000)
    same = curves.clock[:, 0] == curves.clock[:, 2]
    assert same.mean() > 0.5  # at 300 MHz, most loads draw less than 150 W
    assert curves.log_time[same, 0] == pytest.approx(curves.log_time[same, 2])
    assert curves.log_power[same, 0] == pytest.approx(curves.log_power[same, 2])


def test_a_control_that_is_not_set_is_at_its_highest():
    candidates = [TuningCandidate(), TuningCandidate(sm_clock_mhz=1500.0)]
    curves = draw_curves(candidates)
    assert curves.log_time[:, 0] == pytest.approx(curves.log_time[:, 1])


def test_a_limit_holds_the_power_of_a_load_that_is_always_busy():
    loads = np.random.default_rng(1).random((2000, PARAMETERS))
    loads[:, 7] = 0.0  # no time beside the busy part
    values_w = np.arange(100.0, 301.0, 20.0)
    curves = curves_of(loads, Positions.of(limits(values_w)))
    power = 0.35 * (2.0 / 0.35) ** loads[:, :1] * np.exp(curves.log_power)
    floor = 0.05 + 0.4 * loads[:, 6:7]
    is_held = (curves.clock < 1) & (curves.clock > floor)
    assert is_held.mean() > 0.2
    assert power[is_held] == pytest.approx(np.broadcast_to(values_w / 300, power.shape)[is_held])


def test_some_loads_overlap_memory_and_compute():
    """Their time hardly depends on the highest clocks, and steeply on low ones."""
    curves = draw_curves(clocks([600.0, 1350.0, 1500.0]), count=2000)
    slow, near, _ = np.expm1(curves.log_time - curves.log_time[:, -1:])[curves.clock[:, 2] == 1].T
    share = near / slow
    one_after_the_other = (1 / 0.9 - 1) / (1 / 0.4 - 1)
    assert share.max() <= one_after_the_other + 0.02
    assert share.min() < 0.8 * one_after_the_other


def test_some_loads_have_a_voltage_that_bends():
    """Their power falls the less, the lower the clock already is, even where memory is not."""
    loads = np.random.default_rng(2).random((2000, PARAMETERS))
    loads[:, [0, 2, 3, 7]] = 0.0  # no limit binds, a low knee, no slope, always busy
    curves = curves_of(loads, Positions.of(clocks([750.0, 1125.0, 1500.0])))
    low, middle, high = np.exp(curves.log_power).T
    bent = (high - middle) / (middle - low)
    assert bent.min() >= 1 - 1e-9
    assert bent.max() > 2
