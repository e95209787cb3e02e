"""Steps by what the GPUs show: waves of power, or the work that they do."""

from itertools import pairwise

import numpy as np
import pytest

from joulewise.data.tuning import StepSource
from joulewise.optimise.live.load_signal import (
    ActivitySteps,
    LoadPeriod,
    LoadReadings,
    PowerSteps,
    find_load_period,
    find_steady_rate,
)
from joulewise.optimise.live.unmarked_steps import UnmarkedSteps

S = 10**9
EMPTY = np.zeros(0, np.int64), np.zeros(0)


def power(lengths_s, *, duty=0.6, high_w=250.0, noise_w=5.0, start_s=100.0, seed=0):
    """Readings every 20 ms of waves of these lengths, each high for its first part."""
    rng = np.random.default_rng(seed)
    starts_s = start_s + np.concatenate([[0.0], np.cumsum(lengths_s)])
    t_s = np.arange(start_s, starts_s[-1], 0.02)
    wave = np.searchsorted(starts_s, t_s, side="right") - 1
    is_high = t_s - starts_s[wave] < duty * np.asarray(lengths_s)[wave]
    power_w = np.where(is_high, high_w, 60.0) + rng.normal(0, noise_w, len(t_s))
    return (t_s * S).astype(np.int64), power_w, starts_s


def readings(power_series=EMPTY, work_series=EMPTY, utilisation=0.95):
    used = np.full(len(work_series[0]), utilisation)
    return LoadReadings(*power_series, *work_series, used)


def test_waves_of_power_have_a_period():
    t_ns, power_w, _ = power([1.6] * 20)
    period = find_load_period(readings((t_ns, power_w)))
    assert period.period_s == pytest.approx(1.6, rel=0.01)
    assert period.likeness > 0.9
    assert period.spread < 0.03


@pytest.mark.parametrize(
    "lengths_s",
    [
        np.random.default_rng(2).exponential(1.5, 25) + 0.2,  # at random
        [1.6] * 6,  # too few
        [0.1] * 300,  # too short for the sensor
    ],
)
def test_other_loads_have_none(lengths_s):
    t_ns, power_w, _ = power(lengths_s)
    assert isinstance(find_load_period(readings((t_ns, power_w))), str)


@pytest.mark.parametrize(("longest", "has_period"), [(1.4, True), (2.2, False)])
def test_waves_that_differ_too_much_in_length_are_no_period(longest, has_period):
    """They are alike in form; by how much lengths differ decides, at 15 % (standard deviation)."""
    lengths_s = 1.6 * np.array([1.0] * 10 + [longest] + [1.0] * 9)
    t_ns, power_w, _ = power(lengths_s)
    found = find_load_period(readings((t_ns, power_w)))
    assert isinstance(found, LoadPeriod) == has_period, found


def test_waves_within_waves_are_one_period():
    t_ns, power_w, _ = power(np.tile([0.6, 2.4], 12))
    assert find_load_period(readings((t_ns, power_w))).period_s == pytest.approx(3, rel=0.01)


def test_noise_has_none():
    t_ns = np.arange(0, 30 * S, S // 50)
    noise = 200 + np.random.default_rng(1).normal(0, 40, len(t_ns))
    assert isinstance(find_load_period(readings((t_ns, noise))), str)


def test_each_wave_is_a_step_though_readings_come_bit_by_bit_and_the_power_falls():
    lengths_s = [1.6] * 15 + [1.9] * 15
    t_ns, power_w, starts_s = power(lengths_s)
    power_w = np.where(t_ns > starts_s[15] * S, 60 + 0.6 * (power_w - 60), power_w)
    period = find_load_period(readings((t_ns[:1000], power_w[:1000])))
    steps, follower = [], PowerSteps(period)
    for end in range(0, len(t_ns), 37):
        steps += follower.add(readings((t_ns[:end], power_w[:end])))
    assert 25 <= len(steps) <= 29
    # The first waves of the lower power are below the middle between the old low and high.
    assert sum(a.end_ns != b.start_ns for a, b in pairwise(steps)) <= 1
    taken_s = [(step.end_ns - step.start_ns) / S for step in steps]
    assert np.mean(taken_s[:8]) == pytest.approx(1.6, rel=0.01)
    assert np.mean(taken_s[-8:]) == pytest.approx(1.9, rel=0.01)


def test_a_pause_between_waves_is_no_step():
    t_ns, power_w, starts_s = power([1.6] * 12 + [9.0] + [1.6] * 12, duty=0.6)
    late = (t_ns > (starts_s[12] + 0.9) * S) & (t_ns < starts_s[13] * S)
    power_w = np.where(late, 60.0, power_w)
    period = find_load_period(readings((t_ns[:900], power_w[:900])))
    steps = []
    follower = PowerSteps(period)
    for end in range(0, len(t_ns), 50):
        steps += follower.add(readings((t_ns[:end], power_w[:end])))
    assert max(step.end_ns - step.start_ns for step in steps) < 3 * S


def work(rate_of, seconds=40.0):
    t_s = np.arange(0.0, seconds, 0.17)
    return (t_s * S).astype(np.int64), np.array([rate_of(t) for t in t_s])


def test_pseudo_steps_take_as_much_longer_as_the_clock_is_lower():
    t_ns, done = work(lambda t_s: 1400.0 if t_s < 20 else 700.0)
    rate = find_steady_rate(readings(work_series=(t_ns[:100], done[:100])))
    assert rate == pytest.approx(1400)
    steps, follower = [], ActivitySteps(rate)
    for end in range(0, len(t_ns), 3):
        steps += follower.add(readings(work_series=(t_ns[:end], done[:end])))
    taken_s = [(step.end_ns - step.start_ns) / S for step in steps]
    assert all(a.end_ns == b.start_ns for a, b in pairwise(steps))
    assert np.allclose(taken_s[:35], 0.5, rtol=0.01)
    assert np.allclose(taken_s[-15:], 1.0, rtol=0.01)


def test_a_load_that_varies_or_is_small_is_not_steady():
    rng = np.random.default_rng(3)
    t_ns, varying = work(lambda t_s: 1400 * (0.6 + 0.4 * np.sin(t_s / 3)) * rng.uniform(0.9, 1.1))
    assert isinstance(find_steady_rate(readings(work_series=(t_ns, varying))), str)
    t_ns, small = work(lambda _: 100.0)
    few = readings(work_series=(t_ns, small), utilisation=0.2)
    assert isinstance(find_steady_rate(few), str)


class Job:
    """A job that marks ``steps``, and whose GPUs show ``shown``."""

    is_inferred = False

    def __init__(self, shown, steps=()):
        self.shown, self.steps = shown, list(steps)

    def poll(self):
        steps, self.steps = self.steps, []
        return steps

    def has_lost_rank(self, _now_ns):
        return ""


def follow(shown, until_s, steps=()):
    job = Job(shown, steps)
    load = type("Load", (), {"poll": lambda _: shown})()
    follower = UnmarkedSteps(job, load)
    fault = ""
    for t_s in range(until_s):
        follower.poll()
        fault = fault or follower.has_lost_rank(t_s * S)
    return follower, fault


def both(lengths_s, rate_of):
    t_ns, power_w, _ = power(lengths_s, start_s=0.0)
    return readings((t_ns, power_w), work(rate_of, 40))


def test_the_source_is_the_first_that_is_good_enough():
    steady, waves = (lambda _: 1400.0), [1.6] * 25
    assert follow(both(waves, steady), 38)[0].source is StepSource.POWER
    flat = np.random.default_rng(4).exponential(1.5, 25) + 0.2
    assert follow(both(flat, steady), 38)[0].source is StepSource.ACTIVITY
    assert follow(both(waves, steady), 20)[0].source is StepSource.MARKS  # too early


def test_marks_are_never_replaced():
    follower, fault = follow(both([1.6] * 25, lambda _: 1400.0), 200, steps=["a step"])
    assert (follower.source, fault) == (StepSource.MARKS, "")


def test_marks_that_come_late_replace_what_the_gpu_shows():
    """As of a program whose first step is compiled for a minute."""
    shown = both([1.6] * 25, lambda _: 1400.0)
    job = Job(shown)
    follower = UnmarkedSteps(job, type("Load", (), {"poll": lambda _: shown})())
    for t_s in range(40):
        follower.poll()
        follower.has_lost_rank(t_s * S)
    assert follower.source is StepSource.POWER
    job.steps = ["a step"]
    assert follower.poll() == ["a step"]
    assert (follower.source, follower.note) == (StepSource.MARKS, "")
    assert follower.has_lost_rank(1000 * S) == ""


def test_where_none_is_good_enough_a_reason_is_given():
    rng = np.random.default_rng(5)
    shown = both(rng.exponential(1.5, 25) + 0.2, lambda _: 1400 * rng.uniform(0, 1))
    assert follow(shown, 55)[1] == ""
    follower, fault = follow(shown, 120)
    assert follower.source is StepSource.MARKS
    assert fault.startswith("the program marked no steps")


def test_an_idle_gpu_is_waited_for():
    shown = readings(work_series=work(lambda _: 0.0), utilisation=0.0)
    assert follow(shown, 400)[1] == ""
