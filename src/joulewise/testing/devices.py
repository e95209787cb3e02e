"""A conformance suite: what the device protocol promises, as tests for any device."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pytest

from joulewise.data import (
    ControlInfo,
    ControlKind,
    DeviceInfo,
    DriverSample,
    Kind,
    Process,
    Quantity,
    Reading,
    SensorInfo,
    Source,
    Unavailable,
)
from joulewise.devices.device import Device
from joulewise.errors import DeviceError, JoulewiseError, OutOfRangeError
from joulewise.units import NS_PER_S

_KEY: Final = re.compile(rf"(?:{'|'.join(kind.value for kind in Kind)})\d+")
_TINY: Final = 1e-9  # a device that is on draws some power: 0 W stands for no reading
_PERCENT: Final = (0.0, 100.0)
_MHZ: Final = (0.0, 100_000.0)
_WATTS: Final = (_TINY, 100_000.0)
_MB_S: Final = (0.0, 1e6)
PLAUSIBLE: Final[dict[Quantity, tuple[float, float]]] = {
    Quantity.POWER: _WATTS,
    Quantity.POWER_AVERAGE: _WATTS,
    Quantity.POWER_INSTANT: _WATTS,
    Quantity.GPU_POWER: _WATTS,
    Quantity.MEMORY_POWER: _WATTS,
    Quantity.ENERGY: (0.0, 1e12),
    Quantity.ENFORCED_LIMIT: _WATTS,
    Quantity.GPU_UTILISATION: _PERCENT,
    Quantity.MEMORY_UTILISATION: _PERCENT,
    Quantity.ENCODER_UTILISATION: _PERCENT,
    Quantity.DECODER_UTILISATION: _PERCENT,
    Quantity.SM_CLOCK: _MHZ,
    Quantity.MEMORY_CLOCK: _MHZ,
    Quantity.PERFORMANCE_STATE: (0.0, 32.0),
    Quantity.TEMPERATURE: (-50.0, 150.0),
    Quantity.FAN: (0.0, 200.0),  # some boards count from a nominal speed that they can exceed
    Quantity.MEMORY_USED: (0.0, 1e15),
    Quantity.PCIE_TX: _MB_S,
    Quantity.PCIE_RX: _MB_S,
    Quantity.THROTTLE: (0.0, 2.0**64),
    Quantity.LOAD: _PERCENT,
}
_POWERS: Final = (Quantity.POWER, Quantity.POWER_INSTANT, Quantity.POWER_AVERAGE)


class DeviceConformance:
    """Subclass it, give it a fixture named ``device``, and let pytest collect the rest.

    The device must be healthy and of the test's own, since its controls are set (and put back).
    Where its time is not the machine's, override :meth:`elapse` and :meth:`now_ns`.
    """

    control_tolerance = 0.01
    """How far, relatively, ``get`` may be from what was set: registers have steps."""

    @pytest.fixture
    def device(self) -> Iterator[Device]:
        raise NotImplementedError("give the subclass a fixture named 'device'")

    def elapse(self, seconds: float) -> None:
        """Let time pass on the device."""
        time.sleep(seconds)

    def now_ns(self) -> int:
        """The clock of the device's readings."""
        return time.monotonic_ns()

    def writable_control_values(self, device: Device) -> dict[ControlKind, list[float]]:
        """The values that each control is set to, for the controls that this process may set."""
        return {
            control: [info.minimum, info.maximum] if info.choices is None else [*info.choices[:3]]
            for control, info in _settable(device).items()
        }

    # Which device it is

    def test_offers_the_whole_protocol(self, device: Device) -> None:
        assert isinstance(device, Device)

    def test_says_which_device_it_is(self, device: Device) -> None:
        info = device.info
        assert isinstance(info, DeviceInfo)
        assert isinstance(info.kind, Kind)
        assert re.fullmatch(rf"{info.kind.value}\d+", info.key), info.key
        for word in (info.uid, info.name, info.vendor):
            assert word.strip(), f"an empty name in {info}"
        for line in (info.uid, info.name, info.vendor, info.driver, info.note):
            assert "\n" not in line
        if info.better is not None:
            _check_reason(info.better)

    def test_contains_other_devices_only(self, device: Device) -> None:
        assert device.info.key not in device.info.contains
        for key in device.info.contains:
            assert _KEY.fullmatch(key), key

    def test_what_it_has_does_not_change(self, device: Device) -> None:
        first = (device.info, dict(device.sensors), dict(device.controls))
        for quantity in Quantity:
            device.read(quantity)
        assert (device.info, dict(device.sensors), dict(device.controls)) == first

    # Sensors

    def test_every_sensor_is_described_or_has_a_reason(self, device: Device) -> None:
        assert {Quantity.POWER, Quantity.ENERGY} & set(device.sensors), "no word on power or energy"
        for quantity, sensor in device.sensors.items():
            assert isinstance(quantity, Quantity)
            if isinstance(sensor, Unavailable):
                _check_reason(sensor)
                continue
            assert isinstance(sensor, SensorInfo), f"{quantity.value}: {sensor!r}"
            assert sensor.quantity is quantity
            assert isinstance(sensor.source, Source)
            for period_s in (sensor.update_period_s, sensor.window_s):
                assert period_s is None or 0 < period_s < math.inf, f"{quantity.value}: {period_s}"

    def test_power_and_energy_have_one_source(self, device: Device) -> None:
        sensors = [device.sensors.get(quantity) for quantity in (*_POWERS, Quantity.ENERGY)]
        sources = {sensor.source for sensor in sensors if isinstance(sensor, SensorInfo)}
        assert len(sources) <= 1, f"a total would depend on which is taken: {sources}"

    def test_what_it_lists_reads_as_a_plausible_number_of_now(self, device: Device) -> None:
        self.elapse(0.05)
        for quantity in _listed_quantities(device):
            before = self.now_ns()
            reading = device.read(quantity)
            after = self.now_ns()
            assert isinstance(reading, Reading), f"{quantity.value} is listed, yet {reading}"
            low, high = PLAUSIBLE[quantity]
            assert low <= reading.value <= high, f"{quantity.value} = {reading.value}"
            assert before <= reading.t_ns <= after, f"{quantity.value}: not the time of the call"

    def test_what_it_does_not_list_is_unavailable_and_never_a_number(self, device: Device) -> None:
        for quantity in set(Quantity) - set(_listed_quantities(device)):
            reading = device.read(quantity)
            assert isinstance(reading, Unavailable), f"{quantity.value} reads {reading}"
            _check_reason(reading)

    def test_energy_counts_up_in_joules(self, device: Device) -> None:
        counter = device.sensors.get(Quantity.ENERGY)
        if not isinstance(counter, SensorInfo):
            pytest.skip("no energy counter")
        readings = [device.read(Quantity.ENERGY)]
        # The last wait is for counters that are coarse: one that has not moved by then is stuck.
        for wait_s in (0.05, 0.05, 0.05, 0.05, max(1.0, 10 * (counter.update_period_s or 0.0))):
            self.elapse(wait_s)
            readings.append(device.read(Quantity.ENERGY))
        counted = [reading for reading in readings if isinstance(reading, Reading)]
        assert len(counted) == len(readings), readings
        values = [reading.value for reading in counted]
        assert values == sorted(values), f"the counter went back: {values}"
        mean_w = (values[-1] - values[0]) / (counted[-1].t_ns - counted[0].t_ns) * NS_PER_S
        assert mean_w <= PLAUSIBLE[Quantity.POWER][1], f"{mean_w} W: is the counter in joules?"
        for power in (device.read(q) for q in _POWERS if q in _listed_quantities(device)):
            # Wide enough for a burst or a coarse counter, and too narrow for a wrong unit.
            assert isinstance(power, Reading)
            powers = f"{mean_w} W counted, {power.value} W read"
            assert power.value / 100 <= mean_w <= 100 * power.value, powers

    def test_samples_are_in_order_and_after_the_given_time(self, device: Device) -> None:
        self.elapse(1.0)
        newest_us: dict[Quantity, int] = {}
        for quantity in Quantity:
            answer = device.samples(quantity)
            if isinstance(answer, Unavailable):
                _check_reason(answer)
                continue
            _check_samples(answer, 0)
            assert answer, f"{quantity.value}: what is not buffered is Unavailable, not empty"
            newest_us[quantity] = answer[-1].t_us
            middle_us = answer[len(answer) // 2].t_us
            later = _check_samples(device.samples(quantity, middle_us), middle_us)
            assert later or middle_us == newest_us[quantity], "newer samples are missing"
        if newest_us:
            self.elapse(1.0)
        for quantity, t_us in newest_us.items():
            later = _check_samples(device.samples(quantity, t_us), t_us)
            assert later, f"{quantity.value}: the buffer does not go on"

    def test_processes_are_known_or_have_a_reason(self, device: Device) -> None:
        processes = device.processes()
        if isinstance(processes, Unavailable):
            _check_reason(processes)
            return
        for process in processes:
            assert isinstance(process, Process)
            assert process.pid > 0
            assert process.memory_b is None or process.memory_b >= 0
            assert process.kind

    # Controls

    def test_every_control_is_described_or_has_a_reason(self, device: Device) -> None:
        for control, info in device.controls.items():
            assert isinstance(control, ControlKind)
            if isinstance(info, Unavailable):
                _check_reason(info)
                continue
            assert isinstance(info, ControlInfo), f"{control.value}: {info!r}"
            assert info.control is control
            assert 0 <= info.minimum <= info.maximum < math.inf, info
            assert info.default is None or info.minimum <= info.default <= info.maximum, info
            if info.choices is not None:
                assert info.choices, f"{control.value} takes no value"
                assert list(info.choices) == sorted(set(info.choices)), "choices do not ascend"
                assert info.minimum <= info.choices[0], info
                assert info.choices[-1] <= info.maximum, info
                assert info.default is None or info.default in info.choices, info
            assert info.writable is not False, f"{control.value}: not writable, and no reason why"
            if isinstance(info.writable, Unavailable):
                _check_reason(info.writable)

    def test_a_control_reports_its_setting_or_why_not(self, device: Device) -> None:
        for control in ControlKind:
            info, value = device.controls.get(control), device.get(control)
            if isinstance(info, ControlInfo) and info.readable:
                assert not isinstance(value, Unavailable), (
                    f"{control.value} is readable, yet {value}"
                )
                assert info.minimum <= value <= info.maximum, f"{control.value} = {value}, {info}"
            else:
                assert isinstance(value, Unavailable), f"{control.value} = {value}"
                _check_reason(value)

    def test_a_control_takes_the_value_that_is_set(self, device: Device) -> None:
        for control, values in self._values_to_set(device).items():
            before = device.get(control)
            try:
                for value in values:
                    device.set(control, value)
                    self._check_setting(device, control, value)
            finally:
                _put_back(device, control, before)
            if not isinstance(before, Unavailable):
                self._check_setting(device, control, before)

    def test_reset_goes_back_to_the_default(self, device: Device) -> None:
        settable = _settable(device)
        for control, values in self._values_to_set(device).items():
            before = device.get(control)
            try:
                device.set(control, values[0])
                device.reset(control)
                default = settable[control].default
                if default is not None:
                    self._check_setting(device, control, default)
            finally:
                _put_back(device, control, before)

    def test_a_value_that_it_does_not_take_is_refused_with_the_range(self, device: Device) -> None:
        self._values_to_set(device)
        for control, info in _settable(device).items():
            before = device.get(control)
            try:
                for value in _impossible_values(info):
                    with pytest.raises(OutOfRangeError) as refusal:
                        device.set(control, value)
                    _check_error(refusal.value)
                    text = f"{refusal.value.message} {refusal.value.hint}"
                    for bound in (info.minimum, info.maximum):
                        assert f"{bound:g}" in text, f"{text!r} does not name {bound:g}"
                assert device.get(control) == before, "a refused value was set all the same"
            finally:
                _put_back(device, control, before)

    def test_a_control_that_may_not_be_set_raises(self, device: Device) -> None:
        settable = _settable(device)
        for control in set(ControlKind) - set(settable):
            info, before = device.controls.get(control), device.get(control)
            value = info.minimum if isinstance(info, ControlInfo) else 100.0
            _check_refused(
                device.set, control, value if isinstance(before, Unavailable) else before
            )
            _check_refused(device.reset, control)

    # The end

    def test_a_closed_device_is_unavailable(self, device: Device) -> None:
        device.close()
        device.close()
        assert device.info.key
        answers = [
            *(device.read(quantity) for quantity in Quantity),
            *(device.samples(quantity) for quantity in Quantity),
            *(device.get(control) for control in ControlKind),
            device.processes(),
        ]
        for answer in answers:
            assert isinstance(answer, Unavailable), f"closed, yet {answer}"
            _check_reason(answer)
        for control, info in device.controls.items():
            value = 100.0 if isinstance(info, Unavailable) else info.minimum
            _check_refused(device.set, control, value)
            _check_refused(device.put_back, control, value)
            _check_refused(device.reset, control)

    def _values_to_set(self, device: Device) -> dict[ControlKind, list[float]]:
        values = self.writable_control_values(device)
        if not values:
            pytest.skip("no control that this process may set")
        return values

    def _check_setting(self, device: Device, control: ControlKind, expected: float) -> None:
        info = device.controls[control]
        if isinstance(info, ControlInfo) and info.readable:
            assert device.get(control) == pytest.approx(expected, rel=self.control_tolerance)


def _listed_quantities(device: Device) -> list[Quantity]:
    return [q for q, sensor in device.sensors.items() if isinstance(sensor, SensorInfo)]


def _settable(device: Device) -> dict[ControlKind, ControlInfo]:
    return {
        control: info
        for control, info in device.controls.items()
        if isinstance(info, ControlInfo) and info.writable is True
    }


def _put_back(device: Device, control: ControlKind, value: float | Unavailable) -> None:
    if isinstance(value, Unavailable):
        device.reset(control)
    else:
        device.put_back(control, value)


def _impossible_values(info: ControlInfo) -> Iterator[float]:
    yield from (info.maximum * 2 + 1, -1.0, math.nan, math.inf)
    if info.minimum > 0:
        yield info.minimum / 2
    if info.choices is not None and len(info.choices) > 1:
        yield (info.choices[0] + info.choices[1]) / 2


def _check_samples(
    answer: Sequence[DriverSample] | Unavailable, since_us: int
) -> Sequence[DriverSample]:
    assert not isinstance(answer, Unavailable), f"samples were there, and now: {answer}"
    times = [sample.t_us for sample in answer]
    assert times == sorted(times), "samples are not oldest first"
    assert all(t_us > since_us for t_us in times), f"samples from before {since_us}"
    assert all(math.isfinite(sample.value) for sample in answer)
    return answer


def _check_reason(unavailable: Unavailable) -> None:
    assert unavailable.reason.strip(), "unavailable, and no reason why"
    assert "\n" not in unavailable.reason + unavailable.fix


def _check_refused(call: Callable[..., None], *arguments: ControlKind | float) -> None:
    with pytest.raises(DeviceError) as refusal:
        call(*arguments)
    _check_error(refusal.value)


def _check_error(error: JoulewiseError) -> None:
    for line in (error.message, error.hint):
        assert line.strip(), f"{error!r} lacks a message or a hint"
        assert "\n" not in line
