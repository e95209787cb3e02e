"""AMD GPUs, on an amdsmi written from its documentation (see ``amdsmi_from_docs``)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from joulewise.data import ControlInfo, ControlKind, Process, Quantity, Unavailable
from joulewise.devices import Options, discover
from joulewise.devices.amd.hip_visible import AmdProcessor, hip_visible_gpus
from joulewise.errors import DeviceError, DeviceLostError, PermissionDeniedError
from joulewise.testing import DeviceConformance
from tests.helpers.documented_amdsmi import (
    DRIVER_NOT_LOADED,
    NO_PERM,
    NOT_FOUND,
    NOT_SUPPORTED,
    AmdSmiDevPerfLevel,
    Board,
)
from tests.helpers.nvml_devices import simulated


class AmdConformance(DeviceConformance):
    model = ""

    @pytest.fixture
    def device(self, install, find, clock):
        install(*self.boards())
        self.clock = clock
        devices = find()
        yield devices[1]
        for opened in devices:
            opened.close()

    def boards(self):
        return Board(0, self.model), Board(1, self.model)

    def elapse(self, seconds):
        self.clock.elapse(seconds)

    def now_ns(self):
        return self.clock.now_ns


class TestMI300X(AmdConformance):
    model = "mi300x"


class TestMI210(AmdConformance):
    model = "mi210"


class TestMI210WithoutRoot(AmdConformance):
    model = "mi210"

    @pytest.fixture
    def device(self, install, find, clock, monkeypatch):
        fake = install(Board(0, self.model))
        monkeypatch.setattr("os.geteuid", lambda: 1000)
        for setter in ("power_cap", "gpu_clk_limit", "gpu_perf_level"):
            fake.failing[f"amdsmi_set_{setter}"] = NO_PERM
        self.clock = clock
        (found,) = find()
        yield found
        found.close()


def values(device):
    readings = {quantity.value: device.read(quantity) for quantity in Quantity}
    return {
        name: round(reading.value, 3)
        for name, reading in readings.items()
        if not isinstance(reading, Unavailable)
    }


def test_an_mi300x_in_our_units(install, find, clock):
    install(Board(0, "mi300x"))
    (device,) = find()
    clock.now_ns = 10_000_000_000
    assert values(device) == {
        "power_w": 139,
        "power_instant_w": 139,
        "energy_j": 1390,
        "enforced_limit_w": 300,
        "gpu_utilisation_pct": 87,
        "memory_utilisation_pct": 12,
        "sm_clock_mhz": 1700,
        "memory_clock_mhz": 1300,
        "temperature_c": 52,
        "memory_used_b": 283_115_520,
    }
    assert device.processes() == [Process(4242, 270_000_000, "compute")]
    assert device.info.name == "AMD Instinct MI300X"
    assert device.info.memory_b == 64 << 30
    assert device.info.driver == "6.10.5"


def test_an_mi210_reports_its_average_power_and_has_a_fan(install, find):
    board = Board(0, "mi210")
    install(board)
    (device,) = find()
    readings = values(device)
    assert readings["power_w"] == readings["power_average_w"] == 41
    assert "power_instant_w" not in readings
    assert (readings["fan_pct"], readings["temperature_c"], readings["throttle_reasons"]) == (
        20,
        41,
        0,
    )
    board.throttle = True
    assert values(device)["throttle_reasons"] == 1


def test_a_power_of_zero_is_no_reading(install, find):
    board = Board(0, "mi300x")
    board.power = {"current_socket_power": 0, "average_socket_power": 77}
    install(board)
    (device,) = find()
    assert values(device)["power_w"] == 77
    assert isinstance(device.sensors[Quantity.POWER_INSTANT], Unavailable)


def test_the_counter_under_its_older_name(install, find, clock):
    fake = install(Board(0))
    count = fake.amdsmi_get_energy_count

    def count_by_older_name(board):
        answer = count(board)
        return {"power": answer.pop("energy_accumulator"), **answer}

    fake.amdsmi_get_energy_count = count_by_older_name
    (device,) = find()
    clock.now_ns = 10_000_000_000
    assert values(device)["energy_j"] == 1390


def test_controls_are_read_and_set(install, find):
    board = Board(0)
    fake = install(board)
    (device,) = find()
    assert device.controls[ControlKind.POWER_LIMIT] == ControlInfo(
        ControlKind.POWER_LIMIT, 0, 300, 300
    )
    device.set(ControlKind.POWER_LIMIT, 150.5)
    assert board.cap_uw["power_cap"] == 150_500_000
    device.reset(ControlKind.POWER_LIMIT)
    assert board.cap_uw["power_cap"] == 300_000_000
    device.set(ControlKind.SM_CLOCK, 1200)
    assert (board.clock_limit_mhz, board.perf_level) == (1200, AmdSmiDevPerfLevel.MANUAL)
    device.reset(ControlKind.SM_CLOCK)
    assert (board.clock_limit_mhz, board.perf_level) == (2100, AmdSmiDevPerfLevel.AUTO)
    fake.failing["amdsmi_set_power_cap"] = NO_PERM
    with pytest.raises(PermissionDeniedError, match="gpu0 was not set"):
        device.set(ControlKind.POWER_LIMIT, 200)


@pytest.mark.parametrize(
    ("cap", "expected"),
    [
        ({"max_power_cap": 0}, Unavailable("this GPU takes no power cap")),
        ({"default_power_cap": 0, "min_power_cap": 10_000_000}, None),
    ],
)
def test_a_power_cap_without_a_default(install, find, cap, expected):
    board = Board(0)
    board.cap_uw.update(cap)
    install(board)
    (device,) = find()
    info = device.controls[ControlKind.POWER_LIMIT]
    assert (info if isinstance(info, Unavailable) else info.default) == expected


def test_an_amdsmi_without_clock_limits(install, find):
    fake = install(Board(0))
    fake.amdsmi_set_gpu_clk_limit = None
    (device,) = find()
    assert device.controls[ControlKind.SM_CLOCK] == Unavailable(
        "this version of amdsmi cannot limit clocks"
    )


def test_a_lost_gpu_is_a_gap_not_an_exception(install, find):
    fake = install(Board(0))
    (device,) = find()
    fake.failing = dict.fromkeys(
        ["amdsmi_get_power_info", "amdsmi_get_gpu_process_list", "amdsmi_get_power_cap_info"],
        NOT_FOUND,
    )
    gone = "the GPU is not there any more"
    for answer in (
        device.read(Quantity.POWER),
        device.processes(),
        device.get(ControlKind.POWER_LIMIT),
    ):
        assert isinstance(answer, Unavailable)
        assert answer.reason == gone
    fake.failing["amdsmi_set_power_cap"] = NOT_FOUND
    with pytest.raises(DeviceLostError):
        device.set(ControlKind.POWER_LIMIT, 200)


def test_only_what_the_gpu_never_reports_is_decided_when_it_is_opened(install, find):
    fake = install(Board(0))
    fake.failing = {"amdsmi_get_power_info": 12, "amdsmi_get_energy_count": NOT_SUPPORTED}
    (device,) = find()
    assert isinstance(device.read(Quantity.POWER), Unavailable)
    fake.failing.clear()
    assert values(device)["power_w"] == 139
    assert isinstance(device.sensors[Quantity.ENERGY], Unavailable)


def test_an_error_without_a_meaning_is_one_line(install, find):
    fake = install(Board(0))
    (device,) = find()
    fake.failing["amdsmi_get_power_info"] = 12
    reading = device.read(Quantity.POWER)
    assert reading == Unavailable(
        "amdsmi failed: Error code: 12 | an error",
        "try again; if it stays, see `dmesg | grep -i amdgpu`",
    )


def test_the_library_is_closed_with_its_last_device(install, find):
    fake = install(Board(0), Board(1))
    first, second = find()
    (third, fourth) = find()
    for device in (first, second, first, third):
        device.close()
    assert not isinstance(fourth.read(Quantity.POWER), Unavailable)
    fourth.close()
    assert fake.users == 0
    assert [call for call in fake.calls if call[0] == "amdsmi_init"] == [("amdsmi_init",)]


def test_the_library_is_closed_where_no_gpu_is_found(install, find):
    fake = install()
    assert find() == Unavailable("amdsmi finds no AMD GPU here")
    assert fake.users == 0


def test_without_the_package_the_reason_names_it(monkeypatch, find, tmp_path):
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    assert find(JOULEWISE_KFD=str(tmp_path)) == Unavailable(
        "the amdsmi package is not installed", "pip install 'joulewise[amd]'"
    )


def test_neither_package_nor_driver_is_a_machine_without_such_a_gpu(monkeypatch, find, tmp_path):
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    answer = find(JOULEWISE_KFD=str(tmp_path / "kfd"))
    assert answer == Unavailable(f"no AMD GPU here: there is no {tmp_path}/kfd")


def test_without_a_driver_the_reason_says_so(install, find):
    fake = install(Board(0))
    fake.failing["amdsmi_init"] = DRIVER_NOT_LOADED
    answer = find()
    assert isinstance(answer, Unavailable)
    assert "sudo modprobe amdgpu" in answer.fix
    assert fake.users == 0


def test_without_the_c_library_nothing_is_printed(tmp_path):
    package = tmp_path / "amdsmi"
    package.mkdir()
    # As documented of amdsmi 7.0 where libamd_smi.so is missing: it prints, then fails.
    (package / "__init__.py").write_text("print('Unable to find it')\nraise KeyError('lib')\n")
    code = "from joulewise.devices import amd, Options; print(amd.find(Options()).reason)"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "amdsmi is installed, but ROCm's library libamd_smi.so cannot be loaded\n"


def test_what_a_driver_does_not_report_has_a_default(install, find):
    fake = install(Board(3))
    for function in ("device_uuid", "asic_info", "driver_info", "memory_total"):
        fake.failing[f"amdsmi_get_gpu_{function}"] = NOT_SUPPORTED
    (device,) = find()
    assert (device.info.name, device.info.uid) == ("AMD GPU", "0000:04:00.0")
    assert device.info.memory_b is None


@pytest.mark.parametrize(
    ("listed", "nvidia"), [("0,1,2", ["gpu0", "gpu1", "gpu2"]), ("1", ["gpu1"]), ("", [])]
)
def test_keys_count_on_after_another_makers_gpus_hidden_or_not(
    install, monkeypatch, tmp_path, listed, nvidia
):
    install(Board(0), Board(1))
    environ = {"CUDA_VISIBLE_DEVICES": listed, "HIP_VISIBLE_DEVICES": "0,1"}
    with simulated(monkeypatch, "v100", "v100", "v100", folder=tmp_path) as machine:
        discovery = discover(Options(environ={"JOULEWISE_SIM": machine.shared.path, **environ}))
        discovery.close()
    gpus = [device.info.key for device in discovery.devices if device.info.kind.value == "gpu"]
    assert gpus == [*nvidia, "gpu3", "gpu4"]


GPUS = [AmdProcessor(index, index, None, f"GPU-dead000{index}", index) for index in range(4)]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, [0, 1, 2, 3]),
        ({"ROCR_VISIBLE_DEVICES": "2,0"}, [0, 2]),
        ({"ROCR_VISIBLE_DEVICES": "1,GPU-DEAD0003"}, [1, 3]),
        ({"ROCR_VISIBLE_DEVICES": "1,-1,2"}, [1]),
        ({"ROCR_VISIBLE_DEVICES": "1,1,2"}, [1]),
        ({"ROCR_VISIBLE_DEVICES": "1,9,2"}, [1]),
        ({"ROCR_VISIBLE_DEVICES": ""}, []),
        ({"HIP_VISIBLE_DEVICES": "3"}, [3]),
        ({"HIP_VISIBLE_DEVICES": ""}, [0, 1, 2, 3]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [1]),
        ({"HIP_VISIBLE_DEVICES": "2", "CUDA_VISIBLE_DEVICES": "1"}, [2]),
        ({"ROCR_VISIBLE_DEVICES": "3,1", "HIP_VISIBLE_DEVICES": "0"}, [3]),
        ({"HIP_VISIBLE_DEVICES": "-1"}, []),
    ],
)
def test_what_hip_would_see(environ, expected):
    shown = hip_visible_gpus(environ, GPUS)
    assert [gpu.index for gpu in shown.gpus] == expected
    if not expected:
        (name,) = environ
        assert (shown.reason, shown.fix) == (
            f"{name}={environ[name]} hides every AMD GPU",
            f"unset {name}",
        )


def test_hip_may_count_in_another_order():
    gpus = [AmdProcessor(0, 0, None, hip=1), AmdProcessor(1, 1, None, hip=0)]
    assert [gpu.index for gpu in hip_visible_gpus({"HIP_VISIBLE_DEVICES": "0"}, gpus).gpus] == [1]


def test_hidden_gpus_say_so(install, find):
    fake = install(Board(0))
    assert find(ROCR_VISIBLE_DEVICES="7") == Unavailable(
        "ROCR_VISIBLE_DEVICES=7 hides every AMD GPU", "unset ROCR_VISIBLE_DEVICES"
    )
    assert fake.users == 0


def test_partitions_count_once_as_their_whole_gpu(install, find):
    parts = [Board(number, partition=part) for number in range(2) for part in range(4)]
    install(*parts)
    devices = find(HIP_VISIBLE_DEVICES="5,6")
    assert [device.info.key for device in devices] == ["gpu4"]
    assert "partition" in devices[0].info.note


def test_every_status_becomes_an_error_with_a_hint(install, find):
    fake = install(Board(0))
    (device,) = find()
    for code in [*range(1, 60), 0xFFFFFFFF]:
        fake.failing["amdsmi_set_power_cap"] = code
        with pytest.raises(DeviceError) as caught:
            device.set(ControlKind.POWER_LIMIT, 100)
        assert caught.value.message.startswith("gpu0 was not set: ")
        assert caught.value.hint
        assert "\n" not in caught.value.message + caught.value.hint
