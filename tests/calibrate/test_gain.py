"""An unknown gain is found with a simulated wall meter."""

import numpy as np
import pytest

from joulewise.calibrate.gain import Meter, ReportedEnergy, fit_gains
from joulewise.data import Unavailable
from joulewise.record.sensor_profiles import CalibratedValue
from tests.helpers.square_wave import waves

SUPPLY = CalibratedValue(0.93, 0.01)


def boards(draw, count, seconds=105.0):
    """True energy over time of boards under slow loads of their own, and the gain of each."""
    t_s = np.arange(0, seconds, 0.02)
    true_w = []
    for _ in range(count):
        on_s, off_s = waves(seconds, 4.0, 10.0, seed=int(draw.integers(1 << 30)), lead_s=0.0)
        busy = np.searchsorted(on_s, t_s) > np.searchsorted(off_s, t_s)
        true_w.append(50.0 + 150.0 * busy)
    return t_s, true_w, draw.normal(1.0, 0.025, count)


def metered(draw, t_s, true_w, *, ahead_s=0.0, average_s=1.0, noise_w=1.0):
    """A node that draws 250 W besides, slowly more, behind a supply near what is stated."""
    efficiency = draw.normal(SUPPLY.value, SUPPLY.error / 1.96)
    joules = np.cumsum(np.sum(true_w, axis=0) + 250 + 5 * t_s / t_s[-1]) * (t_s[1] - t_s[0])
    at_s = np.arange(t_s[0] + average_s, t_s[-1], 1.0)
    power_w = (np.interp(at_s, t_s, joules) - np.interp(at_s - average_s, t_s, joules)) / average_s
    return Meter(at_s + ahead_s, power_w / efficiency + noise_w * draw.standard_normal(at_s.size))


def drawn(t_s, power_w, gain):
    return ReportedEnergy(t_s, np.cumsum(power_w * gain) * (t_s[1] - t_s[0]))


def test_the_gain_lies_within_its_error():
    draw = np.random.default_rng(5)
    inside = []
    for _ in range(12):
        t_s, true_w, (gain,) = boards(draw, 1)
        ahead_s, average_s = draw.uniform(-20, 20), draw.uniform(0.5, 2)
        meter = metered(draw, t_s, true_w, ahead_s=ahead_s, average_s=average_s)
        found = fit_gains(meter, [drawn(t_s, true_w[0], gain)], SUPPLY)
        assert found.ahead_s == pytest.approx(ahead_s, abs=0.3)
        (figure,) = found.gains
        assert figure.error < 0.035
        inside.append(abs(figure.value - gain) <= figure.error)
    assert sum(inside) >= 11


def test_two_boards_are_distinguished():
    draw = np.random.default_rng(2)
    t_s, true_w, gains = boards(draw, 2, seconds=200.0)
    found = fit_gains(
        metered(draw, t_s, true_w),
        [drawn(t_s, watts, gain) for watts, gain in zip(true_w, gains, strict=True)],
        SUPPLY,
    )
    for figure, gain in zip(found.gains, gains, strict=True):
        assert abs(figure.value - gain) <= figure.error


def test_boards_that_only_move_together_are_not():
    draw = np.random.default_rng(3)
    t_s, (true_w,), _ = boards(draw, 1)
    same = drawn(t_s, true_w, 1.0)
    found = fit_gains(metered(draw, t_s, [true_w, true_w]), [same, same], SUPPLY)
    assert all("only along with" in gain.reason for gain in found.gains)


def test_an_unknown_efficiency_widens_the_error():
    draw = np.random.default_rng(4)
    t_s, true_w, (gain,) = boards(draw, 1)
    meter, board = metered(draw, t_s, true_w), drawn(t_s, true_w[0], gain)
    narrow, wide = (
        fit_gains(meter, [board], CalibratedValue(0.93, e)).gains[0] for e in (0.0, 0.05)
    )
    assert wide.error > 2 * narrow.error
    assert narrow.error >= 0.02  # what else goes up with the load is never known


def test_a_log_of_another_time_is_refused():
    draw = np.random.default_rng(6)
    t_s, true_w, (gain,) = boards(draw, 1)
    meter = metered(draw, t_s, true_w, ahead_s=7200.0)
    why = fit_gains(meter, [drawn(t_s, true_w[0], gain)], SUPPLY)
    assert "no minute in common" in why.reason


def test_a_node_with_other_work_is_refused():
    draw = np.random.default_rng(7)
    t_s, true_w, (gain,) = boards(draw, 1)
    _, others, _ = boards(draw, 4)
    why = fit_gains(metered(draw, t_s, others), [drawn(t_s, true_w[0], gain)], SUPPLY)
    assert "the GPU explains only" in why.reason


def test_loads_shorter_than_the_meter_sees_are_refused():
    draw = np.random.default_rng(8)
    t_s = np.arange(0, 100, 0.02)
    true_w = 100 + 100 * (t_s % 2.7 < 1.3)
    why = fit_gains(metered(draw, t_s, [true_w]), [drawn(t_s, true_w, 1.0)], SUPPLY)
    assert isinstance(why, Unavailable)
