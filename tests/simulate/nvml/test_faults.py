"""Every kind of fault: how it is written, and what a client meets."""

import os
import subprocess
import sys
import time
from contextlib import suppress

import pynvml as nvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.errors import UsageError
from joulewise.simulate.model import ControlSettings
from joulewise.simulate.nvml.faults import GRAMMAR, KINDS, InjectedFault, parse_faults
from joulewise.simulate.nvml.shared_memory import shim_path
from joulewise.units import NS_PER_S
from tests.helpers.nvml_on_manual_clock import code_of, simulated, timeline
from tests.helpers.paths import DOCS

REFERENCE = DOCS / "reference" / "faults.md"
S = NS_PER_S


class TestGrammar:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("gpu0:lost@5s", InjectedFault("lost", 0, 5 * S)),
            ("gpu12:lost", InjectedFault("lost", 12)),
            (
                "gpu*:call=GetPowerUsage,code=15@2s-4s",
                InjectedFault("call", None, 2 * S, 4 * S, code=15, call="GetPowerUsage"),
            ),
            ("gpu1:counter-reset@3s", InjectedFault("counter-reset", 1, 3 * S)),
            ("gpu1:counter-backwards", InjectedFault("counter-backwards", 1, amount=100_000)),
            ("gpu1:counter-backwards=2.5J", InjectedFault("counter-backwards", 1, amount=2_500)),
            ("gpu0:stale=500ms@1.5s", InjectedFault("stale", 0, 3 * S // 2, amount=S // 2)),
            ("gpu0:slow=50us", InjectedFault("slow", 0, amount=50_000)),
            (
                "gpu0:slow=5ms,call=GetName",
                InjectedFault("slow", 0, amount=5_000_000, call="GetName"),
            ),
            (
                "gpu0:call=nvmlDeviceGetMemoryInfo_v2,code=3",
                InjectedFault("call", 0, code=3, call="nvmlDeviceGetMemoryInfo_v2"),
            ),
            ("gpu0:limit-refused", InjectedFault("limit-refused", 0, code=3)),
            ("gpu0:limit-refused,code=999", InjectedFault("limit-refused", 0, code=999)),
            (" gpu0 : denied @ 250ms - 1 ", InjectedFault("denied", 0, S // 4, S)),
            ("library-absent", InjectedFault("library-absent")),
        ],
    )
    def test_one_fault_is_parsed(self, text, expected):
        assert parse_faults(text) == (expected,)

    def test_several_faults_are_parsed(self):
        kinds = [
            fault.kind for fault in parse_faults("gpu0:lost@5s; gpu1:stuck@1s-2s;library-absent;")
        ]
        assert kinds == ["lost", "stuck", "library-absent"]

    @pytest.mark.parametrize(
        ("text", "part"),
        [
            ("lost@5s", "lost@5s"),
            ("gpux:lost", "gpux"),
            ("gpu0:vanished", "vanished"),
            ("gpu0:library-absent", "library-absent"),
            ("gpu0:", ""),
            ("gpu0:lost@soon", "soon"),
            ("gpu0:lost@", ""),
            ("gpu0:lost@4s-2s", "4s-2s"),
            ("gpu0:lost@-2s", ""),
            ("gpu0:lost=3", "3"),
            ("gpu0:lost,code=3", "code"),
            ("gpu0", "gpu0"),
            ("", ""),
            ("gpu0:call=GetName", "gpu0:call=GetName"),
            ("gpu0:call=Foo,code=3", "Foo"),
            ("gpu0:call=getpowerusage,code=3", "getpowerusage"),
            ("gpu0:call=nvmlDeviceGetPowerUsag,code=15", "nvmlDeviceGetPowerUsag"),
            ("gpu0:call,code=3", "call"),
            ("gpu0:call=Get Name,code=3", "Get Name"),
            ("gpu0:call=GetName,code=0", "0"),
            ("gpu0:call=GetName,code=lots", "lots"),
            ("gpu0:call=GetName,code=²", "²"),
            ("gpu0:lost@12345678901s", "12345678901s"),
            ("gpu0:stale", "stale"),
            ("gpu0:stale=11s", "11s"),
            ("gpu0:slow=5x", "5x"),
            ("gpu0:counter-backwards=5", "5"),
            ("gpu0:lost;gpu1:oops", "oops"),
        ],
    )
    def test_what_is_wrong_is_quoted(self, text, part):
        with pytest.raises(UsageError) as caught:
            parse_faults(text)
        assert f"'{part}'" in caught.value.message
        assert "\n" not in caught.value.message
        assert GRAMMAR in caught.value.hint

    @given(st.lists(st.sampled_from([*KINDS, *"0123459*:@-=,;. J²٣", "gpu", "code", "ms", "s"])))
    def test_any_text_is_parsed_or_refused(self, words):
        with suppress(UsageError):
            assert all(fault.kind in KINDS for fault in parse_faults("".join(words)))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_documented(kind):
    assert f"## {kind}\n" in REFERENCE.read_text("utf-8")


@pytest.fixture
def under(monkeypatch, tmp_path):
    """Begin a simulation of two V100 with the given faults."""
    managers = []

    def begin(faults):
        managers.append(simulated(monkeypatch, tmp_path, "v100", "v100", faults=faults))
        machine = managers[0].__enter__()
        return machine, nvml.nvmlDeviceGetHandleByIndex(0), nvml.nvmlDeviceGetHandleByIndex(1)

    yield begin
    managers[0].__exit__(None, None, None)


def power_mw(gpu):
    return nvml.nvmlDeviceGetPowerUsage(gpu)


def energy_j(gpu):
    return nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000


def test_a_lost_gpu_answers_nothing_else(under):
    machine, first, second = under("gpu0:lost@5s")
    machine.at(4.99)
    assert power_mw(first) == 100_000
    machine.at(5)
    lost = nvml.NVML_ERROR_GPU_IS_LOST
    for name in ("Name", "PowerUsage", "TotalEnergyConsumption", "MemoryInfo", "Index"):
        assert code_of(getattr(nvml, f"nvmlDeviceGet{name}"), first) == lost
    assert code_of(nvml.nvmlDeviceSetPowerManagementLimit, first, 200_000) == lost
    assert code_of(nvml.nvmlDeviceGetHandleByIndex, 0) == lost
    assert nvml.nvmlDeviceGetCount() == 2
    assert power_mw(second) == 100_000


def test_a_gpu_may_come_back(under):
    machine, first, _ = under("gpu0:lost@5s-6s")
    machine.at(6)
    assert power_mw(first) == 100_000


def test_one_call_fails_for_a_while(under):
    machine, first, second = under("gpu*:call=GetPowerUsage,code=15@2s-4s")
    for at_s, answer in ((1.9, 0), (2, 15), (3.9, 15), (4, 0)):
        machine.at(at_s)
        for gpu in (first, second):
            assert code_of(nvml.nvmlDeviceGetPowerUsage, gpu) == answer
            assert energy_j(gpu) > 0


@pytest.mark.parametrize("name", ["GetCount", "nvmlDeviceGetCount", "DeviceGetCount_v2"])
def test_a_call_of_no_gpu_fails_by_any_of_its_names(under, name):
    under(f"gpu*:call={name},code=999")
    assert code_of(nvml.nvmlDeviceGetCount) == 999
    assert nvml.nvmlSystemGetDriverVersion()


def test_init_can_fail(monkeypatch, tmp_path):
    failing = simulated(monkeypatch, tmp_path, "v100", faults="gpu*:call=Init,code=9")
    with pytest.raises(nvml.NVMLError_DriverNotLoaded), failing:
        pass


def test_a_name_must_match_in_full(under):
    _, first, _ = under("gpu0:call=GetTemperature,code=15")
    with pytest.raises(nvml.NVMLError):
        nvml.nvmlDeviceGetTemperature(first, nvml.NVML_TEMPERATURE_GPU)
    shutdown = nvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN
    assert nvml.nvmlDeviceGetTemperatureThreshold(first, shutdown) == 90


def test_the_counter_begins_again(under):
    machine, first, second = under("gpu0:counter-reset@3s")
    machine.draw((0, 100.0))
    machine.draw((0, 100.0), gpu=1)
    machine.at(2)
    assert energy_j(first) == pytest.approx(200)
    machine.at(4)
    assert energy_j(first) == pytest.approx(100)
    assert energy_j(second) == pytest.approx(400)


def test_the_reset_is_remembered_when_the_ring_has_forgotten(under):
    machine, first, _ = under("gpu0:counter-reset@3s")
    machine.draw((0, 100.0), (3.5, 300.0))
    for start in (350, 10_350):
        later = timeline([(n / 100, 300.0) for n in range(start, start + 10_000)])
        later.pieces["energy_j"] += 350.0 + 3 * (start - 350)
        machine.shared.publish(0, later)
    machine.at(203)
    assert energy_j(first) == pytest.approx(50 + 300 * 199.5)


def test_the_counter_goes_backwards(under):
    machine, first, _ = under("gpu0:counter-backwards=150J@3s")
    machine.draw((0, 100.0))
    readings = []
    for at_s in (2.9, 3, 4):
        machine.at(at_s)
        readings.append(energy_j(first))
    assert readings == pytest.approx([290, 150, 250])


def test_the_counter_never_goes_below_nothing(under):
    machine, first, _ = under("gpu0:counter-backwards=5000J")
    machine.draw((0, 100.0))
    machine.at(3)
    assert energy_j(first) == 0


def test_there_is_no_counter(under):
    machine, first, second = under("gpu0:counter-unsupported@1s")
    machine.at(0.5)
    assert energy_j(first) > 0
    machine.at(1)
    unsupported = nvml.NVML_ERROR_NOT_SUPPORTED
    assert code_of(nvml.nvmlDeviceGetTotalEnergyConsumption, first) == unsupported
    (field,) = nvml.nvmlDeviceGetFieldValues(first, [nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION])
    assert field.nvmlReturn == unsupported
    assert energy_j(second) > 0


def test_a_stuck_sensor_repeats_its_value(under):
    machine, first, _ = under("gpu0:stuck@2s-5s")
    machine.draw((0, 100.0), (3, 250.0), (4.5, 300.0))
    readings = []
    for at_s in (1.9, 2.5, 3.5, 4.9, 5.1):
        machine.at(at_s)
        readings.append(power_mw(first))
    assert readings == [100_000, 100_000, 100_000, 100_000, 300_000]
    assert energy_j(first) == pytest.approx(300 + 375 + 180)  # the counter is not stuck


def test_a_stuck_sensor_fills_the_buffer_with_one_value(under):
    machine, first, _ = under("gpu0:stuck@2s")
    machine.draw((0, 100.0), (1.5, 200.0), (3, 250.0))
    machine.at(4)
    _, samples = nvml.nvmlDeviceGetSamples(first, nvml.NVML_TOTAL_POWER_SAMPLES, 0)
    assert {sample.sampleValue.uiVal for sample in samples[-100:]} == {200_000}


def test_a_value_stays_stuck_when_the_ring_has_forgotten(under):
    machine, first, _ = under("gpu0:stuck@2s")
    machine.draw((0, 100.0))
    machine.at(3)
    assert power_mw(first) == 100_000
    machine.overflow()
    machine.at(10)
    assert power_mw(first) == 100_000


def test_a_stuck_sensor_that_nobody_saw_in_time_sticks_to_what_is_seen_first(under):
    machine, first, _ = under("gpu0:stuck@1s")
    machine.overflow()
    machine.at(5)
    seen_mw = power_mw(first)
    assert seen_mw == pytest.approx(200_000, rel=0.01)
    machine.at(9)
    assert power_mw(first) == seen_mw


def test_stale_readings_come_late(under):
    machine, first, _ = under("gpu0:stale=500ms@2s")
    machine.draw((0, 100.0), (3, 250.0))
    readings = []
    for at_s in (3.2, 3.48, 3.6):
        machine.at(at_s)
        readings.append(power_mw(first))
    assert readings == [100_000, 100_000, 250_000]
    assert energy_j(first) == pytest.approx(300 + 25)


def test_a_limit_is_refused(under):
    machine, first, second = under("gpu0:limit-refused;gpu1:limit-refused,code=999@1s")
    set_limit = nvml.nvmlDeviceSetPowerManagementLimit
    machine.at(2)
    answers = [code_of(set_limit, gpu, 200_000) for gpu in (first, second)]
    assert answers == [nvml.NVML_ERROR_NOT_SUPPORTED, 999]
    assert (
        machine.shared.controls(0) == machine.shared.controls(1) == ControlSettings(limit_w=300.0)
    )


def test_root_is_denied(under):
    machine, first, _ = under("gpu0:denied")
    for name, *values in (
        ("SetPowerManagementLimit", 200_000),
        ("SetGpuLockedClocks", 1000, 1000),
        ("SetPersistenceMode", 0),
    ):
        answer = code_of(getattr(nvml, f"nvmlDevice{name}"), first, *values)
        assert answer == nvml.NVML_ERROR_NO_PERMISSION
    assert machine.shared.controls(0) == ControlSettings(limit_w=300.0)
    assert power_mw(first) == 100_000


def test_slow_calls_take_at_least_their_time(under):
    _, first, _ = under("gpu0:slow=30ms")
    before_ns = time.monotonic_ns()
    power_mw(first)
    assert time.monotonic_ns() - before_ns >= 30_000_000


def test_only_the_call_that_is_named_is_slow(under):
    _, first, second = under("gpu0:slow=9999s,call=GetName")
    assert energy_j(first) > 0
    assert nvml.nvmlDeviceGetName(second)


def test_without_the_library_nothing_is_loaded():
    absent = shim_path().parents[1] / "absent"
    look = "import pynvml; pynvml.nvmlInit()"
    done = subprocess.run(
        [sys.executable, "-c", look],
        env={**os.environ, "LD_LIBRARY_PATH": str(absent)},
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert "NVMLError_LibraryNotFound" in done.stderr
