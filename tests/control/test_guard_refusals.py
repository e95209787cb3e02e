"""What is refused is told, and cannot push out what was done."""

import pytest

from joulewise.control import refusals as module
from joulewise.control.refusals import Refusals


@pytest.fixture
def said():
    return []


@pytest.fixture
def clock_s():
    return [0.0]


@pytest.fixture
def refusals(said, clock_s):
    return Refusals(said.append, lambda: clock_s[0])


def test_of_one_caller_a_few_lines_a_minute_are_told_and_the_rest_is_counted(
    refusals, said, clock_s
):
    for number in range(30_020):
        refusals.tell("uid 7", f"no {number}")
    assert said == [f"no {number}" for number in range(20)]
    clock_s[0] = 60.0
    refusals.sum_up()
    assert said[20:] == ["and 30,000 more of uid 7"]
    refusals.tell("uid 7", "again")
    assert said[-1] == "again"


def test_one_who_is_refused_a_lot_does_not_hide_another(refusals, said):
    for _ in range(100):
        refusals.tell("uid 7", "no")
    refusals.tell("uid 8", "no to 8")
    assert said[-1] == "no to 8"


def test_nothing_is_added_where_nothing_was_left_out(refusals, said):
    refusals.tell("uid 7", "no")
    refusals.sum_up(everything=True)
    assert said == ["no"]


def test_callers_beyond_all_measure_are_counted_together(refusals, said):
    for uid in range(5000):
        refusals.tell(f"uid {uid}", "no")
    assert len(refusals._windows) == module._MOST_CALLERS + 1
    refusals.sum_up(everything=True)
    assert said[-1] == f"and {5000 - module._MOST_CALLERS - module._MOST_LINES:,} more of others"
