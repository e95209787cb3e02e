"""What sensors read over the run and over spans, in few figures."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.analyse.run_result import analyse
from joulewise.analyse.sensor_summary import NAMES_SUMMARISED
from joulewise.analyse.time_intervals import TimeSet
from joulewise.data import Source
from tests.helpers.run_directories import MadeRun, device

brief = settings(max_examples=80, deadline=None)
REQUIRED = {
    "gpu_utilisation_pct",
    "memory_utilisation_pct",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "performance_state",
    "temperature_c",
    "memory_used_b",
    "pcie_tx_mb_s",
    "pcie_rx_mb_s",
}


@pytest.fixture
def made(tmp_path):
    run = MadeRun(tmp_path / "run", seconds=20.0)
    run.fast(device("gpu0"), lambda t: 100 + t % 2)
    run.fast(device("cpu0", source=Source.MODELLED), lambda _: 20)
    return run


def sensors(run):
    return analyse(run.write()).details["sensors"]


def test_mean_least_and_most_are_those_of_the_readings_within_the_run(made):
    made.slow("gpu0", memory_clock_mhz=lambda t: 405 if t < 0 or t > 20 else 800 + t)
    made.slow("cpu0", load_pct=lambda _: 50)
    found = sensors(made)
    assert found["gpu0"]["run"]["memory_clock_mhz"] == {"mean": 810.0, "min": 800.0, "max": 820.0}
    assert found["cpu0"]["run"]["load_pct"] == {"mean": 50.0, "min": 50.0, "max": 50.0}


def test_a_state_has_its_share_of_the_readings(made):
    made.slow(
        "gpu0",
        performance_state=lambda t: 8 if t < 5 else 0,
        throttle_reasons=lambda t: 0x1 if t < 5 else 0x4 | 0x8 if t < 10 else 0,
    )
    run = sensors(made)["gpu0"]["run"]
    assert run["performance_state"] == pytest.approx({"P8": 5 / 21, "P0": 16 / 21})
    assert run["throttle_reasons"] == pytest.approx(
        {"idle": 5 / 21, "power cap": 5 / 21, "hardware slowdown": 5 / 21}
    )


def test_what_was_never_read_is_none_and_never_zero(made):
    made.slow("gpu0", pcie_tx_mb_s=lambda _: np.nan, temperature_c=lambda _: 40)
    run = sensors(made)["gpu0"]["run"]
    assert set(run) >= REQUIRED
    assert [name for name in REQUIRED if run[name] is not None] == ["temperature_c"]


def test_a_failed_reading_is_in_no_figure(made):
    made.slow("gpu0", memory_used_b=lambda t: np.nan if t < 10 else 3e9)
    assert sensors(made)["gpu0"]["run"]["memory_used_b"] == {"mean": 3e9, "min": 3e9, "max": 3e9}


def test_a_device_without_sensors_has_none(tmp_path):
    made = MadeRun(tmp_path / "run").fast(device("dram0", source=Source.ASSUMED), lambda _: 6)
    made.devices.append(device("gpu0", measured=()))
    found = sensors(made)
    assert found["dram0"] == {"run": {}, "spans": {}}
    assert set(found["gpu0"]["run"].values()) == {None}


def test_spans_of_one_name_have_figures_of_their_own(made):
    made.slow("gpu0", memory_utilisation_pct=lambda t: 80 if t % 10 < 5 else 10)
    made.spans(
        *(("train", i, 10 * i - 0.1, 10 * i + 4.9) for i in range(2)),
        *(("save", i, 10 * i + 4.9, 10 * i + 9.9) for i in range(2)),
        ("short", 0, 3.2, 3.4),
    )
    spans = sensors(made)["gpu0"]["spans"]
    assert spans["train"]["memory_utilisation_pct"]["mean"] == 80
    assert spans["save"]["memory_utilisation_pct"]["mean"] == 10
    assert spans["short"]["memory_utilisation_pct"] is None


def test_only_the_first_names_have_figures(made):
    made.slow("gpu0", temperature_c=lambda _: 40)
    made.spans(*((f"phase {i}", 0, i / 2, i / 2 + 0.4) for i in range(NAMES_SUMMARISED + 5)))
    spans = sensors(made)["gpu0"]["spans"]
    assert list(spans) == [f"phase {i}" for i in range(NAMES_SUMMARISED)]


def test_bits_that_only_their_maker_can_name_are_given_as_they_are(tmp_path):
    made = MadeRun(tmp_path / "run").fast(device("gpu0", vendor="amd"), lambda t: 90 + t % 2)
    made.slow("gpu0", throttle_reasons=lambda _: 3)
    assert sensors(made)["gpu0"]["run"]["throttle_reasons"] == {"0x3": 1.0}


@brief
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=8),
    st.lists(st.integers(-5, 80), max_size=40),
)
def test_a_moment_is_in_the_union_where_it_is_in_any_stretch(stretches, moments):
    starts = np.array([start for start, _ in stretches], np.int64)
    ends = np.array([start + time for start, time in stretches], np.int64)
    times = TimeSet.union(starts, ends)
    t_ns = np.array(moments, np.int64)
    expected = [any(a <= t <= b for a, b in zip(starts, ends, strict=True)) for t in moments]
    assert times.holds(t_ns).tolist() == expected
    assert (times.start_ns[1:] > times.end_ns[:-1]).all()
