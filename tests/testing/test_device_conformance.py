"""The suite lets a good device pass, and catches each way to break a promise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from joulewise.data import (
    ControlInfo,
    ControlKind,
    DriverSample,
    Kind,
    Process,
    Quantity,
    Reading,
    SensorInfo,
    Source,
    Unavailable,
)
from joulewise.errors import JoulewiseError, NotSupportedError, OutOfRangeError
from joulewise.testing import DeviceConformance, ToyClock, ToyDevice

pytest_plugins = ["pytester"]


class OnToyTime(DeviceConformance):
    clock = ToyClock()

    def elapse(self, seconds):
        self.clock.elapse(seconds)

    def now_ns(self):
        return self.clock.now_ns


class TestToy(OnToyTime):
    @pytest.fixture
    def device(self):
        return ToyDevice(self.clock)


class TestToyThatMayNotBeSet(TestToy):
    @pytest.fixture
    def device(self):
        device = ToyDevice(self.clock)
        forbid(device)
        return device


def forbid(device: ToyDevice) -> None:
    denied = Unavailable("only root may", "sudo joulewise")
    device.controls = {k: replace(i, writable=denied) for k, i in settable(device).items()}
    device.set = device.reset = refusing(NotSupportedError("only root may", "become root"))


def settable(device: ToyDevice) -> dict[ControlKind, ControlInfo]:
    return {
        control: info for control, info in device.controls.items() if isinstance(info, ControlInfo)
    }


def refusing(error: BaseException) -> Callable[..., Any]:
    def refuse(*_args):
        raise error

    return refuse


class BoomError(Exception):
    pass


def boom(*_args):
    raise BoomError


def info(**changes):
    def breakage(device):
        device.info = replace(device.info, **changes)

    return breakage


def sensor(quantity, value):
    def breakage(device):
        device.sensors = {**device.sensors, quantity: value}

    return breakage


def power(**changes):
    return sensor(
        Quantity.POWER, replace(SensorInfo(Quantity.POWER, Source.MEASURED, 0.02, 0.01), **changes)
    )


def control(which=ControlKind.POWER_LIMIT, **changes):
    def breakage(device):
        device.controls = {**device.controls, which: replace(device.controls[which], **changes)}

    return breakage


def instead(method, make):
    """Replace a method by one that gets the original and the arguments."""

    def breakage(device):
        original = getattr(device, method)
        setattr(device, method, lambda *args: make(original, *args))

    return breakage


def reads(quantity, change):
    def answer(original, requested):
        reading = original(requested)
        return change(reading) if requested is quantity else reading

    return instead("read", answer)


def buffers(*samples):
    return instead(
        "samples", lambda _, __, since=0: [sample for sample in samples if sample.t_us > since]
    )


def refuses_with(error):
    """Impossible values are refused, but with this."""

    def answer(original, which, value):
        try:
            original(which, value)
        except OutOfRangeError:
            raise error from None

    return instead("set", answer)


def clamps(original, which, value):
    limits = {ControlKind.POWER_LIMIT: (50, 100), ControlKind.SM_CLOCK: (500, 1500)}
    low, high = limits[which]
    original(which, min(max(value, low), high) if value == value else low)  # noqa: PLR0124


def sets_then_refuses(original, which, value):
    try:
        original(which, value)
    except OutOfRangeError:
        original(which, 66 if which is ControlKind.POWER_LIMIT else 500)
        raise


def ignores_choices(original, which, value):
    if which is ControlKind.SM_CLOCK and 500 < value < 1500:
        return
    original(which, value)


def falling(start):
    values = iter(range(start, 0, -1))
    return lambda reading: reading._replace(value=next(values))


def without(attribute):
    def breakage(device):
        hidden = type("Partial", (), {})
        whole = {name: getattr(device, name) for name in dir(device) if not name.startswith("__")}
        del whole[attribute]
        device.partial = hidden()
        device.partial.__dict__.update(whole)

    return breakage


def half_closed(method):
    """Everything but this method knows that the device is closed."""

    def breakage(device):
        open_one = ToyDevice(ToyClock())
        setattr(device, method, getattr(open_one, method))

    return breakage


def closes_once(device):
    closed = []

    def close():
        if closed:
            raise BoomError("already closed")
        closed.append(True)
        ToyDevice.close(device)

    device.close = close


def changes_when_read(device):
    def read(quantity):
        device.info = replace(device.info, note=device.info.note + "!")
        return ToyDevice.read(device, quantity)

    device.read = read


def renamed(attribute, word):
    """What is Unavailable under a plain string, which equals the word but is not it."""

    def breakage(device):
        rest = {key: value for key, value in getattr(device, attribute).items() if key is not word}
        setattr(device, attribute, {**rest, word.value: Unavailable("no")})

    return breakage


def as_control(value):
    def breakage(device):
        device.controls = {**device.controls, ControlKind.MEMORY_CLOCK: value}

    return breakage


def reports(which, value):
    return instead(
        "get", lambda original, control: value if control is which else original(control)
    )


def only_energy_in_uj(device):
    device.sensors = {Quantity.ENERGY: device.sensors[Quantity.ENERGY]}
    reads(Quantity.ENERGY, lambda reading: reading._replace(value=reading.value * 1e6))(device)


def rarely_counts(device):
    """It is said to be new every 0.2 s, and so has 2 s to move."""
    counter = replace(device.sensors[Quantity.ENERGY], update_period_s=0.2)
    device.sensors = {**device.sensors, Quantity.ENERGY: counter}
    reads(Quantity.ENERGY, lambda reading: reading._replace(value=reading.value // 100))(device)


def after_close(then):
    def breakage(device):
        device.close = lambda: (ToyDevice.close(device), then(device))

    return breakage


def nameless(device):
    device.info = replace(device.info, key="")


def mute(device):
    device.read = lambda *_: Unavailable("")


def forbidden_without_error(device):
    forbid(device)
    device.set = device.reset = lambda *_: None


def forbidden_reset_passes(device):
    forbid(device)
    device.reset = lambda *_: None


LISTED = "what_it_lists_reads_as_a_plausible_number_of_now"
UNLISTED = "what_it_does_not_list_is_unavailable_and_never_a_number"
NAMED = "says_which_device_it_is"
CONTAINS = "contains_other_devices_only"
SENSORS = "every_sensor_is_described_or_has_a_reason"
CONTROLS = "every_control_is_described_or_has_a_reason"
ENERGY = "energy_counts_up_in_joules"
SAMPLES = "samples_are_in_order_and_after_the_given_time"
PROCESSES = "processes_are_known_or_have_a_reason"
SETTING = "a_control_reports_its_setting_or_why_not"
SET_VALUE = "a_control_takes_the_value_that_is_set"
RESET = "reset_goes_back_to_the_default"
REFUSES = "a_value_that_it_does_not_take_is_refused_with_the_range"
FORBIDDEN = "a_control_that_may_not_be_set_raises"
CLOSED = "a_closed_device_is_unavailable"

BROKEN = {
    "no samples method": ("offers_the_whole_protocol", without("samples")),
    "key of another kind": (NAMED, info(kind=Kind.CPU)),
    "key without a number": (NAMED, info(key="gpu")),
    "no uid": (NAMED, info(uid="")),
    "no name": (NAMED, info(name=" ")),
    "no vendor": (NAMED, info(vendor="")),
    "note of two lines": (NAMED, info(note="one\ntwo")),
    "better without reason": (NAMED, info(better=Unavailable(""))),
    "info is a dict": (NAMED, lambda device: setattr(device, "info", vars(device.info))),
    "kind is a str": (NAMED, info(kind="gpu")),
    "contains itself": (CONTAINS, info(contains=("gpu0",))),
    "contains what is no key": (CONTAINS, info(contains=("package-0",))),
    "info changes": ("what_it_has_does_not_change", changes_when_read),
    "no word on power": (SENSORS, lambda device: setattr(device, "sensors", {})),
    "sensor without reason": (SENSORS, sensor(Quantity.FAN, Unavailable(""))),
    "reason of two lines": (SENSORS, sensor(Quantity.FAN, Unavailable("one\ntwo"))),
    "sensor is None": (SENSORS, sensor(Quantity.FAN, None)),
    "sensor under another name": (SENSORS, power(quantity=Quantity.ENERGY)),
    "source is no source": (SENSORS, power(source="guessed")),
    "period of 0": (SENSORS, power(update_period_s=0)),
    "infinite window": (SENSORS, power(window_s=math.inf)),
    "sensor is named by a str": (SENSORS, renamed("sensors", Quantity.FAN)),
    "two sources": ("power_and_energy_have_one_source", power(source=Source.MODELLED)),
    "listed, yet unavailable": (LISTED, reads(Quantity.POWER, lambda _: Unavailable("no"))),
    "reads nan": (LISTED, reads(Quantity.POWER, lambda r: r._replace(value=math.nan))),
    "reads 0 W": (LISTED, reads(Quantity.POWER, lambda r: r._replace(value=0))),
    "utilisation of 300 %": (
        LISTED,
        reads(Quantity.GPU_UTILISATION, lambda r: r._replace(value=300)),
    ),
    "time of another clock": (LISTED, reads(Quantity.POWER, lambda r: r._replace(t_ns=0))),
    "listed, yet raises": (LISTED, instead("read", boom)),
    "unavailable reads as 0": (UNLISTED, reads(Quantity.FAN, lambda _: Reading(0, 10**9))),
    "unlisted reads as None": (UNLISTED, reads(Quantity.LOAD, lambda _: None)),
    "unlisted without reason": (UNLISTED, reads(Quantity.LOAD, lambda _: Unavailable(""))),
    "unlisted raises": (UNLISTED, reads(Quantity.LOAD, boom)),
    "counter goes back": (ENERGY, reads(Quantity.ENERGY, falling(100))),
    "counter is lost": (ENERGY, reads(Quantity.ENERGY, lambda _: Unavailable("no"))),
    "counter in mJ": (ENERGY, reads(Quantity.ENERGY, lambda r: r._replace(value=r.value * 1e3))),
    "counter in kJ": (ENERGY, reads(Quantity.ENERGY, lambda r: r._replace(value=r.value / 1e3))),
    "counter in uJ": (ENERGY, reads(Quantity.ENERGY, lambda r: r._replace(value=r.value * 1e6))),
    "counter in uJ, no power": (ENERGY, only_energy_in_uj),
    "counter is stuck": (ENERGY, reads(Quantity.ENERGY, lambda r: r._replace(value=7.0))),
    "counter moves too rarely": (ENERGY, rarely_counts),
    "power is lost": (ENERGY, reads(Quantity.POWER, lambda _: Unavailable("no"))),
    "newest first": (SAMPLES, buffers(DriverSample(2, 1.0), DriverSample(1, 1.0))),
    "samples from before": (
        SAMPLES,
        instead("samples", lambda *_: [DriverSample(1, 1.0), DriverSample(2, 1.0)]),
    ),
    "sample is nan": (SAMPLES, buffers(DriverSample(1, math.nan))),
    "newer samples are lost": (
        SAMPLES,
        instead("samples", lambda original, q, since=0: [] if since else original(q)),
    ),
    "buffer stays empty": (SAMPLES, instead("samples", lambda *_: [])),
    "buffer does not go on": (SAMPLES, buffers(DriverSample(1, 1.0), DriverSample(2, 1.0))),
    "samples raise": (SAMPLES, instead("samples", boom)),
    "samples without reason": (SAMPLES, instead("samples", lambda *_: Unavailable(""))),
    "processes raise": (PROCESSES, instead("processes", boom)),
    "processes without reason": (PROCESSES, instead("processes", lambda *_: Unavailable(""))),
    "process is a pid": (PROCESSES, instead("processes", lambda *_: [1])),
    "pid 0": (PROCESSES, instead("processes", lambda *_: [Process(0, None, "compute")])),
    "negative memory": (PROCESSES, instead("processes", lambda *_: [Process(1, -1, "compute")])),
    "process of no kind": (PROCESSES, instead("processes", lambda *_: [Process(1, 1, "")])),
    "control is named by a str": (CONTROLS, renamed("controls", ControlKind.MEMORY_CLOCK)),
    "control is None": (CONTROLS, as_control(None)),
    "control without reason": (CONTROLS, as_control(Unavailable(""))),
    "range upside down": (CONTROLS, control(minimum=100, maximum=50, default=None)),
    "range without end": (CONTROLS, control(maximum=math.inf)),
    "default outside": (CONTROLS, control(default=200)),
    "no choice": (CONTROLS, control(ControlKind.SM_CLOCK, choices=())),
    "choices descend": (CONTROLS, control(ControlKind.SM_CLOCK, choices=(1500, 500))),
    "choice too low": (CONTROLS, control(ControlKind.SM_CLOCK, choices=(100, 1500))),
    "choice too high": (CONTROLS, control(ControlKind.SM_CLOCK, choices=(500, 9999))),
    "default is no choice": (CONTROLS, control(ControlKind.SM_CLOCK, default=501)),
    "not writable, no reason": (CONTROLS, control(writable=False)),
    "not writable, empty reason": (CONTROLS, control(writable=Unavailable(""))),
    "control under another name": (CONTROLS, control(control=ControlKind.MEMORY_CLOCK)),
    "setting outside": (SETTING, reports(ControlKind.POWER_LIMIT, 500)),
    "unreadable without reason": (SETTING, reports(ControlKind.SM_CLOCK, Unavailable(""))),
    "readable, yet unavailable": (SETTING, instead("get", lambda *_: Unavailable("no"))),
    "unreadable, yet reported": (SETTING, reports(ControlKind.SM_CLOCK, 1000)),
    "get raises": (SETTING, instead("get", boom)),
    "does not set": (SET_VALUE, instead("set", lambda *_: None)),
    "set raises": (SET_VALUE, instead("set", boom)),
    "does not reset": (RESET, instead("reset", lambda *_: None)),
    "clamps": (REFUSES, instead("set", clamps)),
    "refuses and sets": (REFUSES, instead("set", sets_then_refuses)),
    "takes what is no choice": (REFUSES, instead("set", ignores_choices)),
    "refuses with a ValueError": (REFUSES, refuses_with(BoomError("50 to 100, 500 to 1500"))),
    "refuses without the range": (REFUSES, refuses_with(OutOfRangeError("no", "do not"))),
    "refuses without a hint": (REFUSES, refuses_with(OutOfRangeError("50 100 500 1500", ""))),
    "refuses in two lines": (REFUSES, refuses_with(OutOfRangeError("50 100\n500 1500", "see"))),
    "forbidden, yet silent": (FORBIDDEN, forbidden_without_error),
    "forbidden reset is silent": (FORBIDDEN, forbidden_reset_passes),
    "unknown control is silent": (FORBIDDEN, instead("set", lambda *_: None)),
    "unknown control without hint": (
        FORBIDDEN,
        instead("set", refusing(NotSupportedError("no such control", ""))),
    ),
    "unknown control, other error": (
        FORBIDDEN,
        instead("set", refusing(JoulewiseError("no", "see"))),
    ),
    "unknown control resets without hint": (
        FORBIDDEN,
        instead("reset", refusing(NotSupportedError("no such control", ""))),
    ),
    "closed set without hint": (CLOSED, instead("set", refusing(NotSupportedError("no", "")))),
    "closed reset without hint": (CLOSED, instead("reset", refusing(NotSupportedError("no", "")))),
    "closed, and without a name": (CLOSED, after_close(nameless)),
    "closed, yet reads": (CLOSED, half_closed("read")),
    "closed, yet buffers": (CLOSED, half_closed("samples")),
    "closed, yet has processes": (CLOSED, half_closed("processes")),
    "closed, yet gets": (CLOSED, half_closed("get")),
    "closed, yet sets": (CLOSED, half_closed("set")),
    "closed, yet resets": (CLOSED, half_closed("reset")),
    "closes once": (CLOSED, closes_once),
    "closed without reason": (CLOSED, after_close(mute)),
}


# An error that is not a device's goes through the checks as it is; anything else, a skip above
# all, would mean that this file is wrong.
CAUGHT = (AssertionError, pytest.fail.Exception, BoomError, JoulewiseError)


@pytest.mark.parametrize("breakage", BROKEN)
def test_a_broken_device_is_caught(breakage):
    check, break_it = BROKEN[breakage]
    suite = OnToyTime()
    device = ToyDevice(suite.clock)
    break_it(device)
    with pytest.raises(CAUGHT):
        getattr(suite, f"test_{check}")(getattr(device, "partial", device))


def test_a_counter_that_moves_once_a_second_is_no_stuck_one():
    suite = OnToyTime()
    device = ToyDevice(suite.clock)
    reads(Quantity.ENERGY, lambda r: r._replace(value=r.value // 40 * 40))(device)
    suite.test_energy_counts_up_in_joules(device)


def test_every_check_has_a_device_that_it_catches():
    checks = {name for name in dir(DeviceConformance) if name.startswith("test_")}
    assert checks == {f"test_{check}" for check, _ in BROKEN.values()}


def test_a_control_is_put_back_after_every_check():
    suite = OnToyTime()
    device = ToyDevice(suite.clock)
    device.set(ControlKind.POWER_LIMIT, 70)
    suite.test_a_control_takes_the_value_that_is_set(device)
    suite.test_reset_goes_back_to_the_default(device)
    suite.test_a_value_that_it_does_not_take_is_refused_with_the_range(device)
    assert device.get(ControlKind.POWER_LIMIT) == 70


def test_a_subclass_without_a_device_gets_an_explanation(pytester):
    pytester.makepyfile(
        """
        from joulewise.testing import DeviceConformance

        class TestNothing(DeviceConformance):
            pass
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:randomly", "-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(["*give the subclass a fixture named 'device'*"])
