"""NVML as a client meets it: nvidia-ml-py over the shim, with the clock in our hands."""

import ctypes
import re
from inspect import getsource

import pynvml as nvml
import pytest

from joulewise.simulate.nvml.shared_memory import shim_path
from tests.helpers.nvml_on_manual_clock import code_of, handle, timeline


class TestIdentity:
    def test_a_gpu_is_found_by_everything_it_is_called(self, machine):
        assert nvml.nvmlDeviceGetCount() == 4
        for index, unit in enumerate(machine.units):
            gpu = handle(index)
            pci = nvml.nvmlDeviceGetPciInfo(gpu)
            assert nvml.nvmlDeviceGetName(gpu) == unit.board.name
            assert nvml.nvmlDeviceGetIndex(gpu) == nvml.nvmlDeviceGetMinorNumber(gpu) == index
            assert nvml.nvmlDeviceGetUUID(gpu).startswith("GPU-")
            names = [
                (nvml.nvmlDeviceGetHandleByUUID, nvml.nvmlDeviceGetUUID(gpu)),
                (nvml.nvmlDeviceGetHandleByPciBusId, pci.busId),
                (nvml.nvmlDeviceGetHandleByPciBusId, pci.busIdLegacy.lower()),
            ]
            if unit.board.key != "laptop":
                names.append((nvml.nvmlDeviceGetHandleBySerial, nvml.nvmlDeviceGetSerial(gpu)))
            for find, name in names:
                assert nvml.nvmlDeviceGetIndex(find(name.encode())) == index
            assert nvml.nvmlDeviceGetArchitecture(gpu) == unit.board.architecture
            assert nvml.nvmlDeviceGetNumGpuCores(gpu) == unit.board.cores
            assert nvml.nvmlDeviceGetCudaComputeCapability(gpu) == unit.board.compute_capability

    def test_unknown_gpus_are_not_found(self, gpu):  # noqa: ARG002
        by_uuid = nvml.nvmlDeviceGetHandleByUUID
        assert code_of(by_uuid, b"GPU-0") == nvml.NVML_ERROR_NOT_FOUND
        assert code_of(nvml.nvmlDeviceGetHandleByIndex, 4) == nvml.NVML_ERROR_INVALID_ARGUMENT
        for bus_id in (b"0000:FF:00.0", b"nonsense", b""):
            by_bus = nvml.nvmlDeviceGetHandleByPciBusId
            assert code_of(by_bus, bus_id) == nvml.NVML_ERROR_NOT_FOUND

    def test_the_driver_has_versions(self, gpu):  # noqa: ARG002
        assert re.fullmatch(r"\d+\.\d+\.\d+", nvml.nvmlSystemGetDriverVersion())
        assert nvml.nvmlSystemGetNVMLVersion()
        assert nvml.nvmlSystemGetCudaDriverVersion() // 1000 >= 12

    def test_a_text_needs_room(self, gpu):
        room = ctypes.create_string_buffer(5)
        call = nvml.nvmlLib.nvmlDeviceGetName
        assert call(gpu, room, 5) == nvml.NVML_ERROR_INSUFFICIENT_SIZE
        assert call(gpu, None, 64) == nvml.NVML_ERROR_INVALID_ARGUMENT

    def test_errors_have_messages(self, gpu):  # noqa: ARG002
        words = nvml.nvmlLib.nvmlErrorString
        words.restype = ctypes.c_char_p
        assert words(15) == b"GPU is lost"
        assert words(999) == words(-1) == b"Unknown Error"

    def test_modes_that_are_off(self, gpu):
        assert nvml.nvmlDeviceGetMigMode(gpu) == [0, 0]
        assert nvml.nvmlDeviceGetDisplayMode(gpu) == nvml.nvmlDeviceGetDisplayActive(gpu) == 0
        assert nvml.nvmlDeviceGetC2cModeInfoV(gpu).isC2cEnabled == 0
        driver_model = nvml.nvmlDeviceGetDriverModel
        assert code_of(driver_model, gpu) == nvml.NVML_ERROR_NOT_SUPPORTED

    def test_memory_is_counted_with_and_without_what_is_reserved(self, machine, gpu):
        machine.shared.set_processes(0, [(11, 3 << 30), (12, 1 << 30)])
        plain = nvml.nvmlDeviceGetMemoryInfo(gpu)
        full = nvml.nvmlDeviceGetMemoryInfo(gpu, nvml.nvmlMemory_v2)
        assert full.used == 4 << 30
        assert plain.used == full.used + full.reserved
        assert plain.total == full.total == machine.units[0].board.memory_b
        assert full.free == plain.free == plain.total - plain.used
        assert nvml.nvmlDeviceGetBAR1MemoryInfo(gpu).bar1Total > 0

    def test_fans_and_ecc_where_there_are_any(self, machine):
        for index, unit in enumerate(machine.units):
            gpu = handle(index)
            has_fans = code_of(nvml.nvmlDeviceGetFanSpeed_v2, gpu, 0) == 0
            assert has_fans == bool(unit.board.fans)
            assert nvml.nvmlDeviceGetNumFans(gpu) == unit.board.fans
        assert nvml.nvmlDeviceGetTotalEccErrors(handle(0), 1, 0) == 0
        laptop = handle(3)
        assert code_of(nvml.nvmlDeviceGetEccMode, laptop) == nvml.NVML_ERROR_NOT_SUPPORTED


class TestProcesses:
    def test_every_version_lists_them(self, machine, gpu):
        machine.shared.set_processes(0, [(4321, 1 << 30), (4322, 2 << 30)])
        for call in (
            nvml.nvmlDeviceGetComputeRunningProcesses_v2,
            nvml.nvmlDeviceGetComputeRunningProcesses_v3,
            lambda gpu: nvml.nvmlDeviceGetRunningProcessDetailList(
                gpu, nvml.nvmlProcessDetailList_v1, nvml.NVML_PROCESS_MODE_COMPUTE
            ),
        ):
            listed = [(process.pid, process.usedGpuMemory) for process in call(gpu)]
            assert listed == [(4321, 1 << 30), (4322, 2 << 30)]
        assert nvml.nvmlDeviceGetGraphicsRunningProcesses(gpu) == []

    def test_the_first_version_has_a_smaller_record(self, machine, gpu):
        machine.shared.set_processes(0, [(1, 10), (2, 20)])
        count, room = ctypes.c_uint(2), (ctypes.c_ulonglong * 4)()
        call = nvml.nvmlLib.nvmlDeviceGetComputeRunningProcesses
        assert call(gpu, ctypes.byref(count), room) == 0
        assert (count.value, list(room)) == (2, [1, 10, 2, 20])

    def test_an_idle_gpu_has_none(self, gpu):
        assert nvml.nvmlDeviceGetComputeRunningProcesses(gpu) == []

    def test_too_little_room_is_answered_with_how_much_it_takes(self, machine, gpu):
        machine.shared.set_processes(0, [(1, 10), (2, 20)])
        for name in ("", "_v2", "_v3"):
            call = getattr(nvml.nvmlLib, f"nvmlDeviceGetComputeRunningProcesses{name}")
            count, room = ctypes.c_uint(1), (ctypes.c_ulonglong * 4)()
            assert call(gpu, ctypes.byref(count), room) == nvml.NVML_ERROR_INSUFFICIENT_SIZE
            assert (count.value, list(room)) == (2, [0] * 4)

    def test_load_that_was_seen_or_of_nobody_is_not_found(self, machine, gpu):
        loads = nvml.nvmlDeviceGetProcessUtilization
        assert code_of(loads, gpu, 0) == nvml.NVML_ERROR_NOT_FOUND
        machine.shared.set_processes(0, [(7, 1)])
        (seen,) = loads(gpu, 0)
        assert code_of(loads, gpu, seen.timeStamp) == nvml.NVML_ERROR_NOT_FOUND

    def test_load_is_shared_between_them(self, machine, gpu):
        machine.shared.publish(0, timeline([(-100, 150.0)], busy=1.0, memory_busy=0.4))
        machine.shared.set_processes(0, [(7, 1), (8, 1)])
        for call in (
            nvml.nvmlDeviceGetProcessUtilization,
            nvml.nvmlDeviceGetProcessesUtilizationInfo,
        ):
            shown = [(s.pid, s.smUtil, s.memUtil) for s in call(gpu, 0)]
            assert shown == [(7, 50, 20), (8, 50, 20)]


class TestArguments:
    def test_nothing_works_before_init_and_after_shutdown(self, gpu):
        nvml.nvmlShutdown()
        try:
            uninitialised = nvml.NVML_ERROR_UNINITIALIZED
            assert code_of(nvml.nvmlDeviceGetPowerUsage, gpu) == uninitialised
            assert code_of(nvml.nvmlDeviceGetCount) == uninitialised
            assert code_of(nvml.nvmlShutdown) == uninitialised
            assert code_of(nvml.nvmlDeviceGetNvLinkState, gpu, 0) == uninitialised
        finally:
            nvml.nvmlInit()

    def test_init_is_counted(self, gpu):
        nvml.nvmlInit()
        nvml.nvmlShutdown()
        assert nvml.nvmlDeviceGetPowerUsage(gpu) > 0

    def test_without_a_simulation_the_driver_is_not_loaded(self, monkeypatch, tmp_path, machine):
        nvml.nvmlShutdown()
        other = tmp_path / "other"
        other.write_bytes(bytes(1 << 20))
        try:
            for path, answer in (
                ("", nvml.NVML_ERROR_DRIVER_NOT_LOADED),
                (tmp_path / "missing", nvml.NVML_ERROR_DRIVER_NOT_LOADED),
                ("/dev/null", nvml.NVML_ERROR_DRIVER_NOT_LOADED),
                (other, nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH),
            ):
                monkeypatch.setenv("JOULEWISE_SIM", str(path))
                assert code_of(nvml.nvmlInit) == answer
        finally:
            monkeypatch.setenv("JOULEWISE_SIM", machine.shared.path)
            nvml.nvmlInit()

    def test_a_handle_must_be_one_of_ours(self, gpu):  # noqa: ARG002
        for wrong in (None, ctypes.c_void_p(0xDEAD), ctypes.c_void_p(2**64 - 1)):
            for name in ("GetPowerUsage", "SetPowerManagementLimit", "GetName"):
                call = getattr(nvml.nvmlLib, f"nvmlDevice{name}")
                assert call(wrong, ctypes.c_uint(0), 0) == nvml.NVML_ERROR_INVALID_ARGUMENT

    @pytest.mark.parametrize(
        "name",
        [
            "PowerUsage", "TotalEnergyConsumption", "PowerManagementLimit", "UtilizationRates",
            "EnforcedPowerLimit", "MemoryInfo", "MemoryInfo_v2", "PciInfo_v3", "PerformanceState",
            "CurrentClocksThrottleReasons", "PersistenceMode", "ComputeMode", "NumFans", "Index",
            "SupportedMemoryClocks", "ComputeRunningProcesses_v3", "MigMode", "EccMode",
            "TemperatureV", "RunningProcessDetailList", "ProcessesUtilizationInfo",
        ],
    )  # fmt: skip
    def test_nowhere_to_put_the_answer_is_an_invalid_argument(self, gpu, name):
        call = getattr(nvml.nvmlLib, f"nvmlDeviceGet{name}")
        assert call(gpu, None, None, None) == nvml.NVML_ERROR_INVALID_ARGUMENT

    def test_a_wrong_version_of_a_structure_is_refused(self, gpu):
        for name, structure in (
            ("MemoryInfo_v2", nvml.c_nvmlMemory_v2_t()),
            ("TemperatureV", nvml.c_nvmlTemperature_v1_t()),
            ("RunningProcessDetailList", nvml.c_nvmlProcessDetailList_v1_t()),
        ):
            call = getattr(nvml.nvmlLib, f"nvmlDeviceGet{name}")
            mismatch = nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
            assert call(gpu, ctypes.byref(structure)) == mismatch

    def test_every_function_of_nvidia_ml_py_is_there(self, gpu):
        wanted = set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', getsource(nvml)))
        assert len(wanted) > 300
        assert [name for name in sorted(wanted) if not hasattr(nvml.nvmlLib, name)] == []
        listed = (shim_path().parents[1] / "shim" / "unsupported.h").read_text()
        unsupported = re.findall(r"NVML_UNSUPPORTED\((\w+)\)", listed)
        answers = {getattr(nvml.nvmlLib, name)(gpu) for name in unsupported}
        assert answers == {nvml.NVML_ERROR_NOT_SUPPORTED}
