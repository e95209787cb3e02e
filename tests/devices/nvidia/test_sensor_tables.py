"""What is known of NVIDIA's GPUs without asking one."""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import run

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.data import Quantity
from joulewise.devices.nvidia import throttle_names
from joulewise.devices.nvidia.discovery import SuspendedGpu, find_suspended
from joulewise.devices.nvidia.sensor_tables import GenerationTiming, sensor_timing

P100, V100, T4 = (4, (6, 0)), (5, (7, 0)), (6, (7, 5))
A100, A40, L4, H100, B200 = (7, (8, 0)), (7, (8, 6)), (8, (8, 9)), (9, (9, 0)), (10, (10, 0))


@pytest.mark.parametrize(
    ("gpu", "quantity", "expected"),
    [
        (P100, Quantity.POWER, GenerationTiming(0.02, 0.01)),
        (V100, Quantity.POWER, GenerationTiming(0.02, 0.01)),
        (V100, Quantity.POWER_INSTANT, GenerationTiming(0.02, 0.01)),
        (T4, Quantity.POWER, GenerationTiming(0.1, 0.1)),
        (A100, Quantity.POWER, GenerationTiming(0.1, 0.025)),
        (A100, Quantity.POWER_INSTANT, GenerationTiming(0.1, 0.025)),
        (A40, Quantity.POWER, GenerationTiming(0.1, 1.0)),
        (L4, Quantity.POWER, GenerationTiming(0.1, 1.0)),
        (H100, Quantity.POWER, GenerationTiming(0.1, 1.0)),
        (H100, Quantity.POWER_INSTANT, GenerationTiming(0.1, 0.025)),
        (B200, Quantity.POWER, GenerationTiming(None, 1.0)),
        (V100, Quantity.ENERGY, GenerationTiming()),
        ((99, (99, 0)), Quantity.POWER, GenerationTiming()),
    ],
)
def test_a_generation_has_the_timing_that_was_published(gpu, quantity, expected):
    assert sensor_timing(*gpu, quantity) == expected


def test_throttle_reasons_have_names():
    power, heat = (
        pynvml.nvmlClocksThrottleReasonSwPowerCap,
        pynvml.nvmlClocksThrottleReasonSwThermalSlowdown,
    )
    assert throttle_names(power | heat) == ("power cap", "software thermal slowdown")
    assert throttle_names(0) == ()


def test_every_reason_that_nvml_knows_has_a_name():
    names = throttle_names(pynvml.nvmlClocksThrottleReasonAll)
    assert [name for name in names if name.startswith("0x")] == []


@given(st.integers(0, 2**64 - 1))
def test_there_are_as_many_names_as_bits(bits):
    assert len(set(throttle_names(bits))) == bits.bit_count()


@pytest.fixture
def bus(tmp_path: Path):
    """Two GPUs as Linux shows them, the second suspended."""
    for bus_id, status in (("0000:04:00.0", "active\n"), ("0000:07:00.0", "suspended\n")):
        power = tmp_path / f"sys/bus/pci/drivers/nvidia/{bus_id}/power"
        power.mkdir(parents=True)
        (power / "runtime_status").write_text(status)
        folder = tmp_path / f"proc/driver/nvidia/gpus/{bus_id}"
        folder.mkdir(parents=True)
        (folder / "information").write_text(
            "Model: \t\t NVIDIA GeForce RTX 3050 Laptop GPU\n"
            f"GPU UUID: \t GPU-{bus_id[5:7]}4c0de-0000-4106-c12f-20bd9faed9f6\n"
            f"Bus Location: \t {bus_id}\n"
        )
    (tmp_path / "sys/bus/pci/drivers/nvidia/bind").write_text("")
    return tmp_path


def test_a_suspended_gpu_is_known_without_waking_it(bus):
    assert find_suspended(bus, 2) == {
        1: SuspendedGpu(
            "0000:07:00.0",
            "NVIDIA GeForce RTX 3050 Laptop GPU",
            "GPU-074c0de-0000-4106-c12f-20bd9faed9f6",
        )
    }


def test_no_gpu_sleeps_where_nvml_and_the_kernel_disagree_on_their_number(bus):
    assert find_suspended(bus, 1) == {}


def test_no_gpu_sleeps_where_there_is_no_such_driver(tmp_path):
    assert find_suspended(tmp_path, 0) == {}


def test_a_masked_uuid_is_none(bus):
    path = bus / "proc/driver/nvidia/gpus/0000:07:00.0/information"
    path.write_text("GPU UUID: \t GPU-????????-????-????-????-????????????\n")
    assert find_suspended(bus, 2)[1] == SuspendedGpu("0000:07:00.0", "", "")


def test_nvidia_ml_py_is_not_loaded_by_the_import():
    code = (
        "import sys, joulewise.devices.nvidia, joulewise.devices.cuda_visible; print(*sys.modules)"
    )
    loaded = run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pynvml" not in loaded.split()
