"""How often sensors had a new value: in the run, while the GPU was idle, and under load."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.analyse.chunks import ArrayStream
from joulewise.analyse.run_result import analyse
from joulewise.analyse.sensor_summary import sensor_rates
from joulewise.analyse.time_intervals import TimeInterval
from joulewise.store.layout import StreamKind
from joulewise.units import NS_PER_S
from tests.helpers.run_directories import MadeRun, device

brief = settings(max_examples=80, deadline=None)


def rates(fast=None, slow=None, run_s=(0.0, 40.0), vendor="nvidia", **options):
    """Of lanes as ``(t_s, {column: values})``."""

    def lane(readings):
        t_s, columns = readings
        t_ns = np.rint(np.asarray(t_s) * NS_PER_S).astype(np.int64)
        return {"t_ns": t_ns, **{name: np.asarray(v, float) for name, v in columns.items()}}

    known = {StreamKind.FAST: fast, StreamKind.SLOW: slow}
    columns = {one: lane(readings) for one, readings in known.items() if readings}
    lanes = {one: ArrayStream(readings, **options) for one, readings in columns.items()}
    return sensor_rates(
        lambda _, which: lanes.get(which),
        device("gpu0", vendor=vendor),
        columns.get(StreamKind.SLOW, {}),
        TimeInterval(*(round(t_s * NS_PER_S) for t_s in run_s)),
    )


def work_polls(works, period_s=1.0):
    """A slow stream: whether the GPU worked at each poll."""
    use = [100.0 if each else 0.0 for each in works]
    return np.arange(len(works)) * period_s, {"gpu_utilisation_pct": use}


def polls(levels, hz):
    return np.arange(len(levels)) / hz, {"power_w": levels}


def test_a_laptop_that_is_polled_at_25_hz_has_6_new_values_a_second():
    found = rates(polls(np.repeat(np.arange(250.0), 4), 25.0))["power_w"]["gpu0"]["run"]
    assert found["read_hz"] == pytest.approx(25)
    assert found["new_hz"] == pytest.approx(6.25, rel=0.01)


def test_idle_and_load_have_separate_rates():
    """20 s idle at 1 new value a second, then 20 s of load at 10."""
    idle, load = np.repeat(np.arange(20.0), 10), np.arange(200.0) + 100
    readings = rates(polls([*idle, *load], 10.0), work_polls([False] * 20 + [True] * 21))
    power = readings["power_w"]["gpu0"]
    assert power["idle"]["new_hz"] == pytest.approx(1, abs=0.06)
    assert power["load"]["new_hz"] == pytest.approx(10)
    assert power["idle"]["read_hz"] == pytest.approx(10)
    assert power["idle"]["time_s"] == pytest.approx(19)  # the second of the change is neither
    assert power["run"]["new_hz"] == pytest.approx(5.5, abs=0.1)
    utilisation = readings["gpu_utilisation_pct"]["gpu0.slow"]
    assert utilisation["run"]["new_hz"] == pytest.approx(1 / 40)
    assert (utilisation["idle"]["new_hz"], utilisation["load"]["new_hz"]) == (0, 0)


def test_without_utilisation_neither_rate_is_known():
    found = rates(polls(np.arange(20.0), 10.0), work_polls([]))["power_w"]["gpu0"]
    assert (found["idle"], found["load"]) == (None, None)
    unread = (np.arange(5), {"gpu_utilisation_pct": [np.nan] * 5})
    found = rates(polls(np.arange(20.0), 10.0), unread)["power_w"]["gpu0"]
    assert (found["idle"], found["load"]) == (None, None)


def test_one_reading_has_no_rate():
    assert rates(polls([100.0], 10.0))["power_w"]["gpu0"]["run"] is None


def test_the_counter_is_counted_where_power_is_not_read():
    found = rates((np.arange(10) / 10, {"energy_j": np.arange(10) // 2}))
    assert set(found) == {"energy_j"}
    assert found["energy_j"]["gpu0"]["run"]["new_hz"] == pytest.approx(4 / 0.9)


@brief
@given(
    st.lists(st.sampled_from([100.0, 110.0, np.nan]), min_size=2, max_size=60),
    st.lists(st.booleans(), max_size=12),
    st.floats(0.5, 50.0),
    st.integers(1, 70),
)
def test_there_are_never_more_new_values_than_readings(levels, works, hz, chunk_rows):
    found = rates(polls(levels, hz), work_polls(works), chunk_rows=chunk_rows)
    again = rates(polls(levels, hz), work_polls(works))
    assert found == again
    for by_stream in found.values():
        for one in by_stream.values():
            for each in filter(None, one.values()):
                assert 0 <= each["new_hz"] <= each["read_hz"]


def test_details_count_new_values_of_the_stream_itself(tmp_path):
    """Not as the recorder did, whose first reading counts although no time lies before it."""
    made = MadeRun(tmp_path / "run", seconds=6.0, hz=2.5)
    made.fast(device("gpu0"), lambda t: 100 + t)
    made.slow("gpu0", gpu_utilisation_pct=lambda t: 90 if t > 0 else 0)
    details = analyse(made.write()).details
    assert details["devices"]["gpu0"]["effective_hz"]["gpu0"] == pytest.approx(2.5)
    assert details["sensor_rates"]["gpu0"]["power_w"]["gpu0"]["load"]["new_hz"] <= 2.5 + 1e-9
