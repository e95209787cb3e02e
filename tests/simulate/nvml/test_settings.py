"""Who may set what over the simulated NVML, and what it does."""

import os
import subprocess
import sys
from contextlib import contextmanager

import pynvml as nvml
import pytest

from joulewise.simulate.model import ControlSettings
from joulewise.simulate.nvml.shared_memory import shim_path
from tests.helpers.nvml_on_manual_clock import code_of, handle, simulated


class TestSetting:
    def test_a_limit_outlives_its_client_and_all_see_it(self, machine, gpu):
        nvml.nvmlDeviceSetPowerManagementLimit(gpu, 180_500)
        assert machine.shared.controls(0) == ControlSettings(limit_w=180.5)
        look = (
            "import pynvml as n; n.nvmlInit(); g = n.nvmlDeviceGetHandleByIndex(0);"
            "print(n.nvmlDeviceGetEnforcedPowerLimit(g));"
            "n.nvmlDeviceSetPowerManagementLimit(g, 200000)"
        )
        environ = {**os.environ, "LD_LIBRARY_PATH": str(shim_path().parent)}
        done = subprocess.run(
            [sys.executable, "-c", look], env=environ, check=True, capture_output=True, text=True
        )
        assert done.stdout == "180500\n"
        assert nvml.nvmlDeviceGetPowerManagementLimit(gpu) == 200_000
        assert nvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu) == 300_000

    def test_a_limit_outside_its_range_is_refused(self, machine, gpu):
        low_mw, high_mw = nvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu)
        for limit_mw in (low_mw - 1, high_mw + 1, 0, 2**32 - 1):
            answer = code_of(nvml.nvmlDeviceSetPowerManagementLimit, gpu, limit_mw)
            assert answer == nvml.NVML_ERROR_INVALID_ARGUMENT
        assert machine.shared.controls(0) == ControlSettings(limit_w=300.0)

    def test_a_locked_clock_goes_to_the_next_step(self, machine, gpu):
        steps = nvml.nvmlDeviceGetSupportedGraphicsClocks(gpu, 877)
        nvml.nvmlDeviceSetGpuLockedClocks(gpu, 0, 1003)
        low, high = machine.shared.controls(0).sm_lock_mhz
        assert (low, high) == (min(steps), min(steps, key=lambda mhz: abs(mhz - 1003)))
        nvml.nvmlDeviceSetGpuLockedClocks(gpu, 5000, 6000)
        assert machine.shared.controls(0).sm_lock_mhz == (max(steps), max(steps))
        nvml.nvmlDeviceResetGpuLockedClocks(gpu)
        assert machine.shared.controls(0).sm_lock_mhz is None

    def test_named_limits_of_the_clock(self, machine, gpu):
        tdp, unlimited = 0xFFFFFF01, 0xFFFFFF02
        nvml.nvmlDeviceSetGpuLockedClocks(gpu, unlimited, tdp)
        clocks = machine.units[0].board.clocks
        assert machine.shared.controls(0).sm_lock_mhz == (clocks.sm_min_mhz, clocks.sm_max_mhz)
        nvml.nvmlDeviceSetGpuLockedClocks(gpu, unlimited, unlimited)
        assert machine.shared.controls(0).sm_lock_mhz is None
        for pair in ((1000, tdp), (tdp, 1000), (1200, 1000), (0, 0)):
            answer = code_of(nvml.nvmlDeviceSetGpuLockedClocks, gpu, *pair)
            assert answer == nvml.NVML_ERROR_INVALID_ARGUMENT

    def test_memory_is_locked_from_ampere_on(self, machine):
        lock = nvml.nvmlDeviceSetMemoryLockedClocks
        assert code_of(lock, handle(0), 877, 877) == nvml.NVML_ERROR_NOT_SUPPORTED
        lock(handle(3), 800, 5600)
        assert machine.shared.controls(3).memory_lock_mhz == (810.0, 5501.0)
        nvml.nvmlDeviceResetMemoryLockedClocks(handle(3))
        assert machine.shared.controls(3).memory_lock_mhz is None

    def test_application_clocks_must_be_supported_ones(self, machine, gpu):
        steps = nvml.nvmlDeviceGetSupportedGraphicsClocks(gpu, 877)
        nvml.nvmlDeviceSetApplicationsClocks(gpu, 877, steps[3])
        assert nvml.nvmlDeviceGetApplicationsClock(gpu, nvml.NVML_CLOCK_SM) == steps[3]
        assert machine.shared.controls(0).sm_lock_mhz[1] == steps[3]
        for pair in ((878, steps[3]), (877, steps[3] + 1)):
            answer = code_of(nvml.nvmlDeviceSetApplicationsClocks, gpu, *pair)
            assert answer == nvml.NVML_ERROR_INVALID_ARGUMENT
        nvml.nvmlDeviceResetApplicationsClocks(gpu)
        assert nvml.nvmlDeviceGetApplicationsClock(gpu, nvml.NVML_CLOCK_SM) == steps[0]
        laptop = code_of(nvml.nvmlDeviceSetApplicationsClocks, handle(3), 6001, 1000)
        assert laptop == nvml.NVML_ERROR_NOT_SUPPORTED

    def test_modes_are_set(self, machine, gpu):
        nvml.nvmlDeviceSetPersistenceMode(gpu, 0)
        assert not machine.shared.persistence(0)
        nvml.nvmlDeviceSetPersistenceMode(gpu, 1)
        assert nvml.nvmlDeviceGetPersistenceMode(gpu) == 1
        nvml.nvmlDeviceSetComputeMode(gpu, 3)
        assert nvml.nvmlDeviceGetComputeMode(gpu) == 3
        thread_mode = code_of(nvml.nvmlDeviceSetComputeMode, gpu, 1)
        assert thread_mode == nvml.NVML_ERROR_NOT_SUPPORTED

    def test_supported_clocks_go_down_from_the_highest(self, gpu):
        assert nvml.nvmlDeviceGetSupportedMemoryClocks(gpu) == [877]
        steps = nvml.nvmlDeviceGetSupportedGraphicsClocks(gpu, 877)
        assert steps[0] == nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM) == 1530
        assert steps == sorted(set(steps), reverse=True)
        stranger = code_of(nvml.nvmlDeviceGetSupportedGraphicsClocks, gpu, 900)
        assert stranger == nvml.NVML_ERROR_NOT_FOUND


SETTERS = (
    ("SetPowerManagementLimit", 200_000),
    ("SetGpuLockedClocks", 1000, 1000),
    ("ResetGpuLockedClocks",),
    ("SetPersistenceMode", 0),
    ("SetApplicationsClocks", 877, 1005),
)


@pytest.mark.parametrize("as_root", [False, True])
def test_who_is_not_root_may_only_look_unless_all_count_as_root(monkeypatch, tmp_path, as_root):
    with simulated(monkeypatch, tmp_path, "v100", as_root=as_root) as machine, nobody():
        gpu = handle(0)
        assert nvml.nvmlDeviceGetPowerUsage(gpu) > 0
        answers = {
            code_of(getattr(nvml, f"nvmlDevice{name}"), gpu, *values) for name, *values in SETTERS
        }
        assert answers == {nvml.NVML_SUCCESS if as_root else nvml.NVML_ERROR_NO_PERMISSION}
        assert (machine.shared.controls(0) == ControlSettings(limit_w=300.0)) is not as_root


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can show what root may")
def test_root_may_set(monkeypatch, tmp_path):
    with simulated(monkeypatch, tmp_path, "v100", as_root=False) as machine:
        nvml.nvmlDeviceSetPowerManagementLimit(handle(0), 200_000)
        assert machine.shared.controls(0) == ControlSettings(limit_w=200.0)


@contextmanager
def nobody():
    """Somebody who is not root."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(was)
