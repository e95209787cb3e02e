"""An axis as it is written, and the values that it stands for."""

import re
from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.data.sweeps import CPU_LIMIT, MEM_CLOCK, POWER_LIMIT, SM_CLOCK
from joulewise.errors import NotSupportedError, OutOfRangeError, UsageError
from joulewise.sweep.axes import (
    MOST,
    format_values,
    nearest,
    parse_clocks,
    parse_limits,
    parse_words,
)
from joulewise.sweep.boards import TargetBoard, simulated

(V100,) = simulated("v100")
(RTX6000,) = simulated("rtx6000")
(A100,) = simulated("a100")
PACKAGE = TargetBoard("cpu0", "package-0", "a CPU", lowest_w=20, default_w=65, highest_w=4095.875)


def watts(text, board=V100):
    return list(parse_limits(POWER_LIMIT, text, board).values)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("150:200:10", [150, 160, 170, 180, 190, 200]),
        ("150:175:10", [150, 160, 170, 175]),
        ("150:300:500", [150, 300]),
        ("200:200:5", [200]),
        ("150, 250,200", [150, 250, 200]),
        ("250", [250]),
        ("250 W", [250]),
        ("150W:160w:5 W", [150, 155, 160]),
        ("150:160:5,300", [150, 155, 160, 300]),
        ("150.5:151.1:0.3", [150.5, 150.8, 151.1]),
        ("50%:100%:25%", [150, 225, 300]),
        ("70%,100%", [210, 300]),
        ("70%,250", [210, 250]),
        ("33.3%:33.3%:1%,150", None),
    ],
)
def test_limits_are_ranges_with_both_ends_lists_and_percent(text, values):
    if values is None:
        with pytest.raises(OutOfRangeError, match=r"cannot be 99\.9 W"):
            watts(text)
    else:
        assert watts(text) == values


def test_full_is_the_boards_range_in_steps_of_5_w_with_both_ends():
    assert watts("full") == list(range(150, 301, 5))
    assert watts("full", RTX6000) == list(range(100, 261, 5))
    odd = TargetBoard("gpu0", "GPU-0", "odd", lowest_w=101, default_w=110, highest_w=118)
    assert watts("full", odd) == [101, 106, 111, 116, 118]


def test_full_of_a_package_ends_at_the_limit_that_it_has():
    assert parse_limits(CPU_LIMIT, "full", PACKAGE).values == (*range(20, 65, 5), 65)
    assert parse_limits(CPU_LIMIT, "50%,100", PACKAGE).values == (32.5, 100)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no values"),
        (" ", "no values"),
        ("150,,200", "an empty value"),
        ("150,", "an empty value"),
        ("150:300:0", "a step of 0"),
        ("150:300:-5", "a step of -5"),
        ("300:150:5", "ends below its start"),
        ("150:300", "not a range"),
        ("150:300:5:5", "not a range"),
        ("50%:100%:5", "not a range"),
        ("150::5", "'' is not a valid power limit"),
        ("nan", "'nan' is not a valid power limit"),
        ("inf", "'inf' is not a valid power limit"),
        ("150:nan:5", "'nan' is not a valid power limit"),
        ("150 MHz", "not a valid power limit"),
        ("much", "not a valid power limit"),
        ("\N{FULLWIDTH DIGIT ONE}50", "not a valid power limit"),
        ("150:300:0.001", "more than 100,000 values"),
        ("150:300:1e-15", "more than 100,000 values"),
        ("150:300:1e-99", "too large or small"),
        ("1e300", "too large or small"),
        ("9" * 5000, "the number is too large"),
    ],
)
def test_invalid_limits_are_refused(text, says):
    with pytest.raises(UsageError, match=re.escape(says)) as refused:
        watts(text)
    assert refused.value.hint


def test_a_limit_out_of_range_is_refused_with_the_range():
    with pytest.raises(OutOfRangeError, match="cannot be 140 W") as refused:
        watts("140:300:10")
    assert refused.value.hint == "it takes 150 to 300 W (50 to 100 %)"
    with pytest.raises(OutOfRangeError, match="cannot be 330 W"):
        watts("110%")
    with pytest.raises(OutOfRangeError):
        watts("-150")


def test_board_without_controls_is_refused():
    bare = TargetBoard("gpu0", "GPU-0", "bare")
    with pytest.raises(NotSupportedError, match="the power limit of gpu0 cannot be set"):
        watts("150", bare)
    with pytest.raises(NotSupportedError, match="the memory clock of gpu0 cannot be locked"):
        parse_clocks(MEM_CLOCK, "877", V100)


def test_clocks_are_rounded_with_a_note():
    axis = parse_clocks(SM_CLOCK, "1200, 1201 MHz, 1206,1530", V100)
    assert axis.values == (1200, 1207, 1530)
    assert axis.notes == (
        "SM clock 1201 MHz becomes 1200 MHz, the nearest that gpu0 takes",
        "SM clock 1206 MHz becomes 1207 MHz, the nearest that gpu0 takes",
        "SM clock: 1 of 4 values were given twice",
    )


def test_clock_between_two_is_rounded_down():
    assert nearest(15, [10, 20]) == 10


def test_clocks_may_be_unlocked_and_full_is_some_of_many_with_both_ends():
    axis = parse_clocks(SM_CLOCK, "full,unlocked", V100)
    *locked, unlocked = axis.values
    assert unlocked is None
    assert len(locked) == 16
    assert (locked[0], locked[-1]) == (135, 1530)
    assert set(locked) <= set(V100.sm_clocks_mhz)
    gaps = [high - low for low, high in pairwise(locked)]
    assert max(gaps) - min(gaps) <= 15
    assert parse_clocks(MEM_CLOCK, "full", A100).values == (1215,)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("100", "gpu0's SM clock cannot be 100 MHz"),
        ("1531", "gpu0's SM clock cannot be 1531 MHz"),
        ("80%", "'80%' is not a valid SM clock"),
        ("1200 W", "'1200 W' is not a valid SM clock"),
        ("locked", "'locked' is not a valid SM clock"),
    ],
)
def test_invalid_clocks_are_refused(text, says):
    with pytest.raises(UsageError, match=says):
        parse_clocks(SM_CLOCK, text, V100)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("32,64,128", ("32", "64", "128")),
        ("1:5:1", ("1", "2", "3", "4", "5")),
        ("0.1:0.35:0.1", ("0.1", "0.2", "0.3", "0.35")),
        ("1e-4:3e-4:1e-4", ("0.0001", "0.0002", "0.0003")),
        ("-2:2:2", ("-2", "0", "2")),
        ("1:3:1,8", ("1", "2", "3", "8")),
        ("032,64", ("032", "64")),
        ("adam, sgd", ("adam", "sgd")),
        ("full", ("full",)),
        ("16:9", ("16:9",)),
        ("a:b:c", ("a:b:c",)),
        ('"a,b",c', ("a,b", "c")),
        ("'a,b', \"c\"", ("a,b", "c")),
        ('"1:5:1"', ("1:5:1",)),
        ('"say ""hi"""', ('say "hi"',)),
        ('""', ("",)),
        ('{"a":1}', ('{"a":1}',)),
        ("32,32,64", ("32", "64")),
    ],
)
def test_words_stay_as_written_and_numbers_may_be_ranges(text, values):
    assert parse_words("x", text).values == values


@pytest.mark.parametrize("text", ["", ",", "32,,64", "32, ,64", '"a"b', '"a,b', "1:5:0", "5:1:1"])
def test_invalid_words_are_refused(text):
    with pytest.raises(UsageError):
        parse_words("x", text)


def test_an_axis_ends_at_so_many_values():
    assert len(parse_words("x", f"1:{MOST}:1").values) == MOST
    with pytest.raises(UsageError, match="more than"):
        parse_words("x", f"1:{MOST}:1,0")
    with pytest.raises(UsageError, match="more than"):
        parse_words("x", f"0:{10 * MOST}:1")


@given(st.lists(st.text(), min_size=1))
def test_formatted_values_parse_to_the_same(values):
    assert parse_words("x", format_values(values)).values == tuple(dict.fromkeys(values))


NUMBERS = st.decimals(-1000, 1000, allow_nan=False, places=3)


@given(NUMBERS, NUMBERS, st.decimals("0.5", 500, places=2))
def test_a_range_has_both_ends_and_even_steps(one, other, step):
    first, last = sorted((one, other))
    values = [Decimal(word) for word in parse_words("x", f"{first}:{last}:{step}").values]
    assert values[0] == first
    assert values[-1] == last
    gaps = [high - low for low, high in pairwise(values)]
    assert all(gap == step for gap in gaps[:-1])
    assert not gaps or 0 < gaps[-1] <= step
