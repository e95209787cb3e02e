from __future__ import annotations

import pytest

from joulewise.units import UNITS, accepted_units, parse_amount


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("250W", "power", 250),
        ("60kJ", "energy", 60e3),
        ("2 kWh", "energy", 7.2e6),
        ("1.5h", "time", 5400),
        (" .5 MIN ", "time", 30),
        ("3us", "time", 3e-6),
        ("1e3J", "energy", 1000),
        ("2 GiB", "memory", 2 << 30),
        ("50 °C", "temperature", 50),
        ("500gCO2", "carbon", 500),
        ("1.2GHz", "clock", 1200),
    ],
)
def test_an_amount_is_read_in_the_base_unit_of_its_kind(text, kind, value):
    amount = parse_amount(text, *UNITS)
    assert (amount.kind, amount.value) == (kind, pytest.approx(value))


def test_a_number_without_a_unit_needs_a_default_unit():
    assert parse_amount("250", "power", default_unit="W").value == 250
    with pytest.raises(ValueError, match=r"250 has no unit"):
        parse_amount("250", "power")


def test_case_matters_only_where_it_tells_milli_from_mega():
    assert (parse_amount("2mJ", "energy").value, parse_amount("2MJ", "energy").value) == (2e-3, 2e6)
    assert parse_amount("2KJ", "energy") == parse_amount("2kJ", "energy")
    with pytest.raises(ValueError, match=r"mJ or MJ\?"):
        parse_amount("2mj", "energy")


@pytest.mark.parametrize("text", ["", "W", "-5W", "+5W", "nan W", "inf W", "1e999W", "5 W 5", "5J"])
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match=r"number|not a unit of power"):
        parse_amount(text, "power")


def test_the_accepted_units_can_be_listed():
    assert accepted_units("time", "temperature") == "µs, ms, s, min, h, d, C, °C"
