from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.data import Reading, Unavailable
from joulewise.devices.host.rapl import WrappingCounter

MOST_W = 200.0
RANGES = st.integers(min_value=int(MOST_W) * 1_000_000, max_value=2**50)


@given(data=st.data(), range_uj=RANGES, steps=st.integers(1, 30))
def test_readings_no_further_apart_than_a_wrap_give_the_exact_energy(data, range_uj, steps):
    first_uj = data.draw(st.integers(0, range_uj))
    counter = WrappingCounter(first_uj, 0, range_uj=range_uj, maximum_w=MOST_W)
    truth_uj, t_ns = first_uj, 0
    for _ in range(steps):
        elapsed_ns = data.draw(st.integers(0, int(counter.wrap_s * 0.999_999e9)))
        truth_uj += int(data.draw(st.floats(0, MOST_W)) * elapsed_ns / 1000)
        t_ns += elapsed_ns
        assert counter.update(truth_uj % (range_uj + 1), t_ns) == Reading(truth_uj / 1e6, t_ns)


@given(range_uj=RANGES, late=st.floats(1.001, 50), now=st.floats(0, 1))
def test_a_reading_that_comes_too_late_is_never_a_number(range_uj, late, now):
    counter = WrappingCounter(range_uj // 2, 0, range_uj=range_uj, maximum_w=MOST_W)
    t_ns = int(late * counter.wrap_s * 1e9) + 1
    reading = counter.update(int(now * range_uj), t_ns)
    assert isinstance(reading, Unavailable)
    assert f"every {counter.wrap_s:.0f} s" in reading.reason


def test_after_a_gap_the_count_restarts_so_that_no_difference_spans_it():
    counter = WrappingCounter(900, 0, range_uj=10_000_000_000, maximum_w=MOST_W)
    late_ns = int(10 * counter.wrap_s * 1e9)
    assert isinstance(counter.update(5_000_900, late_ns), Unavailable)
    after = counter.update(5_000_900, late_ns + 1000)
    assert after == Reading(0.0, late_ns + 1000)


def test_a_counter_that_was_set_back_is_not_taken_for_a_wrap():
    counter = WrappingCounter(70_000_000_000, 0, range_uj=262_143_328_850, maximum_w=MOST_W)
    assert isinstance(counter.update(1_000, 1_000_000_000), Unavailable)
    assert counter.update(51_000, 1_001_000_000) == Reading(0.05, 1_001_000_000)


def test_a_wrap_right_after_the_last_reading_is_no_set_back():
    counter = WrappingCounter(262_143_328_850, 0, range_uj=262_143_328_850, maximum_w=MOST_W)
    assert counter.update(399_999, 1) == Reading(262_143.728_850, 1)


def test_a_counter_that_is_read_each_second_need_not_be_a_real_one():
    counter = WrappingCounter(0, 0, range_uj=999_999, maximum_w=MOST_W)
    assert counter.update(900_000, 500_000_000) == Reading(0.9, 500_000_000)
    assert counter.update(100_000, 1_400_000_000) == Reading(1.1, 1_400_000_000)


@pytest.mark.parametrize("beyond", [1_000_001, 2**64])
def test_a_value_beyond_the_range_is_a_fault_that_passes(beyond):
    counter = WrappingCounter(10, 0, range_uj=1_000_000, maximum_w=MOST_W)
    assert isinstance(counter.update(beyond, 100), Unavailable)
    assert counter.update(20, 200) == Reading(20 / 1e6, 200)
