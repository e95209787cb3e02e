"""The parts of a GPU's energy: the GPU is one of a module's, and none of its own."""

from dataclasses import replace

import numpy as np
import pytest

from joulewise.analyse.device_energy import measure_parts
from joulewise.analyse.time_intervals import TimeInterval
from joulewise.data import DeviceInfo, Kind, PowerScope, SensorProfile
from joulewise.store.layout import StreamKind
from joulewise.store.manifest import RecordedDevice

S = 1_000_000_000
GPU = RecordedDevice(DeviceInfo("gpu0", Kind.GPU, "a board", "uid", "nvidia"), card=SensorProfile())


class Readings:
    """Rows of a lane, in place of a file: 100 W at every second."""

    columns = ("t_ns", "gpu_power_w")

    def chunks(self, _names):
        seconds = np.arange(12)
        yield {"t_ns": seconds * S, "gpu_power_w": np.full(12, 100.0)}


def parts(scope, end_ns=10 * S):
    device = replace(GPU, info=replace(GPU.info, power_scope=scope))
    lanes = {StreamKind.FAST: Readings()}
    return measure_parts(lambda _key, lane: lanes.get(lane), device, TimeInterval(0, end_ns))


def test_the_gpu_is_a_part_of_a_module():
    assert parts(PowerScope.MODULE)["gpu"].value == pytest.approx(1000)


def test_a_gpu_that_was_taken_for_a_module_at_first_is_no_part_of_itself():
    assert parts(PowerScope.GPU) == {}


def test_of_a_run_shorter_than_the_sensors_window_no_part_is_known():
    """It read 37 J ± 42 J where a GPU drew 96 J: three quarters of its second were before."""
    assert parts(PowerScope.MODULE, end_ns=S // 4) == {}
    assert "gpu" in parts(PowerScope.MODULE, end_ns=S)
