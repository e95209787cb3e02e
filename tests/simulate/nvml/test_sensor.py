"""What the simulated sensors show, held to their specification."""

import ctypes

import numpy as np
import pynvml as nvml
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.simulate import sensor
from joulewise.simulate.boards import BOARDS
from joulewise.simulate.nvml.shared_memory import CONSTANTS
from joulewise.units import NS_PER_S
from tests.helpers.nvml_on_manual_clock import code_of, handle, simulated, timeline


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
                shape |= {"sm_mhz": draw.uniform(135, 1530, 400)}
                shape |= {"memory_mhz": draw.choice([405.0, 810.0, 7001.0], 400)}
                drawn = timeline(
                    list(zip([-100.0, *seconds[1:]], draw.uniform(20, 300, 400), strict=True)),
                    **shape,
                )
                machine.shared.publish(0, drawn)
                machine.at(at_s)
                _compare(unit, drawn, machine, gpu)

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
        readings = []
        for millisecond in range(100, 200):
            machine.at(millisecond / 1000)
            readings.append(nvml.nvmlDeviceGetPowerUsage(gpu))
        period_ms = machine.units[0].board.sensor.period_s * 1000
        assert len(set(readings)) == pytest.approx(100 / period_ms, abs=1)

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
        fields = [83, 185, 186, 187, 188, 189, 190, 192, 9999]
        volta, ampere = ([*nvml.nvmlDeviceGetFieldValues(handle(n), fields)] for n in (0, 1))
        assert [f.nvmlReturn for f in volta] == [0, 3, 0, 0, 0, 0, 0, 0, 3]
        assert [f.nvmlReturn for f in ampere] == [0] * 8 + [3]
        assert [f.value.uiVal for f in volta[3:8]] == [150_000, 300_000, 300_000, 300_000, 300_000]
        assert volta[0].valueType == nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG

    def test_clocks_and_state_are_those_of_the_moment(self, machine, gpu):
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


def _compare(unit, drawn, machine, gpu):
    now_ns = machine.now_ns
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
    offset_ns = int(machine.shared._header["wall_offset_ns"][0])
    for kind in sensor.SampleKind:
        value_type, samples = nvml.nvmlDeviceGetSamples(gpu, kind, 0)
        times_ns, expected = sensor.samples(unit, drawn, now_ns, kind)
        assert value_type == nvml.NVML_VALUE_TYPE_UNSIGNED_INT
        assert [s.timeStamp for s in samples] == ((times_ns + offset_ns) // 1000).tolist()
        shown = np.array([s.sampleValue.uiVal for s in samples])
        if kind is sensor.SampleKind.POWER:
            assert shown.tolist() == np.rint(expected * 1000).astype(int).tolist()
        else:
            utilisation = "UTILISATION" in kind.name  # see above
            assert np.abs(shown - expected).max() <= int(utilisation)


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

    @pytest.mark.parametrize("kind", range(7))
    def test_of_every_type_nothing_new_is_not_found(self, machine, gpu, kind):
        _, samples = nvml.nvmlDeviceGetSamples(gpu, kind, 0)
        newest = samples[-1].timeStamp
        assert code_of(nvml.nvmlDeviceGetSamples, gpu, kind, newest) == nvml.NVML_ERROR_NOT_FOUND
        machine.at(1.0)
        _, later = nvml.nvmlDeviceGetSamples(gpu, kind, newest)
        sensed = machine.units[0].board.sensor
        period_s = sensed.utilisation_period_s if 1 <= kind <= 4 else sensed.period_s
        assert len(later) == pytest.approx(1.0 / period_s, abs=1)

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
