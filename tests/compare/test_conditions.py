"""Conditions for CI: what they mean, and that what cannot be told never passes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.compare.conditions import judge, parse_condition
from joulewise.compare.judgement import (
    ComparedQuantity,
    CompareOutcome,
    VerdictBasis,
    not_comparable,
)
from joulewise.errors import UsageError
from joulewise.metrics.result import Interval


def found(ratio, low=None, high=None, *, a=1000.0, quantity="energy", unit="J"):
    return ComparedQuantity(
        quantity,
        unit,
        (3, 3),
        Interval(a, a - 10, a + 10),
        Interval(a * ratio, a * ratio - 10, a * ratio + 10),
        Interval(ratio, low, high),
        CompareOutcome.MORE,
        VerdictBasis.SPREAD,
    )


def is_case(text, compared, *, sure=False):
    return judge(parse_condition(text), compared, sure=sure).is_the_case


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("energy>+5%", True),
        ("energy > + 5 %", True),
        ("energy>+10%", False),
        ("energy>=+0%", True),
        ("energy>0%", True),
        ("energy<-3%", False),
        ("energy<+20%", True),
        ("energy>1.07kJ", True),
        ("energy>1.09kJ", False),
        ("energy<1.1kJ", True),
        ("energy>+70J", True),
        ("energy>+0.09kJ", False),
        ("energy<=+80.1J", True),
        ("energy>0.29Wh", True),
        ("energy>0.31Wh", False),
    ],
)
def test_what_it_means(text, expected):
    assert is_case(text, found(1.08, 1.02, 1.14)) is expected


def test_by_the_mean_and_surely():
    near = found(1.08, 1.02, 1.14)
    assert is_case("energy>+5%", near)
    assert judge(parse_condition("energy>+5%"), near).within_noise
    assert not is_case("energy>+5%", near, sure=True)
    assert is_case("energy>+1%", near, sure=True)
    assert not judge(parse_condition("energy>+1%"), near).within_noise


def test_surely_of_a_value_and_of_a_difference():
    near = found(1.08, 1.02, 1.14)
    assert is_case("energy>1.06kJ", near, sure=True)
    assert not is_case("energy>1.075kJ", near, sure=True)
    assert is_case("energy>+19J", near, sure=True)
    assert not is_case("energy>+21J", near, sure=True)


@given(st.floats(0.5, 2.0), st.floats(0.0, 0.4), st.integers(-90, 300))
def test_sure_is_never_more_than_by_the_mean(ratio, half, percent):
    compared = found(ratio, ratio * (1 - half), ratio * (1 + half))
    text = f"energy>{percent:+d}%"
    assert is_case(text, compared) or not is_case(text, compared, sure=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("energy", "is not a condition"),
        ("energy>", "is not a condition"),
        ("energy>+5%%", "not a unit"),
        ("energy=+5%", "is not a condition"),
        ("energy>five%", "is not a condition"),
        ("energi>+5%", "there is no quantity 'energi'"),
        ("energy>5%", "needs a sign"),
        ("energy>5", "5 has no unit"),
        ("time>5J", "not a unit of time"),
        ("edp>5J", "not a unit of energy-delay product"),
        ("energy/week>+5%", "there is no quantity"),
        ("gpu>+5%", "there is no quantity"),
        ("", "is not a condition"),
    ],
)
def test_what_cannot_be_meant_is_refused(text, said):
    with pytest.raises(UsageError, match=said):
        parse_condition(text)


def test_an_unknown_quantity_names_those_that_there_are():
    with pytest.raises(UsageError) as error:
        parse_condition("energi>+5%")
    assert "did you mean energy?" in error.value.hint
    assert "energy/epoch" in error.value.hint
    assert "gpu0" in error.value.hint


@pytest.mark.parametrize(
    "text", ["gpu0>+5%", "node1/gpu0>1kJ", "time>+30s", "time>2min", "power>1.5kW", "edp>+1kJs"]
)
def test_devices_and_units(text):
    assert parse_condition(text).quantity == text.partition(">")[0]


@pytest.mark.parametrize("compared", [None, not_comparable("energy", "J", ([], []), "it is so")])
@pytest.mark.parametrize("text", ["energy>+5%", "energy>1kJ"])
def test_what_cannot_be_compared_is_no_pass(text, compared):
    with pytest.raises(UsageError, match="cannot be judged"):
        is_case(text, compared)


def test_what_has_no_interval_cannot_be_sure():
    single = found(1.5)
    assert is_case("energy>+5%", single)
    with pytest.raises(UsageError, match="--sure"):
        is_case("energy>+5%", single, sure=True)
