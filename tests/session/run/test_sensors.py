"""Every sensor of every device is in the result of a run, as NVML tells it."""

import json
import subprocess

import pytest

from tests.helpers.processes import DEADLINE_S, JOULEWISE, python
from tests.helpers.run_processes import environment

# Idle for some looks, then under load for some more, and idle again.
PROGRAM = """
import time
from joulewise.simulate import gpu
time.sleep(2.3)
end_s = time.monotonic() + 3.3
while time.monotonic() < end_s:
    gpu(0).step("resnet50", batch_size=16)
time.sleep(0.3)
"""
READ = (
    "gpu_utilisation_pct",
    "memory_utilisation_pct",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "temperature_c",
    "memory_used_b",
    "pcie_tx_mb_s",
    "pcie_rx_mb_s",
)


def details(tmp_path, board, *options):
    sim = [*JOULEWISE, "sim", "--gpu", board, "--"]
    path = tmp_path / "result.json"
    run = [*JOULEWISE, "--store", str(tmp_path), "run", *options, "--json", str(path)]
    done = subprocess.run(
        [*sim, *run, *python(PROGRAM)],
        capture_output=True, text=True, check=False, timeout=DEADLINE_S, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text())["details"]


@pytest.fixture(scope="module")
def v100(tmp_path_factory):
    return details(tmp_path_factory.mktemp("v100"), "v100")


def test_all_that_the_driver_reports_is_in_the_result(v100):
    run = v100["sensors"]["gpu0"]["run"]
    for name in READ:
        assert run[name]["min"] <= run[name]["mean"] <= run[name]["max"], name
    assert run["fan_pct"] is None  # a board in a server has none
    assert run["memory_clock_mhz"]["max"] == 877
    assert run["memory_used_b"]["max"] > 2**30
    assert run["pcie_rx_mb_s"]["max"] > 0
    assert sum(run["performance_state"].values()) == pytest.approx(1)
    assert 0 < run["performance_state"]["P8"] < 1
    assert 0 < v100["sensors"]["cpu0"]["run"]["load_pct"]["mean"] <= 100


def test_new_values_are_counted_apart_idle_and_under_load(v100):
    for by_stream in v100["sensor_rates"]["gpu0"].values():
        for rates in by_stream.values():
            for each in rates.values():
                assert 0 <= each["new_hz"] <= each["read_hz"]
    use = v100["sensor_rates"]["gpu0"]["gpu_utilisation_pct"]
    driver = use["gpu0.buffer.gpu_utilisation_pct"]
    assert driver["load"]["read_hz"] == pytest.approx(6, rel=0.1)
    assert driver["idle"]["new_hz"] < 1 < driver["load"]["new_hz"]


def test_a_laptop_that_is_polled_at_25_hz_repeats_itself(tmp_path):
    power = details(tmp_path, "laptop", "--rate", "25")["sensor_rates"]["gpu0"]["power_w"]["gpu0"]
    assert power["load"]["read_hz"] == pytest.approx(25, rel=0.2)
    assert power["load"]["new_hz"] < 0.6 * power["load"]["read_hz"]
