"""Which points of a grid a constraint allows."""

import pytest

from joulewise.errors import UsageError
from joulewise.sweep.space import constraint

VALUES = {"batch_size": 64.0, "accumulation": 4.0, "power_limit_w": 200.0, "optimizer": "adam"}


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        ("batch_size * accumulation == 256", True),
        ("batch_size * accumulation == 255", False),
        ("power_limit_w >= 250 or batch_size <= 64", True),
        ("power_limit_w >= 250 and batch_size <= 64", False),
        ("not power_limit_w >= 250", True),
        ("32 < batch_size <= 64", True),
        ("64 < batch_size < 128", False),
        ("optimizer == 'adam'", True),
        ("optimizer != 'adam' or batch_size == 64", True),
        ("batch_size % 48 == 16", True),
        ("batch_size // 3 == 21", True),
        ("-batch_size + 1 < -(60 - 1)", True),
        ("(batch_size - 4) / 2 == 30", True),
        (" batch_size == 64 ", True),
        ("batch_size == 64 or optimizer > 3", True),
    ],
)
def test_a_constraint_holds_or_not(text, is_allowed):
    assert constraint(text, VALUES)(VALUES) is is_allowed


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is no constraint"),
        ("batch_size ==", "is no constraint"),
        ("batch_size = 64", "is no constraint"),
        ("batch_size == 64\nprint()", "is no constraint"),
        ("batch_size", "compares nothing"),
        ("batch_size * 2", "compares nothing"),
        ("batch == 64", "there is no axis batch"),
        ("abs(batch_size) == 64", r"'abs\(batch_size\)' cannot stand"),
        ("batch_size.real == 64", "'batch_size.real' cannot stand"),
        ("batch_size ** 9 ** 9 == 1", "cannot stand"),
        ("batch_size << 9999999999 == 1", "cannot stand"),
        ("batch_size == [64]", r"'\[64\]' cannot stand"),
        ("batch_size in (1, 2)", "cannot stand"),
        ("batch_size == True", "'True' cannot stand"),
        ("(lambda: 1)() == 1", "cannot stand"),
        ("(x := 3) == 3", "cannot stand"),
        ("f'{batch_size}' == '64'", "cannot stand"),
        ("batch_size == 1j", "'1j' cannot stand"),
        ("(" * 500 + "1" + ")" * 500 + " == 1", "too long|is no constraint"),
        ("+".join(["1"] * 600) + " == 1", "too long"),
    ],
)
def test_invalid_constraints_are_refused(text, says):
    with pytest.raises(UsageError, match=says) as refused:
        constraint(text, VALUES)
    assert refused.value.hint


@pytest.mark.parametrize(
    "text",
    ["optimizer > 3", "optimizer * 99999999 == 'a'", "batch_size / 0 == 1", "-optimizer < 1"],
)
def test_error_of_a_constraint_names_the_point(text):
    holds = constraint(text, VALUES)
    with pytest.raises(UsageError, match=r"cannot be evaluated at .*optimizer = 'adam'"):
        holds(VALUES)
