"""A simulated sensor says that it is one; everything else about it is as of a measured one."""

import pytest

from joulewise.data import Quantity, SensorInfo, Source
from joulewise.record.sensor_profiles import documented_profile
from tests.helpers.powercap_tree import XEON
from tests.helpers.simulated_cpu import Bench


def sources(device):
    return {it.source for it in device.sensors.values() if isinstance(it, SensorInfo)}


def test_every_sensor_of_a_simulated_gpu_is_simulated(device):
    assert sources(device) == {Source.SIMULATED}


def test_a_driver_library_without_the_mark_is_measured(machine, monkeypatch):
    from joulewise.devices.nvidia import nvml_library

    monkeypatch.setattr(nvml_library, "SIMULATED_SYMBOL", "no_library_has_this")
    (device,) = machine.gpus()
    assert sources(device) == {Source.MEASURED}
    device.close()


def test_counters_of_a_simulated_powercap_tree_are_simulated(tmp_path):
    """Beside them a CPU has its load, which is that of this machine."""
    devices = Bench(tmp_path, XEON).devices()
    counters = [
        {device.sensors[q].source for q in (Quantity.ENERGY, Quantity.POWER)}
        for device in devices.values()
    ]
    assert sorted(devices) == ["cpu0", "cpu1", "dram0", "dram1"]
    assert counters == [{Source.SIMULATED}] * 4
    assert devices["cpu0"].sensors[Quantity.LOAD].source is Source.MEASURED


def test_a_powercap_tree_without_the_mark_is_measured(tmp_path):
    bench = Bench(tmp_path, XEON)
    (bench.tree.path / "joulewise_simulated").unlink()
    assert sources(bench.devices()["cpu0"]) == {Source.MEASURED}


def test_a_simulated_sensor_has_the_profile_of_a_measured_one(device, machine, monkeypatch):
    from joulewise.devices.nvidia import nvml_library

    monkeypatch.setattr(nvml_library, "SIMULATED_SYMBOL", "no_library_has_this")
    (real,) = machine.gpus()
    assert documented_profile(device) == documented_profile(real)
    assert documented_profile(device).gain_sigma == pytest.approx(0.025)
    assert device.sensors[Quantity.POWER].window_s == real.sensors[Quantity.POWER].window_s
    real.close()


@pytest.mark.parametrize("source", list(Source))
def test_only_measured_and_simulated_sources_are_sensors(source):
    assert source.is_sensor == (source in {Source.MEASURED, Source.SIMULATED})
