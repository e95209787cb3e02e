"""Reading NVIDIA GPUs: nvidia-ml-py over the simulated NVML."""

from __future__ import annotations

import os
from itertools import pairwise
from types import SimpleNamespace

import pynvml
import pytest

from joulewise.data import (
    ControlKind,
    DriverSample,
    Process,
    Quantity,
    Reading,
    SensorInfo,
    Unavailable,
)
from joulewise.devices.nvidia import throttle_names
from joulewise.devices.nvidia.nvml_library import generation, opened
from joulewise.errors import DeviceLostError, NotSupportedError
from joulewise.testing import DeviceConformance
from tests.helpers.nvml_devices import (
    MEMORY_MHZ,
    POWER_W,
    SM_MHZ,
    THROTTLE,
    on,
    simulated,
    steady,
)

CODES = sorted(
    value
    for name, value in vars(pynvml).items()
    if name.startswith("NVML_ERROR_") and isinstance(value, int)
)


def value(device, quantity: Quantity) -> float:
    reading = device.read(quantity)
    assert isinstance(reading, Reading), reading
    return reading.value


class NvidiaConformance(DeviceConformance):
    board = "v100"

    @pytest.fixture
    def device(self, monkeypatch, tmp_path):
        with simulated(monkeypatch, self.board, folder=tmp_path) as machine:
            self.machine = machine
            (device,) = machine.gpus()
            yield device
            device.close()

    def elapse(self, seconds):
        self.machine.elapse(seconds)

    def now_ns(self):
        return self.machine.now_ns


class TestV100(NvidiaConformance):
    pass


class TestRtx6000(NvidiaConformance):
    board = "rtx6000"


class TestA100(NvidiaConformance):
    board = "a100"


class TestLaptop(NvidiaConformance):
    board = "laptop"


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [
        (Quantity.POWER, POWER_W),
        (Quantity.POWER_INSTANT, POWER_W),
        (Quantity.ENFORCED_LIMIT, 300),
        (Quantity.GPU_UTILISATION, 75),
        (Quantity.MEMORY_UTILISATION, 25),
        (Quantity.ENCODER_UTILISATION, 0),
        (Quantity.DECODER_UTILISATION, 0),
        (Quantity.SM_CLOCK, SM_MHZ),
        (Quantity.MEMORY_CLOCK, MEMORY_MHZ),
        (Quantity.PERFORMANCE_STATE, 2),
        (Quantity.TEMPERATURE, 45),
        (Quantity.THROTTLE, THROTTLE),
        (Quantity.PCIE_TX, 985 * 16 * 0.25 / 500),
        (Quantity.PCIE_RX, 985 * 16 * 0.25 / 50),
    ],
)
def test_a_reading_is_in_the_unit_of_its_name(device, quantity, expected):
    assert value(device, quantity) == pytest.approx(expected, abs=1e-3)


def test_the_counter_counts_joules(device, machine):
    """Both readings may be a tick old (20 ms on a V100), and ticks come early or late."""
    before = value(device, Quantity.ENERGY)
    machine.elapse(1000)
    assert value(device, Quantity.ENERGY) - before == pytest.approx(1000 * POWER_W, rel=1e-4)


def test_a_reading_has_the_time_of_its_call(device, machine):
    machine.elapse(1)
    assert device.read(Quantity.POWER).t_ns == machine.now_ns


def test_memory_is_in_bytes_without_what_the_driver_keeps_for_itself(device, machine):
    assert value(device, Quantity.MEMORY_USED) == 0
    machine.shared.set_processes(0, [(os.getpid(), 3 << 30)])
    assert value(device, Quantity.MEMORY_USED) == 3 << 30


def test_throttle_reasons_have_names(device):
    assert throttle_names(int(value(device, Quantity.THROTTLE))) == (
        "power cap",
        "software thermal slowdown",
    )


def test_no_power_is_a_gap_and_not_0_w(device, machine):
    machine.shared.publish(0, steady(machine.now_ns, 1e4, 0.0))
    machine.elapse(1)
    assert isinstance(device.read(Quantity.POWER), Unavailable)


@pytest.mark.parametrize(
    ("board", "quantity", "timing"),
    [
        ("v100", Quantity.POWER, (0.02, 0.01)),
        ("rtx6000", Quantity.POWER, (0.1, 0.1)),
        ("a100", Quantity.POWER, (0.1, 0.025)),
        ("a100", Quantity.POWER_AVERAGE, (0.1, 1.0)),
        ("laptop", Quantity.POWER, (0.1, 1.0)),
        ("laptop", Quantity.PCIE_TX, (None, 0.02)),
    ],
)
def test_a_sensor_says_how_it_measures(monkeypatch, tmp_path, board, quantity, timing):
    with simulated(monkeypatch, board, folder=tmp_path) as machine:
        (device,) = machine.gpus()
        info = device.sensors[quantity]
        device.close()
    assert isinstance(info, SensorInfo)
    assert (info.update_period_s, info.window_s) == timing


def test_only_the_calls_that_take_milliseconds_are_slow(device):
    slow = {q for q, info in device.sensors.items() if isinstance(info, SensorInfo) and info.slow}
    assert slow == {Quantity.PCIE_TX, Quantity.PCIE_RX}


@pytest.mark.parametrize("code", [pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_SUPPORTED])
def test_one_slow_call_decides_for_both_directions(machine, monkeypatch, code):
    calls = []
    throughput = pynvml.nvmlDeviceGetPcieThroughput

    def counted(*arguments):
        calls.append(arguments)
        if code:
            raise pynvml.NVMLError(code)
        return throughput(*arguments)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetPcieThroughput", counted)
    (device,) = machine.gpus()
    device.close()
    assert len(calls) == 1
    for quantity in (Quantity.PCIE_TX, Quantity.PCIE_RX):
        assert isinstance(device.sensors[quantity], Unavailable if code else SensorInfo)


def test_every_sensor_of_a_gpu_is_there_or_has_a_reason(device):
    assert set(device.sensors) == set(Quantity) - {Quantity.LOAD}
    assert isinstance(device.sensors[Quantity.FAN], Unavailable)  # a V100 has none
    assert isinstance(device.read(Quantity.FAN), Unavailable)
    assert isinstance(device.read(Quantity.LOAD), Unavailable)


@on("v100", "gpu0:counter-unsupported")
def test_a_missing_counter_is_unavailable(device):
    assert isinstance(device.sensors[Quantity.ENERGY], Unavailable)
    assert isinstance(device.read(Quantity.ENERGY), Unavailable)


@pytest.mark.parametrize(
    ("newer", "quantity"),
    [
        ("nvmlDeviceGetTemperatureV", Quantity.TEMPERATURE),
        ("nvmlDeviceGetCurrentClocksEventReasons", Quantity.THROTTLE),
    ],
)
def test_an_older_nvidia_ml_py_reads_as_well(machine, monkeypatch, newer, quantity):
    monkeypatch.delattr(pynvml, newer, raising=False)
    (device,) = machine.gpus()
    assert value(device, quantity) > 0
    device.close()


@on("v100", "gpu0:call=GetMemoryInfo_v2,code=13")
def test_an_older_driver_reads_as_well(device):
    assert value(device, Quantity.MEMORY_USED) >= 0


# The driver's own buffer


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [
        (Quantity.POWER, POWER_W),
        (Quantity.GPU_UTILISATION, 75),
        (Quantity.MEMORY_UTILISATION, 25),
        (Quantity.ENCODER_UTILISATION, 0),
        (Quantity.DECODER_UTILISATION, 0),
        (Quantity.SM_CLOCK, SM_MHZ),
        (Quantity.MEMORY_CLOCK, MEMORY_MHZ),
    ],
)
def test_the_buffer_holds_all_seven_kinds_in_our_units(device, quantity, expected):
    samples = device.samples(quantity)
    assert len(samples) == 120
    assert {round(sample.value, 1) for sample in samples} == {expected}


def test_the_buffer_is_drained_without_gap_or_repeat(device, machine):
    drained = list(device.samples(Quantity.POWER))
    for _ in range(3):
        machine.elapse(2)
        drained += device.samples(Quantity.POWER, drained[-1].t_us)
    steps_us = [later.t_us - earlier.t_us for earlier, later in pairwise(drained)]
    # 49.93 Hz; no tick is late by more than 3.5 sigma of 0.16 ms, and a gap would be twice as long.
    assert steps_us == pytest.approx([20_028] * len(steps_us), abs=1_150)
    assert len(drained) == pytest.approx(120 + 6 * 49.93, abs=1)


def test_nothing_newer_is_an_empty_list(device):
    newest = device.samples(Quantity.POWER)[-1]
    assert device.samples(Quantity.POWER, newest.t_us) == []


def test_what_is_not_buffered_is_unavailable(device):
    assert isinstance(device.samples(Quantity.TEMPERATURE), Unavailable)


@pytest.mark.parametrize(
    ("value_type", "member", "stored"),
    [
        (0, "dVal", 1500.5),
        (1, "uiVal", 1500),
        (2, "ulVal", 1500),
        (3, "ullVal", 1 << 40),
        (4, "sllVal", -1500),
        (5, "siVal", -1500),
        (6, "usVal", 1500),
    ],
)
def test_every_type_of_value_is_understood(device, monkeypatch, value_type, member, stored):
    # The simulated driver, as those known, stores unsigned ints only: the other types are made.
    if not hasattr(pynvml.c_nvmlValue_t, member):
        pytest.skip("this nvidia-ml-py has no such type")
    sample = pynvml.c_nvmlSample_t(timeStamp=7)
    setattr(sample.sampleValue, member, stored)
    _holds(monkeypatch, value_type, sample)
    assert device.samples(Quantity.POWER) == [DriverSample(7, stored / 1000)]


def test_places_of_the_buffer_that_are_not_filled_yet_are_left_out(device, monkeypatch):
    # The simulated driver's buffer is always full.
    samples = [pynvml.c_nvmlSample_t(timeStamp=t_us) for t_us in (0, 0, 7)]
    samples[2].sampleValue.uiVal = 1500
    _holds(monkeypatch, 1, *samples)
    assert device.samples(Quantity.POWER) == [DriverSample(7, 1.5)]


def test_an_unknown_type_of_value_is_unavailable(device, monkeypatch):
    _holds(monkeypatch, 7)
    assert isinstance(device.samples(Quantity.POWER), Unavailable)


def test_a_driver_without_a_buffer_says_so(device, monkeypatch):
    monkeypatch.setattr(pynvml, "nvmlLib", SimpleNamespace())
    assert "no such function" in device.samples(Quantity.POWER).reason


def _holds(monkeypatch, value_type, *samples):
    """A driver whose buffer holds these samples."""
    content = b"".join(map(bytes, samples))

    def call(_handle, _kind, _since_us, type_, count, buffer):
        type_._obj.value, count._obj.value = value_type, len(samples)
        if buffer is not None:
            buffer[: len(content)] = content
        return pynvml.NVML_SUCCESS

    monkeypatch.setattr(pynvml, "nvmlLib", SimpleNamespace(nvmlDeviceGetSamples=call))


# Processes


def test_processes_have_their_memory_where_the_driver_reports_it(device, machine):
    assert device.processes() == []
    machine.shared.set_processes(0, [(11, 1 << 30), (12, 2**64 - 1)])
    assert device.processes() == [Process(11, 1 << 30, "compute"), Process(12, None, "compute")]


def test_clients_of_mps_are_listed_once_beside_its_server(device, machine, monkeypatch):
    machine.shared.set_processes(0, [(11, 1 << 30), (13, 3 << 30)])
    clients = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(device._handle)
    machine.shared.set_processes(0, [(10, 1 << 29), (11, 2 << 30)])
    name = "nvmlDeviceGetMPSComputeRunningProcesses_v3"
    monkeypatch.setattr(pynvml, name, lambda _: clients)
    listed = sorted(device.processes(), key=lambda process: process.pid)
    assert listed == [
        Process(10, 1 << 29, "compute"),
        Process(11, 2 << 30, "compute"),
        Process(13, 3 << 30, "compute"),
    ]


@pytest.mark.parametrize(
    "code", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND]
)
def test_processes_are_listed_where_mps_is_not_supported(device, machine, monkeypatch, code):
    def refuse(_handle):
        raise pynvml.NVMLError(code)

    machine.shared.set_processes(0, [(11, 1 << 30)])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMPSComputeRunningProcesses_v3", refuse)
    assert device.processes() == [Process(11, 1 << 30, "compute")]


def test_a_process_that_computes_and_draws_is_one(device, machine, monkeypatch):
    # Nothing that is simulated draws: the same process is listed for both.
    machine.shared.set_processes(0, [(11, 1 << 30)])
    compute = pynvml.nvmlDeviceGetComputeRunningProcesses_v3
    monkeypatch.setattr(pynvml, "nvmlDeviceGetGraphicsRunningProcesses_v3", compute)
    assert device.processes() == [Process(11, 1 << 30, "compute+graphics")]


# Faults


@pytest.mark.parametrize("code", CODES)
def test_every_nvml_error_is_a_gap_with_a_reason(monkeypatch, tmp_path, code):
    fault = f"gpu0:call=GetPowerUsage,code={code}@2s-4s"
    with simulated(monkeypatch, "v100", faults=fault, folder=tmp_path) as machine:
        (device,) = machine.gpus()
        readings = []
        for _ in range(3):
            readings.append(device.read(Quantity.POWER))
            machine.elapse(2)
        device.close()
    assert [type(reading) for reading in readings] == [Reading, Unavailable, Reading]
    assert readings[1].reason


# Not supported, no such function, an argument or a version that it does not know, dropped.
ABSENT = {2, 3, 13, 22, 25, 26, 30}


@pytest.mark.parametrize("code", CODES)
def test_only_what_the_gpu_never_has_is_decided_when_it_is_opened(monkeypatch, tmp_path, code):
    fault = f"gpu0:call=GetPowerUsage,code={code}@0s-3s"
    with simulated(monkeypatch, "v100", faults=fault, folder=tmp_path) as machine:
        (device,) = machine.gpus()
        during = device.read(Quantity.POWER)
        machine.elapse(3)
        after = device.read(Quantity.POWER)
        device.close()
    assert isinstance(during, Unavailable)
    assert isinstance(device.sensors[Quantity.POWER], SensorInfo) == (code not in ABSENT)
    assert isinstance(after, Reading) == (code not in ABSENT)


def test_no_power_at_opening_is_a_gap_too(machine):
    machine.shared.publish(0, steady(machine.now_ns, 1e4, 0.0))
    machine.elapse(1)
    (device,) = machine.gpus()
    assert isinstance(device.read(Quantity.POWER), Unavailable)
    machine.shared.publish(0, steady(machine.now_ns, 1e4, POWER_W))
    machine.elapse(1)
    assert value(device, Quantity.POWER) == POWER_W
    device.close()


@on("v100", "gpu0:lost@5s")
def test_a_gpu_that_gets_lost_gives_reasons_and_refuses_settings(device, machine):
    machine.elapse(5)
    answers = [
        device.read(Quantity.POWER),
        device.samples(Quantity.POWER),
        device.processes(),
        device.get(ControlKind.POWER_LIMIT),
    ]
    assert all("lost" in answer.reason for answer in answers)
    assert all("--gpu-reset -i 0" in answer.fix for answer in answers)
    with pytest.raises(DeviceLostError):
        device.set(ControlKind.POWER_LIMIT, 200)
    with pytest.raises(DeviceLostError):
        device.reset(ControlKind.SM_CLOCK)
    assert isinstance(device.sensors[Quantity.POWER], SensorInfo)  # what it has is settled


@on("v100", "gpu0:call=GetFieldValues,code=3")
def test_a_field_that_fails_leaves_the_plain_call(device):
    assert isinstance(device.read(Quantity.POWER_INSTANT), Unavailable)
    assert value(device, Quantity.POWER) == pytest.approx(POWER_W)


@on("rtx6000")
def test_a_field_that_a_board_lacks_is_unavailable(device):
    assert "does not support" in device.read(Quantity.POWER_AVERAGE).reason
    assert isinstance(device.read(Quantity.FAN), Reading)


def test_a_closed_device_raises_for_a_control_that_it_never_had(device):
    device.close()
    with pytest.raises(DeviceLostError):
        device.set(ControlKind.POWER_LIMIT_SHORT, 1)


def test_a_control_of_other_devices_is_not_supported(device):
    with pytest.raises(NotSupportedError):
        device.set(ControlKind.POWER_LIMIT_SHORT, 1)


@pytest.mark.parametrize(
    ("board", "capability"), [("v100", (7, 0)), ("a100", (8, 0)), ("gh200", (9, 0))]
)
def test_the_capability_of_every_generation_is_read(monkeypatch, tmp_path, board, capability):
    """A row of the tables for a single board of a generation must find it."""
    with simulated(monkeypatch, board, folder=tmp_path), opened():
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert generation(handle, lambda: None).capability == capability

        def refuse(_handle):
            raise pynvml.NVMLError_NotSupported

        monkeypatch.setattr(pynvml, "nvmlDeviceGetCudaComputeCapability", refuse)
        assert generation(handle, lambda: None).capability == (0, 0)
