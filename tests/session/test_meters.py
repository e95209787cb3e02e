"""Joules so far, from what is read anyway."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.data import Card, Quantity, Reading, SensorInfo, Source, Unavailable
from joulewise.session.meters import Meter

S = 1_000_000_000


class Device:
    """Tells what it is given, a second apart."""

    def __init__(self, quantity, values):
        self.sensors = {quantity: SensorInfo(quantity, Source.MEASURED)}
        self._told = iter(enumerate(values))

    def read(self, _quantity):
        second, value = next(self._told)
        return Reading(value, second * S) if value is not None else Unavailable("a fault")


def metered(quantity, values):
    meter = Meter(Device(quantity, values))
    for _ in values:
        meter.read(quantity)
    return meter


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=20), st.floats(0, 1e9))
def test_a_counter_is_as_much_as_it_has_grown(steps, before):
    values = [before]
    for step in steps:
        values.append(values[-1] + step)
    energy = metered(Quantity.ENERGY, values).energy(Card())
    assert energy.value == pytest.approx(values[-1] - before, abs=1e-5)
    assert energy.source is Source.MEASURED


def test_a_counter_that_begins_again_costs_one_step():
    assert metered(Quantity.ENERGY, [100, 110, 3, 8]).energy(Card()).value == 15


@given(st.lists(st.floats(0, 500), min_size=2, max_size=20))
def test_power_is_held_until_the_next_reading(watts):
    energy = metered(Quantity.POWER, watts).energy(Card())
    assert energy.value == pytest.approx(math.fsum(watts[:-1]), abs=1e-6)


def test_a_fault_is_bridged():
    assert metered(Quantity.ENERGY, [0, None, None, 30]).energy(Card()).value == 30


def test_it_counts_from_where_the_command_began():
    device = Device(Quantity.ENERGY, [0, 50, 80])
    meter = Meter(device)
    meter.read(Quantity.ENERGY)
    meter.read(Quantity.ENERGY)
    meter.begin(1 * S)
    meter.read(Quantity.ENERGY)
    energy = meter.energy(Card(gain_sigma=0.1))
    assert energy.value == 30
    assert energy.error_gain == pytest.approx(1.96 * 0.1 * 30)
    assert energy.error_sampling == pytest.approx(30)  # one second between readings, of one


@pytest.mark.parametrize("values", [[], [5], [None, None]])
def test_what_could_not_be_read_is_none(values):
    assert metered(Quantity.ENERGY, values).energy(Card()) is None


def test_everything_else_is_the_devices():
    assert Meter(Device(Quantity.LOAD, [])).sensors
    assert metered(Quantity.LOAD, [1, 2]).energy(Card()) is None


def test_a_device_that_slept_is_added_up_once_it_is_open():
    class Asleep:
        sensors = {}  # noqa: RUF012

        def reopened(self):
            return next(opened)

    opened = iter([None, Device(Quantity.ENERGY, [50, 70, 75])])
    meter = Meter(Asleep())
    meter.begin(0)
    assert meter.reopened() is None
    assert meter.energy(Card()) is None
    assert meter.reopened() is meter
    for _ in range(3):
        meter.read(Quantity.ENERGY)
    assert meter.energy(Card()).value == 25
    assert not hasattr(meter, "reopened")
