"""Turning NVIDIA GPUs: nvidia-ml-py over the simulated NVML."""

from __future__ import annotations

import os
from contextlib import contextmanager

import pynvml
import pytest

from joulewise.data import ControlInfo, ControlKind, Unavailable
from joulewise.devices.nvidia.nvml_library import fault
from joulewise.errors import DeviceError, OutOfRangeError, PermissionDeniedError, installed_command
from tests.helpers.nvml_devices import on, simulated


def test_the_power_limit_has_the_range_and_default_of_the_board(device):
    assert device.controls[ControlKind.POWER_LIMIT] == ControlInfo(
        ControlKind.POWER_LIMIT, 150, 300, 300
    )


def test_the_power_limit_is_set_in_watts_and_reset_to_its_default(device, machine):
    device.set(ControlKind.POWER_LIMIT, 187.5)
    assert machine.shared.controls(0).limit_w == 187.5
    assert device.get(ControlKind.POWER_LIMIT) == 187.5
    device.reset(ControlKind.POWER_LIMIT)
    assert machine.shared.controls(0).limit_w == 300


def test_discovery_sets_nothing(machine):
    machine.shared._gpus["limit_mw"] = 200_000
    machine.shared._gpus["sm_lock"] = 1005 << 32 | 1005
    (device,) = machine.gpus()
    device.close()
    controls = machine.shared.controls(0)
    assert (controls.limit_w, controls.sm_lock_mhz) == (200, (1005, 1005))


def test_the_sm_clock_takes_the_supported_clocks(device):
    info = device.controls[ControlKind.SM_CLOCK]
    assert info.choices == tuple(sorted(info.choices))
    assert (info.minimum, info.maximum) == (135, 1530)
    assert 1005 in info.choices
    assert not info.readable
    assert isinstance(device.get(ControlKind.SM_CLOCK), Unavailable)


@on("a100")
@pytest.mark.parametrize(
    ("control", "clock", "lock"),
    [
        (ControlKind.SM_CLOCK, 1005, "sm_lock_mhz"),
        (ControlKind.MEMORY_CLOCK, 1215, "memory_lock_mhz"),
    ],
)
def test_a_clock_is_locked_to_one_value_and_unlocked(device, machine, control, clock, lock):
    device.set(control, clock)
    assert getattr(machine.shared.controls(0), lock) == (clock, clock)
    device.reset(control)
    assert getattr(machine.shared.controls(0), lock) is None


@pytest.mark.parametrize("board", ["v100", "rtx6000"])
def test_before_ampere_the_memory_clock_cannot_be_locked(monkeypatch, tmp_path, board):
    with simulated(monkeypatch, board, folder=tmp_path) as machine:
        (device,) = machine.gpus()
        info = device.controls[ControlKind.MEMORY_CLOCK]
        device.close()
    assert isinstance(info, Unavailable)


def test_a_clock_between_two_steps_is_refused_with_both(device):
    choices = device.controls[ControlKind.SM_CLOCK].choices
    with pytest.raises(OutOfRangeError) as refusal:
        device.set(ControlKind.SM_CLOCK, choices[3] + 0.5)
    assert refusal.value.message == f"gpu0's SM clock cannot be {choices[3] + 0.5:g} MHz"
    low, high = f"{choices[0]:g}", f"{choices[-1]:g}"
    steps = f"in steps: try {choices[3]:g} or {choices[4]:g}"
    assert refusal.value.hint == f"it takes {low} to {high} MHz, {steps}"


def test_a_fixed_limit_is_no_control(machine):
    machine.shared._gpus["limit_minimum_mw"] = machine.shared._gpus["limit_maximum_mw"]
    (device,) = machine.gpus()
    assert device.controls[ControlKind.POWER_LIMIT] == Unavailable(
        "the maker fixed its power limit at 300 W"
    )
    device.close()


@on("v100", "gpu0:call=GetPowerManagementLimit,code=3")
def test_a_limit_that_cannot_be_read_is_no_control(device):
    assert isinstance(device.controls[ControlKind.POWER_LIMIT], Unavailable)


@on("v100", "gpu0:call=GetSupportedMemoryClocks,code=3")
def test_without_supported_clocks_there_is_no_lock(device):
    assert isinstance(device.controls[ControlKind.SM_CLOCK], Unavailable)


class RealDriver:
    """The simulated library as a real one would look: without the functions that only ours has."""

    def __init__(self, library):
        self._library = library

    def __getattr__(self, name):
        if name.startswith("joulewise_"):
            raise AttributeError(name)
        return getattr(self._library, name)


def test_without_root_every_control_names_what_gives_the_right(machine, monkeypatch):
    monkeypatch.setattr(pynvml, "nvmlLib", RealDriver(pynvml.nvmlLib))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (device,) = machine.gpus()
    limit, clock = device.controls[ControlKind.POWER_LIMIT], device.controls[ControlKind.SM_CLOCK]
    device.close()
    for control in (limit, clock):
        assert f"`sudo -E {installed_command()} …`" in control.writable.fix
        assert "guard --group NAME --unit" in control.writable.fix
        assert "nvidia-smi" not in control.writable.fix  # which would leave it set
    assert limit.maximum == 300


def test_a_real_driver_is_assumed_to_obey_root(machine, monkeypatch):
    monkeypatch.setattr(pynvml, "nvmlLib", RealDriver(pynvml.nvmlLib))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (device,) = machine.gpus()
    assert all(
        device.controls[control].writable is True
        for control in (ControlKind.POWER_LIMIT, ControlKind.SM_CLOCK)
    )
    device.close()


@contextmanager
def another_user():
    """As a process that is not root, which the tests may be already."""
    uid = os.geteuid()
    if uid == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(uid)


@pytest.mark.parametrize("as_root", [True, False])
def test_the_simulated_driver_reports_who_may_set_controls(monkeypatch, tmp_path, as_root):
    with simulated(monkeypatch, "v100", folder=tmp_path, as_root=as_root) as machine:
        pynvml.nvmlInit()  # while its files can be opened, which are of whoever runs the tests
        with another_user():
            (device,) = machine.gpus()
            permitted = {
                device.controls[control].writable
                for control in (ControlKind.POWER_LIMIT, ControlKind.SM_CLOCK)
            }
            device.close()
    (answer,) = permitted
    if as_root:
        assert answer is True
    else:
        assert isinstance(answer, Unavailable)
        assert "joulewise sim --as-root" in answer.fix


@on("a100", "gpu0:denied")
@pytest.mark.parametrize(
    ("control", "value", "command", "reset"),
    [
        (ControlKind.POWER_LIMIT, 150.0, "-pl 150", "-pl 400"),
        (ControlKind.SM_CLOCK, 1005.0, "-lgc 1005,1005", "-rgc"),
        (ControlKind.MEMORY_CLOCK, 1215.0, "-lmc 1215,1215", "-rmc"),
    ],
)
def test_a_denied_setting_raises_with_the_exact_command(device, control, value, command, reset):
    with pytest.raises(PermissionDeniedError) as refusal:
        device.set(control, value)
    assert f"sudo nvidia-smi -i 0 {command}`" in refusal.value.hint
    with pytest.raises(PermissionDeniedError) as refusal:
        device.reset(control)
    assert f"sudo nvidia-smi -i 0 {reset}`" in refusal.value.hint


@pytest.mark.parametrize("code", [3, 4, 10, 15, 17, 24, 500, 999])
def test_a_refused_limit_raises_the_error_of_its_code(monkeypatch, tmp_path, code):
    faults = f"gpu0:call=SetPowerManagementLimit,code={code}"
    with simulated(monkeypatch, "v100", faults=faults, folder=tmp_path) as machine:
        (device,) = machine.gpus()
        with pytest.raises(fault(code).error) as refusal:
            device.set(ControlKind.POWER_LIMIT, 200)
        device.close()
    assert "gpu0 was not set to power_limit_w=200" in refusal.value.message
    assert refusal.value.__cause__ is None


def test_a_limit_that_was_not_set_raises(device, monkeypatch):
    # No driver, simulated or not, can be made to say yes and do nothing.
    monkeypatch.setattr(pynvml, "nvmlDeviceSetPowerManagementLimit", lambda *_: None)
    with pytest.raises(DeviceError, match="is at 300"):
        device.set(ControlKind.POWER_LIMIT, 200)
