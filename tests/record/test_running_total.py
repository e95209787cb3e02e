"""Joules so far, from the rows on their way to the disk."""

import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.data import Quantity
from joulewise.record.statistics import RunningTotal
from joulewise.store.arrow_stream import Batch

S = 1_000_000_000


def batch(quantity, values, first_s=0):
    """Told a second apart; None could not be read."""
    times = array("q", [(first_s + second) * S for second in range(len(values))])
    values_j = array("d", [math.nan if value is None else value for value in values])
    return Batch(("t_ns", quantity.value), (times, values_j))


def summed(quantity, values):
    running_total = RunningTotal()
    running_total.add(batch(quantity, values))
    return running_total


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=20), st.floats(0, 1e9), st.data())
def test_a_counter_is_as_much_as_it_has_grown(steps, before, data):
    values = [before]
    for step in steps:
        values.append(values[-1] + step)
    running_total = RunningTotal()
    cut = data.draw(st.integers(0, len(values)))  # however it comes in batches
    running_total.add(batch(Quantity.ENERGY, values[:cut]))
    running_total.add(batch(Quantity.ENERGY, values[cut:], cut))
    assert running_total.sum.energy_j == pytest.approx(values[-1] - before, abs=1e-5)
    assert running_total.sum.quantity is Quantity.ENERGY


def test_a_counter_that_begins_again_costs_one_step():
    assert summed(Quantity.ENERGY, [100, 110, 3, 8]).sum.energy_j == 15


@given(st.lists(st.floats(0, 500), min_size=2, max_size=20))
def test_power_is_held_until_the_next_reading(watts):
    assert summed(Quantity.POWER, watts).sum.energy_j == pytest.approx(
        math.fsum(watts[:-1]), abs=1e-6
    )


def test_the_counter_goes_before_power():
    values_j = batch(Quantity.ENERGY, [0, 50])
    both = Batch((*values_j.columns, "power_w"), (*values_j.values, array("d", [7, 7])))
    running_total = RunningTotal()
    running_total.add(both)
    assert running_total.sum.energy_j == 50


def test_a_fault_is_bridged():
    assert summed(Quantity.ENERGY, [0, None, None, 30]).sum.energy_j == 30


def test_it_counts_from_where_the_command_began_also_in_rows_that_were_still_on_their_way():
    running_total = summed(Quantity.ENERGY, [0, 50])
    running_total.begin(3 * S)
    assert running_total.sum is None
    running_total.add(batch(Quantity.ENERGY, [60, 70, 80], first_s=2))
    assert running_total.sum.energy_j == 20
    assert running_total.sum.time_s == 1
    assert running_total.sum.interval_s == 1


@pytest.mark.parametrize("values", [[], [5], [None, None]])
def test_what_could_not_be_read_twice_is_none(values):
    assert summed(Quantity.ENERGY, values).sum is None


def test_energy_goes_on_at_the_newest_power_for_about_a_second():
    running_total = RunningTotal()
    running_total.add(batch(Quantity.POWER, [10, 20]))
    running_total.begin(1 * S)  # one reading is enough: the next may be a second away
    assert running_total.sum is None
    assert running_total.energy_at(1 * S) == 0
    assert running_total.energy_at(S + S // 2) == 10
    running_total.add(batch(Quantity.POWER, [30], 2))
    assert running_total.energy_at(2 * S) == running_total.sum.energy_j == 20
    assert running_total.energy_at(2 * S + S // 2) == 35
    assert running_total.energy_at(100 * S) == pytest.approx(
        20 + 30 * 1.1
    )  # it is not read any more


def test_the_newest_power_is_the_sensors_or_the_last_step_of_the_counter():
    counter = summed(Quantity.ENERGY, [0, 50, 120])
    assert counter.power_w == 70
    values_j = batch(Quantity.ENERGY, [0, 50])
    counter.add(
        Batch((*values_j.columns, "power_w"), (*values_j.values, array("d", [7, math.nan])))
    )
    assert counter.power_w == 7
    assert (RunningTotal().power_w, RunningTotal().energy_at(S)) == (None, None)
