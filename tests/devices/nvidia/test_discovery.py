"""Finding NVIDIA GPUs: nvidia-ml-py over the simulated NVML."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections import Counter
from pathlib import Path
from subprocess import run
from time import monotonic, sleep

import pynvml
import pytest

from joulewise.data import ControlKind, Quantity, Reading, SensorInfo, Unavailable
from joulewise.devices import DISCOVERY_THREAD, Device, Options
from joulewise.devices.device import PartlyOpened
from joulewise.devices.nvidia import discovery, find
from joulewise.devices.nvidia.discovery import discover_and_count
from joulewise.devices.nvidia.gpu import NvidiaGpu
from joulewise.errors import DeviceError, DeviceLostError
from joulewise.simulate.realtime.launch import ABSENT
from tests.helpers.nvml_devices import simulated
from tests.helpers.processes import DEADLINE_S


@pytest.fixture
def machine(request, monkeypatch, tmp_path):
    boards, faults = getattr(request, "param", ("v100,v100,v100", ""))
    with simulated(monkeypatch, *boards.split(","), faults=faults, folder=tmp_path) as machine:
        yield machine


def on(boards: str, faults: str = ""):
    """Run the test on these boards, with these faults."""
    return pytest.mark.parametrize("machine", [(boards, faults)], indirect=True)


def keys(devices: list[Device]) -> list[str]:
    for device in devices:
        device.close()
    return [device.info.key for device in devices]


def test_each_gpu_has_its_identity(machine):
    first, *rest = devices = machine.gpus()
    assert keys(devices) == ["gpu0", "gpu1", "gpu2"]
    assert first.info.name == "Tesla V100-SXM2-16GB"
    assert first.info.vendor == "nvidia"
    assert first.info.note == ""
    assert len({device.info.uid for device in devices}) == 3
    assert all(device.info.uid.startswith("GPU-") for device in [first, *rest])
    driver = pynvml.nvmlSystemGetDriverVersion
    pynvml.nvmlInit()
    assert first.info.driver.startswith(f"{driver()} (NVML ")
    pynvml.nvmlShutdown()
    assert "CUDA 1" in first.info.driver


# What CUDA is told


def test_only_gpus_that_cuda_sees_are_found(machine):
    assert keys(machine.gpus(CUDA_VISIBLE_DEVICES="2,0")) == ["gpu0", "gpu2"]


def test_a_gpu_is_named_by_the_beginning_of_its_uuid(machine):
    devices = machine.gpus()
    uid = devices[1].info.uid
    keys(devices)
    assert keys(machine.gpus(CUDA_VISIBLE_DEVICES=uid[:12])) == ["gpu1"]


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("listed", ["", "-1", "7", "0,0", "GPU-no"])
def test_hidden_gpus_are_missing_with_the_reason(listed):
    missing = find(Options(environ={"CUDA_VISIBLE_DEVICES": listed}))
    assert isinstance(missing, Unavailable)
    assert "CUDA_VISIBLE_DEVICES" in missing.reason
    assert missing.fix == "unset CUDA_VISIBLE_DEVICES"


def test_a_list_that_ends_early_is_reported_with_what_it_left(machine):
    (device,) = devices = machine.gpus(CUDA_VISIBLE_DEVICES="1,7,0")
    assert keys(devices) == ["gpu1"]
    assert "'7' names no GPU" in device.info.note


@on("laptop,a100")
def test_the_fastest_is_first_for_cuda_and_the_guess_is_noted(machine):
    (device,) = devices = machine.gpus(CUDA_VISIBLE_DEVICES="0")
    assert keys(devices) == ["gpu1"]
    assert "guess" in device.info.note
    (device,) = devices = machine.gpus(CUDA_VISIBLE_DEVICES="0", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert keys(devices) == ["gpu0"]
    assert device.info.note == ""


@pytest.fixture
def mig(monkeypatch):
    """The simulated driver has no MIG: GPU 1 gets two slices, by what NVML documents."""
    real_uuid, index = pynvml.nvmlDeviceGetUUID, pynvml.nvmlDeviceGetIndex
    slices = {0: ("MIG-aaaa", 1, 0), 2: ("MIG-bbbb", 2, 0)}

    def slice_at(_handle, place):
        if place not in slices:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return slices[place]

    def mode(handle):
        on = index(handle) == 1
        return [int(on), int(on)]

    def uuid(handle):
        return handle[0] if isinstance(handle, tuple) else real_uuid(handle)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigMode", mode)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMaxMigDeviceCount", lambda _: 7)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigDeviceHandleByIndex", slice_at)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", uuid)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetGpuInstanceId", lambda part: part[1])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeInstanceId", lambda part: part[2])


@pytest.mark.usefixtures("mig")
@pytest.mark.parametrize("listed", ["MIG-bbbb", "MIG-{uid}/2/0"])
def test_a_mig_slice_is_measured_as_its_whole_gpu_and_says_so(machine, listed):
    devices = machine.gpus()
    uid = devices[1].info.uid
    keys(devices)
    (device,) = machine.gpus(CUDA_VISIBLE_DEVICES=listed.format(uid=uid))
    assert device.info.key == "gpu1"
    assert "MIG-bbbb" in device.info.note
    assert "whole GPU" in device.info.note
    assert isinstance(device.read(Quantity.POWER), Reading)
    device.close()


# What is broken


@on("v100,v100", "gpu1:lost")
def test_a_lost_gpu_is_seen_with_its_reason(machine):
    well, lost = machine.gpus()
    assert isinstance(well.read(Quantity.POWER), Reading)
    assert lost.info.key == "gpu1"
    assert set(lost.sensors) == set(well.sensors)
    assert set(lost.controls) == set(well.controls)
    assert all("lost" in sensor.reason for sensor in lost.sensors.values())
    answers = [lost.read(Quantity.POWER), lost.samples(Quantity.POWER), lost.processes()]
    assert all("lost" in answer.reason for answer in answers)
    assert isinstance(lost.get(ControlKind.POWER_LIMIT), Unavailable)
    with pytest.raises(DeviceLostError):
        lost.set(ControlKind.POWER_LIMIT, 200)
    with pytest.raises(DeviceLostError):
        lost.reset(ControlKind.POWER_LIMIT)
    assert isinstance(lost, Device)
    assert keys([well, lost]) == ["gpu0", "gpu1"]


@on("v100,v100", "gpu1:call=GetArchitecture,code=16")
def test_a_gpu_that_fails_to_open_is_seen_by_its_name(machine):
    well, broken = machine.gpus()
    assert broken.info.name == well.info.name
    assert "--gpu-reset -i 1" in broken.read(Quantity.POWER).fix
    keys([well, broken])


@pytest.mark.parametrize("call", ["Init", "GetCount"])
@pytest.mark.parametrize(
    ("code", "fix"),
    [
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "modprobe nvidia"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "reboot"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "root"),
        (pynvml.NVML_ERROR_UNKNOWN, "dmesg"),
    ],
)
def test_an_nvml_that_does_not_start_is_a_reason_and_a_fix(monkeypatch, tmp_path, call, code, fix):
    faults = f"gpu*:call={call},code={code}"
    with simulated(monkeypatch, "v100", faults=faults, folder=tmp_path):
        missing = find(Options(environ={}))
    assert isinstance(missing, Unavailable)
    assert fix in missing.fix


def test_without_the_library_the_hint_is_to_install_the_driver():
    code = "from joulewise.devices import *; print(discover(Options({})).missing['nvidia'])"
    environ = {**os.environ, "LD_LIBRARY_PATH": str(ABSENT)}
    answer = run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert "libnvidia-ml.so.1" in answer.stdout
    assert "--gpus all" in answer.stdout


@pytest.mark.usefixtures("machine")
def test_a_driver_without_gpus_says_so(monkeypatch):
    # The simulation has one GPU at least.
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 0)
    missing = find(Options(environ={}))
    assert isinstance(missing, Unavailable)
    assert "no GPU" in missing.reason


# What sleeps


@pytest.fixture
def bus(tmp_path: Path):
    for bus_id, status in (("04", "active"), ("07", "suspended"), ("0a", "active")):
        power = tmp_path / f"sys/bus/pci/drivers/nvidia/0000:{bus_id}:00.0/power"
        power.mkdir(parents=True)
        (power / "runtime_status").write_text(f"{status}\n")
    return tmp_path


@pytest.mark.usefixtures("machine")
def test_a_sleeping_gpu_is_seen_and_not_woken(bus, monkeypatch):
    touched = []
    by_index = pynvml.nvmlDeviceGetHandleByIndex

    def take(index):
        touched.append(index)
        return by_index(index)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", take)
    devices = discover_and_count(Options(environ={}), bus)[0]
    assert sorted(touched) == [0, 2]  # each GPU is asked in a thread of its own
    asleep = devices[1]
    assert asleep.info.key == "gpu1"
    assert "asleep" in asleep.read(Quantity.POWER).reason
    assert "nvidia-smi" in asleep.read(Quantity.POWER).fix
    with pytest.raises(DeviceError, match="asleep"):
        asleep.set(ControlKind.POWER_LIMIT, 200)
    assert keys(devices) == ["gpu0", "gpu1", "gpu2"]


@pytest.mark.usefixtures("machine")
def test_a_gpu_that_something_else_woke_is_opened_again(bus, monkeypatch):
    devices = discover_and_count(Options(environ={}), bus)[0]
    with monkeypatch.context() as patched:
        patched.setattr(pynvml, "nvmlDeviceGetHandleByIndex", pytest.fail)  # it would wake it
        assert devices[1].reopened() is None
    assert devices[1].asleep
    status = bus / "sys/bus/pci/drivers/nvidia/0000:07:00.0/power/runtime_status"
    status.write_text("active\n")
    awake = devices[1].reopened()
    assert not devices[1].asleep
    assert awake.info.key == "gpu1"
    assert isinstance(awake.read(Quantity.POWER), Reading)
    keys([*devices, awake])


@on("v100,v100", "gpu1:lost@0-5s")
def test_a_gpu_that_came_back_is_opened_again(machine):
    devices = machine.gpus()
    assert devices[1].reopened() is None
    assert not devices[1].asleep
    machine.elapse(6)
    back = devices[1].reopened()
    assert back.info.key == "gpu1"
    assert back.info.uid.startswith("GPU-")
    assert isinstance(back.read(Quantity.POWER), Reading)
    keys([*devices, back])


@pytest.mark.usefixtures("machine")
def test_a_sleeping_gpu_keeps_its_place_on_the_bus(bus):
    in_bus_order = Options({"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert keys(discover_and_count(in_bus_order, bus)[0]) == ["gpu1"]


@pytest.mark.usefixtures("machine")
def test_the_state_of_real_gpus_does_not_concern_simulated_ones(bus):
    devices = discover_and_count(Options(environ={"JOULEWISE_SIM": "anything"}), bus)[0]
    assert all(isinstance(device.sensors[Quantity.POWER], SensorInfo) for device in devices)
    keys(devices)


# NVML's count of its users


def test_nvml_is_released_with_the_last_device(machine):
    first, *rest = machine.gpus()
    keys(rest)
    assert isinstance(first.read(Quantity.POWER), Reading)
    first.close()
    first.close()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()


def test_nvml_stays_for_another_user(machine):
    pynvml.nvmlInit()
    keys(machine.gpus())
    assert pynvml.nvmlDeviceGetCount() == 3
    pynvml.nvmlShutdown()


@pytest.mark.usefixtures("machine")
def test_nvml_is_released_where_no_gpu_was_found():
    find(Options(environ={"CUDA_VISIBLE_DEVICES": ""}))
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()


# GPUs that answer late


@on("v100,v100", "gpu1:slow=400ms,call=GetArchitecture")
def test_a_slow_gpu_delays_no_other_and_is_opened_later(machine):
    environ = {"JOULEWISE_SIM": machine.shared.path}
    devices = find(Options(environ=environ, deadline_s=0.3))
    assert isinstance(devices, list)
    prompt, late = devices
    assert isinstance(prompt, NvidiaGpu)
    assert late.info.uid.startswith("GPU-")  # who it is was known in time
    assert isinstance(late.read(Quantity.POWER), Unavailable)
    deadline_s = monotonic() + 20
    while (device := late.reopened()) is None and monotonic() < deadline_s:
        sleep(0.01)
    assert device is not None
    assert isinstance(device.read(Quantity.POWER), Reading)
    assert keys([prompt, late, device]) == ["gpu0", "gpu1", "gpu1"]


@on("v100,v100", "gpu1:slow=700ms,call=GetHandleByIndex")
@pytest.mark.parametrize("listed", [None, "0,1", "GPU-"])
def test_a_gpu_that_is_not_identified_in_time_is_listed(machine, listed):
    environ = {"JOULEWISE_SIM": machine.shared.path}
    if listed == "GPU-":  # the other one by its name: this one may be the next on the list
        first, _ = find(Options(environ=environ, deadline_s=0.2))
        listed = first.info.uid
        first.close()
    environ |= {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}
    devices = find(Options(environ=environ, deadline_s=0.2))
    assert isinstance(devices, list)
    assert keys(devices) == ["gpu0", "gpu1"]
    assert devices[1].info.uid == "NVML index 1"
    join_finders()


@on("v100,v100", "gpu1:slow=700ms,call=GetUUID")
def test_a_driver_that_stalls_in_one_call_is_not_waited_for(machine, monkeypatch):
    monkeypatch.setattr(discovery, "_STALLED_S", 0.1)
    devices = find(Options(environ={"JOULEWISE_SIM": machine.shared.path}, deadline_s=20))
    assert isinstance(devices, list)
    assert isinstance(devices[0], NvidiaGpu)
    assert isinstance(devices[1], discovery.LateGpu)
    keys(devices)
    join_finders()


# What nobody expected


@pytest.fixture
def broken(monkeypatch):
    """One call that fails for the second GPU in a way that NVML has no code for."""

    def break_call(name):
        call, index = getattr(pynvml, name), pynvml.nvmlDeviceGetIndex

        def broken(handle, *arguments):
            if index(handle) == 1:
                raise ZeroDivisionError("of the driver")
            return call(handle, *arguments)

        monkeypatch.setattr(pynvml, name, broken)

    return break_call


@pytest.mark.parametrize("call", ["nvmlDeviceGetUUID", "nvmlDeviceGetArchitecture"])
def test_what_one_gpu_raises_is_its_own_fault(machine, broken, call):
    broken(call)
    devices = machine.gpus()
    assert [isinstance(device, NvidiaGpu) for device in devices] == [True, False, True]
    assert "ZeroDivisionError: of the driver" in devices[1].read(Quantity.POWER).reason
    assert keys(devices) == ["gpu0", "gpu1", "gpu2"]
    join_finders()


@pytest.mark.usefixtures("machine")
def test_no_thread_is_left_where_finding_fails(monkeypatch):
    def fail():
        raise ZeroDivisionError

    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", fail)
    with pytest.raises(ZeroDivisionError):
        find(Options(environ={}))
    join_finders()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()


# What is asked before the first reading


def test_power_and_energy_are_read_first(machine, monkeypatch):
    calls = Counter()
    for name in filter(re.compile("nvmlDevice[GS]et").match, dir(pynvml)):
        call = getattr(pynvml, name)

        def counted(*arguments, _call=call, _name=name):
            calls[_name] += 1
            return _call(*arguments)

        monkeypatch.setattr(pynvml, name, counted)
    environ = {"JOULEWISE_SIM": machine.shared.path}
    devices = find(Options(environ=environ, energy_first=True))
    assert calls == {
        "nvmlDeviceGetCount": 1,
        "nvmlDeviceGetHandleByIndex": 3,
        "nvmlDeviceGetUUID": 3,
        "nvmlDeviceGetName": 3,
        "nvmlDeviceGetArchitecture": 3,
        "nvmlDeviceGetCudaComputeCapability": 3,
        "nvmlDeviceGetPowerUsage": 3,
        "nvmlDeviceGetTotalEnergyConsumption": 3,
    }
    assert set(devices[0].sensors) == {Quantity.POWER, Quantity.ENERGY}
    assert isinstance(devices[0], PartlyOpened)
    assert not devices[0].is_complete
    keys(devices)


@on("a100")
def test_a_completed_gpu_equals_one_opened_at_once(machine):
    (whole,) = machine.gpus()
    assert whole.is_complete
    [device] = find(Options(environ={"JOULEWISE_SIM": machine.shared.path}, energy_first=True))
    device.complete()
    assert device.is_complete
    assert device.info == whole.info
    assert device.info.memory_b
    assert device.sensors == whole.sensors
    assert device.controls == whole.controls
    assert device.get(ControlKind.POWER_LIMIT) == whole.get(ControlKind.POWER_LIMIT)
    assert isinstance(device.read(Quantity.SM_CLOCK), Reading)
    keys([whole, device])


@pytest.mark.usefixtures("mig")
def test_a_gpu_in_mig_mode_says_so_when_complete(machine):
    devices = find(Options(environ={"JOULEWISE_SIM": machine.shared.path}, energy_first=True))
    devices[1].complete()
    assert devices[1].info.slices == ("MIG-aaaa", "MIG-bbbb")
    assert "whole GPU" in devices[1].info.note
    keys(devices)


def test_a_gpu_that_is_closed_while_it_opens_stays_closed(machine):
    devices = find(Options(environ={"JOULEWISE_SIM": machine.shared.path}, energy_first=True))
    keys(devices)
    devices[0].complete()
    assert isinstance(devices[0].read(Quantity.SM_CLOCK), Unavailable)


def join_finders():
    """Wait for those that look for devices: the simulation must not end before its callers do."""
    for thread in threading.enumerate():
        if thread.name == DISCOVERY_THREAD:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
