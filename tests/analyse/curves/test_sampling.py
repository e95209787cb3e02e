"""How evenly a stream was sampled, in one pass, whatever the chunks."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.analyse.chunks import ArrayStream, show
from joulewise.analyse.curves.run import Intervals
from joulewise.analyse.time_intervals import TimeInterval

S = 10**9
brief = settings(max_examples=60, deadline=None)


def sampled(t_s, power_w=None, stretch=None, **options):
    t_ns = np.rint(np.asarray(t_s) * S).astype(np.int64)
    power_w = np.arange(len(t_ns), dtype=float) if power_w is None else np.asarray(power_w, float)
    lane = ArrayStream({"t_ns": t_ns, "power_w": power_w}, **options)
    intervals = Intervals(lane, "power_w", stretch or TimeInterval(int(t_ns[0]), int(t_ns[-1])))
    show(lane, intervals)
    return intervals.sampling()


@brief
@given(
    st.lists(st.floats(0.001, 0.5), min_size=3, max_size=80),
    st.lists(st.sampled_from([100.0, 110.0, float("nan")]), min_size=81, max_size=81),
    st.integers(1, 90),
)
def test_rate_deviation_and_news_are_those_of_the_rows(intervals_s, levels, chunk_rows):
    t_s = np.cumsum([0.0, *intervals_s])
    levels_w = levels[: len(t_s)]
    found = sampled(t_s, levels_w, chunk_rows=chunk_rows)
    steps_s = np.diff(np.rint(t_s * S)) / S
    read = [level for level in levels_w if not np.isnan(level)]
    news = sum(now != before for before, now in pairwise(read))
    assert found.rows == len(t_s)
    assert found.rate_hz == pytest.approx(1 / steps_s.mean())
    assert found.cv == pytest.approx(steps_s.std(ddof=1) / steps_s.mean(), abs=1e-6)
    assert found.sigma_hz == pytest.approx(found.cv * found.rate_hz)
    assert found.longest_s == pytest.approx(steps_s.max())
    assert found.effective_hz == pytest.approx(news / steps_s.sum())
    assert found.effective_hz <= found.rate_hz
    assert found.histogram.sum() + found.longer == len(steps_s)


def test_a_sensor_polled_too_often_repeats_values():
    """As a laptop's GPU: 25 polls a second, 6.25 new values."""
    found = sampled(np.arange(0, 40, 0.04), np.repeat(np.arange(250), 4))
    assert found.rate_hz == pytest.approx(25)
    assert found.effective_hz == pytest.approx(6.25, rel=0.01)
    assert found.course_effective_hz == pytest.approx(np.full(49, 6.25), abs=1.3)


def test_new_values_are_never_more_than_readings():
    """16 readings at 2.5 Hz, all of them different, were shown as 2.66 new values a second."""
    found = sampled(np.arange(16) / 2.5)
    assert found.rate_hz == pytest.approx(2.5)
    assert found.effective_hz == pytest.approx(2.5)


def test_a_value_that_is_back_after_a_failed_reading_is_not_new():
    found = sampled(np.arange(8), [100, np.nan, 100, 100, np.nan, np.nan, 120, 120])
    assert found.effective_hz == pytest.approx(1 / 7)


def test_the_course_shows_when_it_was_late():
    late = np.append(np.arange(0, 10, 0.02), np.arange(10, 20, 0.04))
    found = sampled(late)
    half = len(found.course_hz) // 2
    assert found.course_hz[: half - 1].mean() == pytest.approx(50, rel=0.02)
    assert found.course_hz[half + 1 :].mean() == pytest.approx(25, rel=0.04)
    usual, double = np.flatnonzero(found.histogram)
    middles_s = (found.interval_edges_s[1:] + found.interval_edges_s[:-1]) / 2
    assert middles_s[usual] == pytest.approx(0.02)
    assert found.interval_edges_s[double] <= 0.04 < found.interval_edges_s[double + 1]


def test_only_rows_of_the_stretch_count():
    found = sampled(np.arange(0, 10, 0.1), stretch=TimeInterval(2 * S, 4 * S))
    assert found.rows == 21
    assert found.rate_hz == pytest.approx(10)


def test_two_rows_have_no_jitter():
    assert sampled([0.0, 1.0]) is None
