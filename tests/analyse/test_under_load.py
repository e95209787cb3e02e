"""How a GPU did while it worked, from what was looked at now and then."""

import numpy as np
import pytest

from joulewise.analyse.sensor_summary import under_load
from joulewise.analyse.time_intervals import TimeInterval
from joulewise.units import NS_PER_S

IDLE, CAPPED, NOTHING = 0x1, 0x4, 0x0
RUN = TimeInterval(0, 100 * NS_PER_S)


def slow(reasons, clocks, **columns):
    t_ns = np.arange(len(reasons), dtype=np.int64) * NS_PER_S
    return {
        "t_ns": t_ns,
        "throttle_reasons": np.array(reasons, float),
        "sm_clock_mhz": np.array(clocks, float),
        **{name: np.array(values, float) for name, values in columns.items()},
    }


def test_only_polls_under_load_count():
    looks = slow([IDLE] * 4 + [CAPPED] * 3 + [NOTHING] * 3, [135] * 4 + [1000] * 3 + [1500] * 3)
    found = under_load(looks, RUN, "nvidia")
    assert found == {"capped": 0.5, "sm_clock_mhz": 1250.0, "temperature_c": None}


def test_what_was_before_and_after_the_run_does_not_count():
    looks = slow([NOTHING] * 10 + [CAPPED] * 10, [1500] * 10 + [900] * 10)
    found = under_load(looks, TimeInterval(0, 10 * NS_PER_S - 1), "nvidia")
    assert found["capped"] == 0.0
    assert found["sm_clock_mhz"] == 1500.0


def test_few_polls_give_no_mean():
    assert under_load(slow([CAPPED] * 4, [900] * 4), RUN, "nvidia")["capped"] is None


def test_a_reason_that_could_not_be_read_is_none():
    looks = slow([np.nan] * 5 + [CAPPED] * 5, [900] * 10, gpu_utilisation_pct=[90] * 10)
    assert under_load(looks, RUN, "nvidia")["capped"] == 1.0


def test_other_makers_do_not_say_why():
    looks = slow([1] * 10, [900] * 5 + [1700] * 5, gpu_utilisation_pct=[0] * 5 + [95] * 5)
    found = under_load(looks, RUN, "amd")
    assert found["capped"] is None
    assert found["sm_clock_mhz"] == pytest.approx(1700)


def test_without_a_trace_nothing_is_known():
    assert set(under_load({}, RUN, "nvidia").values()) == {None}
