"""Figures as a person reads them."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise import formatting
from joulewise.data import Energy, Source
from joulewise.formatting import NO_BREAK, keep_together, wrap_text
from joulewise.metrics.intervals import mean_interval
from joulewise.metrics.result import Interval
from joulewise.report.settings_text import change, error_words
from joulewise.report.views.run import _percents


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0 J"),
        (0.0123, "12.3 mJ"),
        (9.999, "10.0 J"),
        (12.34, "12.3 J"),
        (999.9, "1.00 kJ"),
        (12_345, "12.3 kJ"),
        (3.6e6, "3.60 MJ"),
        (-250, "-250 J"),
    ],
)
def test_joules(value, said):
    assert formatting.joules(value) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.00084, "840 µs"),
        (0.0231, "23.1 ms"),
        (12.44, "12.4 s"),
        (59.99, "1 min 00 s"),
        (200, "3 min 20 s"),
        (3599.7, "1 h 00 min"),
        (7500, "2 h 05 min"),
    ],
)
def test_seconds(value, said):
    assert formatting.seconds(value) == said


@pytest.mark.parametrize(
    ("half_width", "value", "said"),
    [
        (1.2, 100, "± 1.2 %"),
        (12.4, 100, "± 12 %"),
        (0.01, 100, "± <0.1 %"),
        (0, 100, "± 0 %"),
        (5, 0, "± 5.00 J"),
        (2000, 100, "± 2.00 kJ"),
        (math.inf, 100, "± unknown"),
    ],
)
def test_an_error_is_a_share_where_a_share_says_something(half_width, value, said):
    assert formatting.within(half_width, value) == said


def test_an_energy_has_both():
    assert formatting.energy(Energy(12_300, 90, 120, Source.MEASURED)) == "12.3 kJ ± 1.2 %"
    assert formatting.energy(None) == "unavailable"


def test_an_energy_whose_error_leaves_nothing_of_it_has_a_bound():
    assert formatting.energy(Energy(0.0848, 0.351, 0, Source.MODELLED)) == "below 436 mJ"
    assert formatting.figures(Energy(0.0848, 0.351, 0, Source.MODELLED)) == ("below 436 mJ", "")
    assert formatting.energy(Energy(-3, 5, 0, Source.MEASURED)) == "below 2.00 J"
    assert formatting.energy(Energy(3, math.inf, 0, Source.MEASURED)) == "3.00 J ± unknown"


@pytest.mark.parametrize(
    ("low", "high", "unit", "said"),
    [
        (12.1, 12.4, "s", "12.1-12.4 s"),
        (12.1, 12.1, "s", "12.1 s"),
        (800, 1200, "J", "800 J - 1.20 kJ"),
        (65, 125, "s", "1 min 05 s - 2 min 05 s"),
        (None, None, "J", "-"),
    ],
)
def test_a_range_says_its_unit_once(low, high, unit, said):
    assert formatting.between(low, high, unit) == said


def test_a_command_of_several_lines_in_one():
    assert formatting.one_line("python -c 'a\n\tb\x1b'") == "python -c 'a b\\x1b'"
    assert formatting.one_line("python train.py", 8) == "python …"


@pytest.mark.parametrize(
    ("value", "said"),
    [(0, "0"), (6.34e-5, "0.0000634"), (0.36, "0.360"), (12.345, "12.3"), (1.2e6, "1200000")],
)
def test_an_amount_has_no_exponent(value, said):
    assert formatting.amount(value) == said


@given(st.floats(1e-6, 1e15))
def test_what_is_printed_is_the_value_to_half_a_percent(value):
    number, _, unit = formatting.joules(value).partition(" ")
    factor = {"": 1, "µ": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9}[unit[:-1]]
    assert float(number) * factor == pytest.approx(value, rel=0.006)


@given(st.text())
def test_text_from_elsewhere_steers_nothing(text):
    assert formatting.plain(text).isprintable()


def test_text_from_elsewhere_is_still_read():
    assert formatting.plain("\x1b[31mred\u202e é [bold]") == r"\x1b[31mred\u202e é [bold]"


def test_signs_that_an_encoding_lacks_are_spelt():
    assert formatting.fitting("12 µJ ± 1 %", "utf-8") == "12 µJ ± 1 %"
    assert formatting.fitting("12 µJ ± 1 %", "latin-1") == "12 µJ ± 1 %"
    assert formatting.fitting("12 µJ ± 1 %", "ascii") == "12 uJ +/- 1 %"


def test_a_long_line_hangs_beside_its_beginning():
    assert formatting.hanging("one two three", "who: ", None) == "who: one two three\n"
    assert formatting.hanging("one two\nthree", "who: ", 13) == "who: one two\n     three\n"


@pytest.mark.parametrize(
    ("said", "whole"),
    [
        ("do `a b c d` now", "`a b c d`"),
        ("it is left; run: a b c d", "run: a b c d"),
        ("to go on: a b c d", "to go on: a b c d"),
    ],
)
def test_what_is_to_be_pasted_is_not_wrapped(said, whole):
    assert whole in formatting.hanging(said, "who: ", 12)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("takes 27.5 ± 0.8 % more", "takes 27.5~±~0.8~% more"),
        ("103 J ± 69 % (28.7 mWh) in 6.07 s", "103~J ±~69~% (28.7~mWh) in 6.07~s"),
        ("than 300 W, batch_size 16", "than 300~W, batch_size~16"),
        ("5 min 28 s at 1530 MHz", "5~min 28~s at 1530~MHz"),
        ("12 settings, 3 of each", "12 settings, 3 of each"),
        ("joulewise run -- python train.py", "joulewise run -- python train.py"),
    ],
)
def test_a_number_stays_with_its_unit(text, kept):
    assert keep_together(text).replace(NO_BREAK, "~") == kept


def test_no_line_ends_between_a_number_and_its_unit():
    text = "150 W takes 40.6 ± 1.3 % less energy and 22.7 ± 1.3 % less time than 300 W"
    for columns in range(16, 80):
        lines = wrap_text(text, columns)
        assert " ".join(lines) == text
        assert max(map(len, lines)) <= columns
        assert not any(re.search(r"(\d|±)$", line) for line in lines)


def test_bounds_of_a_ratio_that_say_nothing_are_short():
    assert change(Interval(4.0, 9.2e-27, 2e24)) == "4.0 times [<0.001, >1000]"
    assert change(Interval(8.1, 1.3, 53.0)) == "8.1 times [1.3, 53]"


def test_an_interval_that_would_reach_below_0_is_told_as_it_lies():
    assert error_words(Interval(100.0, 95.0, 105.0)) == "± 5.0 %"
    wide = mean_interval(100.0, 279.0)
    assert (wide.low > 0, wide.high) == (True, 379.0)
    assert error_words(wide) == "-74 to +279 %"
    assert error_words(mean_interval(1.0, 20.0)) == "0.048 to 21 times"
    assert error_words(Interval(100.0)) is None


@given(st.lists(st.floats(0.01, 1e6), min_size=2, max_size=5))
def test_percents_add_up_to_100(parts):
    shares = [part / sum(parts) for part in parts]
    percents = _percents(shares)
    assert sum(percents) == 100
    assert all(
        abs(percent - 100 * share) < 1 for percent, share in zip(percents, shares, strict=True)
    )


def test_percents_of_three_parts():
    assert _percents([0.925, 0.049, 0.026]) == [92, 5, 3]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a\udcff", r"a\xff"),
        ("echo 'a\udcff b' c", r"echo $'a\xff b' c"),
        ("'\\ \udc80'", r"$'\\ \x80'"),
        ("'é'", "'é'"),
    ],
)
def test_bytes_that_are_no_utf8_stand_as_a_shell_has_them(text, said):
    assert formatting.plain(text) == said
