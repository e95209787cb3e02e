"""A wall clock that is set and a machine that sleeps are two things."""

from dataclasses import dataclass

import pytest

from joulewise.data import WarningCode
from joulewise.record.clocks import ClockComparison, boot_ns

S = 10**9


@dataclass
class Machine:
    now: int = 100 * S
    wall: int = 5_000 * S
    boot: int = 300 * S

    def goes_on(self, seconds, *, asleep_s=0.0, set_by_s=0.0):
        self.now += round(seconds * S)
        self.boot += round((seconds + asleep_s) * S)
        self.wall += round((seconds + asleep_s + set_by_s) * S)


@pytest.fixture
def machine():
    return Machine()


@pytest.fixture
def clocks(machine):
    return ClockComparison(lambda: machine.now, lambda: machine.wall, lambda: machine.boot)


def events(clocks):
    return list(clocks.events())


def test_nothing_happens(machine, clocks):
    machine.goes_on(1000)
    assert events(clocks) == []


def test_a_machine_that_slept_has_no_clock_that_was_set(machine, clocks):
    machine.goes_on(1, asleep_s=3600)
    assert events(clocks) == [(WarningCode.SUSPENDED, "the machine was suspended for 3600.0 s")]
    machine.goes_on(1)
    assert events(clocks) == []


def test_a_clock_that_was_set_is_no_sleep(machine, clocks):
    machine.goes_on(1, set_by_s=-3600)
    assert events(clocks) == [(WarningCode.CLOCK_SET, "the wall clock was set by -3600.000 s")]
    assert events(clocks) == []


def test_a_suspension_and_a_set_clock_at_once_are_distinguished(machine, clocks):
    machine.goes_on(1, asleep_s=60, set_by_s=2)
    assert [code for code, _ in events(clocks)] == [WarningCode.SUSPENDED, WarningCode.CLOCK_SET]
    assert events(clocks) == []


@pytest.mark.parametrize("reading", range(1, 5))
@pytest.mark.parametrize("what", ["stopped", "suspended"])
def test_a_stop_between_two_readings_is_no_clock_that_was_set(reading, what):
    """Of this process or of the machine, after each of the readings of one try."""
    machine, count = Machine(), 0

    def read(name):
        nonlocal count
        count += 1
        value = getattr(machine, name)
        if count == 3 * 4 + reading:  # after those that the clocks begin with
            if what == "stopped":
                machine.goes_on(60)
            else:
                machine.goes_on(0, asleep_s=60)
        return value

    clocks = ClockComparison(lambda: read("now"), lambda: read("wall"), lambda: read("boot"))
    reported = [*clocks.events(), *clocks.events()]
    assert [code for code, _ in reported] == ([] if what == "stopped" else [WarningCode.SUSPENDED])


def test_a_clock_set_in_small_steps_is_reported_when_they_add_up(machine, clocks):
    for _ in range(3):
        machine.goes_on(1, set_by_s=0.0009)
    assert [code for code, _ in events(clocks)] == [WarningCode.CLOCK_SET]


def test_this_machine_was_awake_while_it_ran_this():
    assert boot_ns() > 0
    assert WarningCode.SUSPENDED not in [code for code, _ in ClockComparison().events()]
