"""NVML as a client meets it: nvidia-ml-py over the shim, with the clock in our hands."""

import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from inspect import getsource

import numpy as np
import pynvml as nvml
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running_sim import running_sim
from shim import client, code_of, published, simulated, timeline

from joulewise.simulate import sensor
from joulewise.simulate.boards import BOARDS
from joulewise.simulate.model import Knobs
from joulewise.simulate.nvml.layout import CONSTANTS
from joulewise.simulate.nvml.shared import Latency, Shared, library
from joulewise.units import NS_PER_S


@pytest.fixture
def machine(monkeypatch, tmp_path):
    with simulated(monkeypatch, tmp_path, "v100", "a100", "rtx6000", "laptop") as machine:
        yield machine


@pytest.fixture
def gpu(machine):  # noqa: ARG001
    return nvml.nvmlDeviceGetHandleByIndex(0)


def handle(index):
    return nvml.nvmlDeviceGetHandleByIndex(index)


class TestSensor:
    @pytest.mark.parametrize("key", BOARDS)
    def test_readings_are_those_of_the_specification(self, monkeypatch, tmp_path, key):
        with simulated(monkeypatch, tmp_path, key, exact=False) as machine:
            (unit,) = machine.units
            gpu = handle(0)

            @settings(deadline=None, max_examples=25)
            @given(st.integers(0, 2**32), st.floats(1.0, 25.0))
            def compare(seed, at_s):
                draw = np.random.default_rng(seed)
                seconds = np.sort(draw.uniform(-5.0, 25.0, 400))
                shape = {"busy": draw.random(400), "memory_busy": draw.random(400)}
                drawn = timeline(
                    list(zip([-100.0, *seconds[1:]], draw.uniform(20, 300, 400), strict=True)),
                    **shape,
                )
                machine.shared.publish(0, drawn)
                machine.at(at_s)
                _compare(unit, drawn, machine.now_ns, gpu)

            compare()

    def test_power_is_the_mean_of_the_window_before_the_tick(self, machine, gpu):
        machine.draw((-100, 50.0), (1.0, 250.0))
        period_s = machine.units[0].board.sensor.period_s
        machine.at(1.0)
        assert nvml.nvmlDeviceGetPowerUsage(gpu) == 50_000
        machine.at(1.0 + 10 * period_s)
        assert nvml.nvmlDeviceGetPowerUsage(gpu) == 250_000

    def test_the_value_is_held_between_ticks(self, machine, gpu):
        machine.draw((-100, 50.0), *((n / 1000, 60.0 + n) for n in range(200)))
        seen = []
        for millisecond in range(100, 200):
            machine.at(millisecond / 1000)
            seen.append(nvml.nvmlDeviceGetPowerUsage(gpu))
        period_ms = machine.units[0].board.sensor.period_s * 1000
        assert len(set(seen)) == pytest.approx(100 / period_ms, abs=1)

    def test_power_goes_on_where_nothing_is_published(self, machine, gpu):
        machine.draw((0, 123.0))
        machine.at(3600)
        assert nvml.nvmlDeviceGetPowerUsage(gpu) == 123_000
        before = nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
        machine.at(3610)
        assert nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) - before == 1_230_000

    def test_the_counter_begins_again_when_the_driver_does(self, machine, gpu):
        machine.draw((0, 100.0))
        machine.at(10)
        assert nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) == 1_000_000
        machine.shared.reset(0, 1000.0)
        assert nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) == 0
        machine.at(11)
        assert nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) == 100_000

    def test_fields_answer_one_by_one(self, machine):  # noqa: ARG002
        asked = [83, 185, 186, 187, 188, 189, 190, 192, 9999]
        volta, ampere = ([*nvml.nvmlDeviceGetFieldValues(handle(n), asked)] for n in (0, 1))
        assert [f.nvmlReturn for f in volta] == [0, 3, 0, 0, 0, 0, 0, 0, 3]
        assert [f.nvmlReturn for f in ampere] == [0] * 8 + [3]
        assert [f.value.uiVal for f in volta[3:8]] == [150_000, 300_000, 300_000, 300_000, 300_000]
        assert volta[0].valueType == nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG

    def test_what_the_moment_is_like(self, machine, gpu):
        state = {"sm_mhz": 1305, "memory_mhz": 877, "temperature_c": 61.9, "pstate": 2}
        machine.shared.publish(0, timeline([(0, 1.0)], throttle=4, **state))
        machine.at(1)
        assert nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) == 1305
        assert nvml.nvmlDeviceGetClock(gpu, nvml.NVML_CLOCK_MEM, 0) == 877
        assert nvml.nvmlDeviceGetTemperature(gpu, 0) == 61
        assert nvml.nvmlDeviceGetTemperatureV(gpu, 0) == 61
        assert nvml.nvmlDeviceGetPerformanceState(gpu) == 2
        assert nvml.nvmlDeviceGetPowerState(gpu) == 2
        assert nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) == 4
        assert nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu) == 4

    def test_a_link_carries_nothing_while_idle(self, machine, gpu):
        machine.draw((0, 50.0))
        machine.at(1)
        assert nvml.nvmlDeviceGetPcieThroughput(gpu, 0) == 0
        machine.shared.publish(0, timeline([(0, 50.0)], memory_busy=0.5))
        received = nvml.nvmlDeviceGetPcieThroughput(gpu, nvml.NVML_PCIE_UTIL_RX_BYTES)
        assert received > nvml.nvmlDeviceGetPcieThroughput(gpu, nvml.NVML_PCIE_UTIL_TX_BYTES) > 0


def _compare(unit, drawn, now_ns, gpu):
    plain = sensor.power_w(unit, drawn, now_ns, sensor.plain_channel(unit))
    assert nvml.nvmlDeviceGetPowerUsage(gpu) == round(float(plain) * 1000)
    for field, channel in ((186, sensor.INSTANT), (185, sensor.AVERAGE)):
        (value,) = nvml.nvmlDeviceGetFieldValues(gpu, [field])
        if channel == sensor.AVERAGE and not unit.board.sensor.average_window_s:
            assert value.nvmlReturn == nvml.NVML_ERROR_NOT_SUPPORTED
        else:
            expected = sensor.power_w(unit, drawn, now_ns, channel)
            assert value.value.uiVal == round(float(expected) * 1000)
    if unit.board.sensor.counter_step_j:
        counted = round(float(sensor.counter_j(unit, drawn, now_ns)) * 1000)
        assert nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) == max(0, counted)
    rates = nvml.nvmlDeviceGetUtilizationRates(gpu)
    for shown, column in ((rates.gpu, "busy"), (rates.memory, "memory_busy")):
        # The two sum in another order: where the mean lies at half a percent, both are right.
        assert shown == pytest.approx(sensor.utilisation_pct(unit, drawn, now_ns, column), abs=1)
    kind, samples = nvml.nvmlDeviceGetSamples(gpu, nvml.NVML_TOTAL_POWER_SAMPLES, 0)
    times_ns, powers_w = sensor.samples(unit, drawn, now_ns)
    assert kind == nvml.NVML_VALUE_TYPE_UNSIGNED_INT
    assert [s.sampleValue.uiVal for s in samples] == [round(w * 1000) for w in powers_w.tolist()]
    assert np.all(np.diff([s.timeStamp for s in samples]) == np.diff(times_ns) // 1000)


class TestSamples:
    @pytest.mark.parametrize("kind", range(7))
    def test_all_seven_types_are_buffered(self, machine, gpu, kind):
        state = {"busy": 1.0, "memory_busy": 0.5, "sm_mhz": 1305, "memory_mhz": 877}
        machine.shared.publish(0, timeline([(-100, 150.0)], **state))
        value_type, samples = nvml.nvmlDeviceGetSamples(gpu, kind, 0)
        assert value_type == nvml.NVML_VALUE_TYPE_UNSIGNED_INT
        expected = [150_000, 100, 50, 0, 0, 1305, 877][kind]
        assert {s.sampleValue.uiVal for s in samples} == {expected}
        assert len(samples) == machine.units[0].board.sensor.buffer_samples

    def test_only_what_is_newer_comes(self, machine, gpu):
        _, before = nvml.nvmlDeviceGetSamples(gpu, 0, 0)
        newest = before[-1].timeStamp
        assert code_of(nvml.nvmlDeviceGetSamples, gpu, 0, newest) == nvml.NVML_ERROR_NOT_FOUND
        machine.at(5 * machine.units[0].board.sensor.period_s)
        _, after = nvml.nvmlDeviceGetSamples(gpu, 0, newest)
        assert len(after) == 5
        assert after[0].timeStamp > newest

    def test_they_bear_the_time_of_the_wall_clock(self, machine, gpu):
        _, samples = nvml.nvmlDeviceGetSamples(gpu, 0, 0)
        offset_ns = int(machine.shared._header["wall_offset_ns"][0])
        assert samples[-1].timeStamp == (machine.now_ns + offset_ns) // 1000

    def test_a_small_buffer_gets_the_oldest(self, machine, gpu):  # noqa: ARG002
        kind, count = ctypes.c_uint(), ctypes.c_uint(3)
        room = (nvml.c_nvmlSample_t * 3)()
        call = nvml.nvmlLib.nvmlDeviceGetSamples
        since = ctypes.c_ulonglong(0)
        assert call(gpu, 0, since, ctypes.byref(kind), ctypes.byref(count), room) == 0
        _, all_of_them = nvml.nvmlDeviceGetSamples(gpu, 0, 0)
        assert [s.timeStamp for s in room] == [s.timeStamp for s in all_of_them[:3]]

    def test_a_type_that_boards_lack_is_not_supported(self, gpu):
        assert code_of(nvml.nvmlDeviceGetSamples, gpu, 7, 0) == nvml.NVML_ERROR_NOT_SUPPORTED


class TestForgotten:
    """What the ring of pieces has dropped is not made up."""

    @pytest.mark.parametrize("index", range(4))
    @pytest.mark.parametrize("kind", [0, 1, 5])
    def test_the_buffer_begins_where_the_ring_does(self, machine, index, kind):
        spec = machine.units[index].board.sensor
        period_s = spec.utilisation_period_s if kind == 1 else spec.period_s
        needs_s = {0: spec.lag_s + spec.window_s, 1: period_s, 5: 0.0}[kind]
        period_ns, needs_ns = (round(s * NS_PER_S) for s in (period_s, needs_s))
        whole = machine.overflow(gpu=index)
        machine.at(10)
        oldest_ns = int(whole.pieces["t_ns"][-CONSTANTS["RING"]]) + needs_ns
        ticks = range(-(-oldest_ns // period_ns), machine.now_ns // period_ns + 1)
        offset_ns = int(machine.shared._header["wall_offset_ns"][0])
        _, samples = nvml.nvmlDeviceGetSamples(handle(index), kind, 0)
        assert [sample.timeStamp for sample in samples] == [
            (tick * period_ns + offset_ns) // 1000 for tick in ticks[-spec.buffer_samples :]
        ]
        if kind == 0:
            _, powers_w = sensor.samples(machine.units[index], whole, machine.now_ns)
            shown = [sample.sampleValue.uiVal for sample in samples]
            assert shown == [round(w * 1000) for w in powers_w[-len(shown) :].tolist()]

    def test_stale_readings_are_no_data(self, monkeypatch, tmp_path):
        with simulated(monkeypatch, tmp_path, "v100", faults="gpu0:stale=10s") as machine:
            gpu = handle(0)
            machine.overflow()
            reads = [
                (nvml.nvmlDeviceGetPowerUsage, gpu),
                (nvml.nvmlDeviceGetTotalEnergyConsumption, gpu),
                (nvml.nvmlDeviceGetUtilizationRates, gpu),
                (nvml.nvmlDeviceGetClockInfo, gpu, nvml.NVML_CLOCK_SM),
                (nvml.nvmlDeviceGetTemperature, gpu, 0),
                (nvml.nvmlDeviceGetPcieThroughput, gpu, 0),
            ]
            for at_s, answer in ((10.0, nvml.NVML_ERROR_NO_DATA), (15.0, nvml.NVML_SUCCESS)):
                machine.at(at_s)
                assert [code_of(*read) for read in reads] == [answer] * len(reads)
            machine.at(10.0)
            samples = code_of(nvml.nvmlDeviceGetSamples, gpu, nvml.NVML_TOTAL_POWER_SAMPLES, 0)
            assert samples == nvml.NVML_ERROR_NOT_FOUND

    def test_before_the_beginning_the_first_power_went_on(self, machine, gpu):
        machine.at(-200)
        assert nvml.nvmlDeviceGetPowerUsage(gpu) == 100_000
        _, samples = nvml.nvmlDeviceGetSamples(gpu, nvml.NVML_TOTAL_POWER_SAMPLES, 0)
        assert len(samples) == machine.units[0].board.sensor.buffer_samples


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

    def test_strangers_are_not_found(self, gpu):  # noqa: ARG002
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

    def test_errors_have_words(self, gpu):  # noqa: ARG002
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
        listed = (library().parents[1] / "shim" / "unsupported.h").read_text()
        unsupported = re.findall(r"NVML_UNSUPPORTED\((\w+)\)", listed)
        answers = {getattr(nvml.nvmlLib, name)(gpu) for name in unsupported}
        assert answers == {nvml.NVML_ERROR_NOT_SUPPORTED}


class TestSetting:
    def test_a_limit_outlives_its_client_and_all_see_it(self, machine, gpu):
        nvml.nvmlDeviceSetPowerManagementLimit(gpu, 180_500)
        assert machine.shared.knobs(0) == Knobs(limit_w=180.5)
        look = (
            "import pynvml as n; n.nvmlInit(); g = n.nvmlDeviceGetHandleByIndex(0);"
            "print(n.nvmlDeviceGetEnforcedPowerLimit(g));"
            "n.nvmlDeviceSetPowerManagementLimit(g, 200000)"
        )
        environ = {**os.environ, "LD_LIBRARY_PATH": str(library().parent)}
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
        assert machine.shared.knobs(0) == Knobs(limit_w=300.0)

    def test_a_locked_clock_goes_to_the_next_step(self, machine, gpu):
        steps = nvml.nvmlDeviceGetSupportedGraphicsClocks(gpu, 877)
        nvml.nvmlDeviceSetGpuLockedClocks(gpu, 0, 1003)
        low, high = machine.shared.knobs(0).sm_lock_mhz
        assert (low, high) == (min(steps), min(steps, key=lambda mhz: abs(mhz - 1003)))
        nvml.nvmlDeviceSetGpuLockedClocks(gpu, 5000, 6000)
        assert machine.shared.knobs(0).sm_lock_mhz == (max(steps), max(steps))
        nvml.nvmlDeviceResetGpuLockedClocks(gpu)
        assert machine.shared.knobs(0).sm_lock_mhz is None

    def test_named_limits_of_the_clock(self, machine, gpu):
        tdp, unlimited = 0xFFFFFF01, 0xFFFFFF02
        nvml.nvmlDeviceSetGpuLockedClocks(gpu, unlimited, tdp)
        clocks = machine.units[0].board.clocks
        assert machine.shared.knobs(0).sm_lock_mhz == (clocks.sm_min_mhz, clocks.sm_max_mhz)
        nvml.nvmlDeviceSetGpuLockedClocks(gpu, unlimited, unlimited)
        assert machine.shared.knobs(0).sm_lock_mhz is None
        for pair in ((1000, tdp), (tdp, 1000), (1200, 1000), (0, 0)):
            answer = code_of(nvml.nvmlDeviceSetGpuLockedClocks, gpu, *pair)
            assert answer == nvml.NVML_ERROR_INVALID_ARGUMENT

    def test_memory_is_locked_from_ampere_on(self, machine):
        lock = nvml.nvmlDeviceSetMemoryLockedClocks
        assert code_of(lock, handle(0), 877, 877) == nvml.NVML_ERROR_NOT_SUPPORTED
        lock(handle(3), 800, 5600)
        assert machine.shared.knobs(3).memory_lock_mhz == (810.0, 5501.0)
        nvml.nvmlDeviceResetMemoryLockedClocks(handle(3))
        assert machine.shared.knobs(3).memory_lock_mhz is None

    def test_application_clocks_must_be_supported_ones(self, machine, gpu):
        steps = nvml.nvmlDeviceGetSupportedGraphicsClocks(gpu, 877)
        nvml.nvmlDeviceSetApplicationsClocks(gpu, 877, steps[3])
        assert nvml.nvmlDeviceGetApplicationsClock(gpu, nvml.NVML_CLOCK_SM) == steps[3]
        assert machine.shared.knobs(0).sm_lock_mhz[1] == steps[3]
        for pair in ((878, steps[3]), (877, steps[3] + 1)):
            answer = code_of(nvml.nvmlDeviceSetApplicationsClocks, gpu, *pair)
            assert answer == nvml.NVML_ERROR_INVALID_ARGUMENT
        nvml.nvmlDeviceResetApplicationsClocks(gpu)
        assert nvml.nvmlDeviceGetApplicationsClock(gpu, nvml.NVML_CLOCK_SM) == steps[0]
        laptop = code_of(nvml.nvmlDeviceSetApplicationsClocks, handle(3), 6001, 1000)
        assert laptop == nvml.NVML_ERROR_NOT_SUPPORTED

    def test_modes(self, machine, gpu):
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
        assert (machine.shared.knobs(0) == Knobs(limit_w=300.0)) is not as_root


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can show what root may")
def test_root_may_set(monkeypatch, tmp_path):
    with simulated(monkeypatch, tmp_path, "v100", as_root=False) as machine:
        nvml.nvmlDeviceSetPowerManagementLimit(handle(0), 200_000)
        assert machine.shared.knobs(0) == Knobs(limit_w=200.0)


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


class TestEngine:
    """The line to the engine, with a short stand-in for it that writes down what it hears."""

    @pytest.fixture
    def heard(self, tmp_path):
        heard = Heard(f"joulewise-test-{tmp_path.name}-{os.getpid()}")
        threading.Thread(target=heard.listen, daemon=True).start()
        yield heard
        heard.end()

    def test_a_client_is_one_from_init_to_shutdown(self, monkeypatch, tmp_path, heard):
        with simulated(monkeypatch, tmp_path, "v100", "v100", socket=heard.name):
            assert heard.next() == "client"
            nvml.nvmlDeviceSetPowerManagementLimit(handle(1), 200_000)
            assert heard.next() == "changed 1"
            nvml.nvmlInit()
            nvml.nvmlShutdown()
        assert heard.next() == "gone"

    def test_a_forked_child_is_a_client_of_its_own(self, tmp_path, heard):
        with published(tmp_path, "v100", socket=heard.name) as machine:
            parent = _forking(machine)
            assert heard.next() == "client"
            assert parent.communicate("fork")[0] == "0 0\n"
        assert [heard.next() for _ in range(3)] == ["client", "gone", "gone"]

    def test_without_its_engine_the_driver_is_not_loaded(self, monkeypatch, tmp_path):
        nobody = simulated(monkeypatch, tmp_path, "v100", socket="joulewise-nobody-there")
        with pytest.raises(nvml.NVMLError_DriverNotLoaded), nobody:
            pass

    def test_an_engine_that_takes_no_clients_is_not_waited_for_for_ever(self, tmp_path):
        name = f"joulewise-test-{tmp_path.name}-{os.getpid()}"
        with ExitStack() as stack:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(f"\0{name}")
            listener.listen(0)
            full = False
            while not full:
                waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
                waiting.setblocking(False)
                full = bool(waiting.connect_ex(f"\0{name}"))
            machine = stack.enter_context(published(tmp_path, "v100", socket=name))
            environ = {"LD_LIBRARY_PATH": library().parent, "JOULEWISE_SIM": machine.shared.path}
            done = subprocess.run(
                [sys.executable, "-c", "import pynvml; pynvml.nvmlInit()"],
                env={**os.environ, **environ}, check=False, capture_output=True, timeout=30,
            )  # fmt: skip
        assert b"NVMLError_DriverNotLoaded" in done.stderr

    def test_a_stopped_engine_keeps_its_gpus_and_a_killed_one_loses_them(self, monkeypatch):
        with running_sim("--gpu", "v100") as sim, client(monkeypatch, sim.shared):
            gpu = handle(0)
            os.kill(sim.process.pid, signal.SIGSTOP)
            shared = Shared.open(sim.shared)
            shared.freeze(time.monotonic_ns() + 3600 * NS_PER_S)
            assert nvml.nvmlDeviceGetPowerUsage(gpu) > 0
            shared.close()
            sim.kill()
            for _ in range(2):
                assert code_of(nvml.nvmlDeviceGetName, gpu) == nvml.NVML_ERROR_GPU_IS_LOST

    def test_an_engine_that_answers_late_is_still_seen_to_end(self, monkeypatch, tmp_path, heard):
        with simulated(monkeypatch, tmp_path, "v100", socket=heard.name):
            gpu = handle(0)
            heard.pause()
            nvml.nvmlDeviceSetPersistenceMode(gpu, 1)
            assert nvml.nvmlDeviceGetPowerUsage(gpu) > 0
            heard.go_on(then_hang_up=True)
            assert [heard.next() for _ in range(3)] == ["client", "changed 0", "gone"]
            assert code_of(nvml.nvmlDeviceGetName, gpu) == nvml.NVML_ERROR_GPU_IS_LOST

    def test_a_forked_child_of_a_client_whose_engine_ended_is_told(self, tmp_path, heard):
        with published(tmp_path, "v100", socket=heard.name) as machine:
            parent = _forking(machine)
            assert heard.next() == "client"
            heard.end()
            assert parent.communicate("fork")[0].split()[0] == f"{nvml.NVML_ERROR_GPU_IS_LOST}"

    def test_an_engine_stopped_while_writing_is_waited_for_by_the_clock(self, machine, gpu):
        machine.shared._gpus["sequence"][0] += 1
        before_ns = time.monotonic_ns()
        assert code_of(nvml.nvmlDeviceGetPowerUsage, gpu) == nvml.NVML_ERROR_TIMEOUT
        assert time.monotonic_ns() - before_ns >= 50_000_000  # however fast its turns go by
        machine.shared._gpus["sequence"][0] += 1
        assert nvml.nvmlDeviceGetPowerUsage(gpu) > 0


FORKING = """
import ctypes, os, pynvml as n, sys
n.nvmlInit()
gpu, room = n.nvmlDeviceGetHandleByIndex(0), ctypes.byref(ctypes.c_uint())
sys.stdin.read()
child = os.fork()
if child == 0:
    os._exit(n.nvmlLib.nvmlDeviceGetPowerUsage(gpu, room))
answer = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(answer, n.nvmlLib.nvmlDeviceGetPowerUsage(gpu, room))
"""


def _forking(machine):
    """A client that forks when told; it prints what its child and then it itself was answered."""
    environ = {"LD_LIBRARY_PATH": library().parent, "JOULEWISE_SIM": machine.shared.path}
    return subprocess.Popen(
        [sys.executable, "-c", FORKING],
        env={**os.environ, **environ}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


class Heard:
    """Accepts, says ok to every line, and keeps what was said in order."""

    def __init__(self, name):
        self.name = name
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"\0{name}")
        self._listener.listen()
        self._said = []
        self._changed = threading.Condition()
        self._answering = threading.Event()
        self._answering.set()
        self._hang_up = False

    def listen(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def end(self):
        if self._listener.fileno() >= 0:
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def pause(self):
        self._answering.clear()

    def go_on(self, *, then_hang_up):
        self._hang_up = then_hang_up
        self._answering.set()

    def next(self):
        with self._changed:
            assert self._changed.wait_for(lambda: self._said, timeout=10)
            return self._said.pop(0)

    def _converse(self, connection):
        with connection, connection.makefile("r") as lines:
            for line in lines:
                self._say(line.rstrip("\n"))
                self._answering.wait()
                connection.sendall(b"ok\n")
                if self._hang_up:
                    break
        self._say("gone")

    def _say(self, words):
        with self._changed:
            self._said.append(words)
            self._changed.notify_all()


READER = """
import ctypes, pynvml as n, select, sys
n.nvmlInit()
gpu, rates, seen = n.nvmlDeviceGetHandleByIndex(0), n.c_nvmlUtilization_t(), set()
call, room = n.nvmlLib.nvmlDeviceGetUtilizationRates, ctypes.byref(rates)
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(1000):
        assert call(gpu, room) == 0
        seen.add(rates.gpu)
print(*sorted(seen))
"""


def test_readers_never_see_half_of_what_is_written(monkeypatch, tmp_path):
    """Every published timeline is busy throughout or not at all, so any mixture would show."""
    with simulated(monkeypatch, tmp_path, "v100") as machine:
        at = [(t, 100.0) for t in np.arange(0, 2, 0.001)]
        machine.at(2)
        lines = [timeline(at, busy=busy) for busy in (0.0, 1.0)]
        reader = subprocess.Popen(
            [sys.executable, "-c", READER],
            env={**os.environ, "LD_LIBRARY_PATH": str(library().parent)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with reader:
            assert reader.stdout.readline() == "ready\n"
            for _ in range(5_000):
                for line in lines:
                    machine.shared.publish(0, line)
            assert set(reader.communicate("\n")[0].split()) <= {"0", "100"}


def test_calls_take_their_time_by_default(monkeypatch, tmp_path):
    slow = Latency(0, 0, 0, 0, 50_000_000)
    with simulated(monkeypatch, tmp_path, "v100", latency=slow):
        before_ns = time.monotonic_ns()
        nvml.nvmlDeviceGetPcieThroughput(handle(0), 0)
        assert time.monotonic_ns() - before_ns >= slow.pcie_ns  # how much later is no test's matter


def test_the_defaults_are_of_a_drivers_order():
    latency = Latency()
    assert 10_000 <= latency.read_ns <= 1_000_000
    assert latency.pcie_ns == 20_000_000
