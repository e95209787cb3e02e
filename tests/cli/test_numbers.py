"""Numbers on the command line: with their unit or without, and refused in words."""

import subprocess

import click
import pytest

from joulewise.cli.doctor import command as doctor
from joulewise.cli.options import POSITIVE, Number, Whole
from joulewise.cli.run import command as run
from tests.helpers.processes import DEADLINE_S, JOULEWISE


@pytest.mark.parametrize("text", ["1200", "1200MHz", "1200 MHz", "1200mhz", " 1.2e3 MHZ "])
def test_a_unit_may_stand_behind_it(text):
    assert Number(min=0, unit="MHz").convert(text, None, None) == 1200


@pytest.mark.parametrize("text", ["1.2GHz", "MHz", "", "1200 MHz MHz", "nan", "infMHz"])
def test_another_unit_is_refused(text):
    with pytest.raises(click.BadParameter) as refused:
        Number(min=0, unit="MHz").convert(text, None, None)
    assert refused.value.message == f"{text!r} is not a number of MHz."


@pytest.mark.parametrize(
    ("bounds", "text", "why"),
    [
        (POSITIVE, "0", "must be above 0, not 0."),
        (POSITIVE, "-1e9", "must be above 0, not -1000000000."),
        (Number(min=0), "-0.5", "must be 0 or more, not -0.5."),
        (Number(max=50), "50.1", "must be 50 or less, not 50.1."),
        (Number(min=0.01, max=1000), "5000", "must be between 0.01 and 1000, not 5000."),
        (Number(min=0.01, max=1000, unit="Hz"), "5 kHz", "'5 kHz' is not a number of Hz."),
        (Number(min=0, max=50, min_open=True), "0", "must be above 0 and at most 50, not 0."),
        (Whole(min=1), "0", "must be 1 or more, not 0."),
        (Whole(min=1), "1.5", "'1.5' is not a whole number."),
    ],
)
def test_a_refusal_is_in_words(bounds, text, why):
    with pytest.raises(click.BadParameter) as refused:
        bounds.convert(text, None, None)
    assert refused.value.message == why


@pytest.mark.parametrize(("low", "within"), [(0, True), (1, False)])
def test_an_open_bound_is_not_within(low, within):
    bounds = Number(min=low, max=2, min_open=True)
    if within:
        assert bounds.convert("1", None, None) == 1
    else:
        with pytest.raises(click.BadParameter):
            bounds.convert("1", None, None)


@pytest.mark.parametrize(
    ("verb", "option", "unit"),
    [
        (run, "rate_hz", "Hz"),
        (run, "baseline_s", "s"),
        (run, "cpu_tdp_w", "W"),
        (run, "cpu_limit_w", "W"),
        (run, "sm_clock_mhz", "MHz"),
        (run, "mem_clock_mhz", "MHz"),
        (doctor, "cpu_tdp_w", "W"),
    ],
)
def test_what_has_a_unit_takes_it(verb, option, unit):
    (bounds,) = (param.type for param in verb.params if param.name == option)
    assert bounds.convert(f"10{unit}", None, None) == 10


@pytest.mark.parametrize(
    "line",
    [
        "run --name -- true",
        "run --tag -- true",
        "run --name --no-hooks -- true",
        "run --rate 10 --group -- true",
        "sweep --name -- --power-limit 150",
        "sim --gpu -- true",
        "export last -o --format csv",
    ],
)
def test_an_option_without_its_value_is_refused(joulewise, store, line):
    ran = joulewise(*line.split())
    assert ran.returncode == 2
    assert "needs a value, but is followed by --" in ran.stderr
    assert f"see: joulewise {line.split()[0]} --help" in ran.stderr
    assert not store.exists()


@pytest.mark.parametrize("line", ["run -- true --name --", "run --name=--rate -- true"])
def test_what_belongs_to_the_command_or_is_a_value_is_not_refused(store, line):
    # In a process of its own: `run` blocks signals until it ends.
    command = [*JOULEWISE, "--store", str(store), *line.split()]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert ran.returncode == 0, ran.stderr
    assert "needs a value" not in ran.stderr
