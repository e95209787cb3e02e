"""A job's target, and its cost."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.data.jobs import JobTarget, gpu_type_name, training_cost


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("val_acc>=0.65", JobTarget("val_acc", 0.65, is_at_least=True)),
        ("val/loss <= 1e-3", JobTarget("val/loss", 0.001, is_at_least=False)),
        ("f1>=84", JobTarget("f1", 84.0, is_at_least=True)),
    ],
)
def test_a_target_is_a_metric_a_relation_and_a_number(text, target):
    assert JobTarget.parse(text) == target


@pytest.mark.parametrize(
    "text",
    ["", "val_acc", "val_acc>0.6", "val_acc=0.6", ">=0.6", "a>=b", "a>=nan", "a>=inf", "a>=1>=2"],
)
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match="is not a metric"):
        JobTarget.parse(text)


@given(st.floats(allow_nan=False, allow_infinity=False), st.booleans())
def test_its_text_is_read_as_the_same(wanted, is_at_least):
    target = JobTarget("val_acc", wanted, is_at_least)
    assert JobTarget.parse(target.text) == target


def test_it_is_reached_at_the_value_itself_and_never_by_what_is_not_a_number():
    accuracy, loss = JobTarget.parse("a>=0.5"), JobTarget.parse("a<=0.5")
    values = [0.4, 0.5, 0.6, math.nan]
    assert [accuracy.is_reached(value) for value in values] == [False, True, True, False]
    assert [loss.is_reached(value) for value in values] == [True, True, False, False]


def test_the_cost_weighs_energy_with_time_at_maximum_power():
    assert training_cost(1.0, 500.0, 10.0, 250.0) == 500.0
    assert training_cost(0.0, 500.0, 10.0, 250.0) == 2500.0
    assert training_cost(0.5, 500.0, 10.0, 250.0) == 1500.0


def test_boards_of_another_number_or_kind_are_another_type():
    names = {
        gpu_type_name("V100", count, is_simulated=simulated)
        for count in (1, 2)
        for simulated in (False, True)
    }
    assert names == {"V100", "2 x V100", "V100 (simulated)", "2 x V100 (simulated)"}
