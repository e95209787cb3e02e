"""What a run may take, and what is said when."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.budget import (
    BudgetWatch,
    as_message,
    judge,
    parse_budget,
)
from joulewise.errors import UsageError
from joulewise.session.forecast import ForecastInterval, RunForecast

S = 1_000_000_000


def energy(value, low, high):
    return RunForecast(ForecastInterval(1, 1, 1), ForecastInterval(value, low, high))


@pytest.mark.parametrize(
    ("text", "kind", "limit"),
    [
        ("2kWh", "energy", 7.2e6),
        ("500Wh", "energy", 1.8e6),
        ("3MJ", "energy", 3e6),
        ("750 J", "energy", 750),
        (".5 kwh", "energy", 1.8e6),
        ("1e3J", "energy", 1000),
        ("30min", "time", 1800),
        ("2h", "time", 7200),
        ("90S", "time", 90),
        ("1d", "time", 86400),
    ],
)
def test_a_budget_is_an_amount_and_a_unit(text, kind, limit):
    budget = parse_budget(text)
    assert (budget.kind, budget.limit, budget.stop) == (kind, pytest.approx(limit), False)


def test_stop_is_shown_with_the_budget():
    assert parse_budget("2 kWh :stop").stop
    assert parse_budget("2kWh:stop").text == "2kWh:stop"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2",
        "kWh",
        "2 parsecs",
        "-1kWh",
        "1..2kWh",
        "0J",
        "nanJ",
        "1e999J",
        "3mj",
        "30m",
        "2kWh:go",
    ],
)
def test_what_cannot_be_intended_is_refused(text):
    with pytest.raises(UsageError) as caught:
        parse_budget(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("taken", "expected", "verdict"),
    [
        (11.0, (), "exceeded"),
        (11.0, (1.0, 2.0), "exceeded"),
        (5.0, (11.0, 12.0), "foreseen"),
        (5.0, (9.0, 11.0), "possible"),
        (5.0, (9.0,), "possible"),
        (5.0, (), "possible"),
        (10.0, (10.0, 10.0), "sufficient"),
    ],
)
def test_a_limit_of_ten_is_judged(taken, expected, verdict):
    assert judge(10.0, taken, *expected) == verdict


@given(st.floats(min_value=1e-3, max_value=1e9), st.floats(min_value=1, max_value=2000))
def test_carbon_becomes_the_energy_that_emits_it(grams, intensity):
    budget = parse_budget(f"{grams!r}gCO2", intensity)
    assert budget.limit / 3.6e6 * intensity == pytest.approx(grams)
    assert parse_budget(f"{grams!r}kgCO2", intensity).limit == pytest.approx(1000 * budget.limit)


@pytest.mark.parametrize("intensity", [None, 0.0, -3.0, math.nan, math.inf])
def test_carbon_needs_the_grid(intensity):
    with pytest.raises(UsageError, match="--gco2-per-kwh"):
        parse_budget("500gCO2", intensity)


def test_a_budget_is_foreseen_once_and_exceeded_once():
    watch = BudgetWatch([parse_budget("1kJ")])
    sure = energy(1200, 1100, 1300)
    assert watch.check(time_s=1, energy_j=100, forecast=energy(1200, 990, 1400)) == []
    (foreseen,) = watch.check(time_s=2, energy_j=200, forecast=sure)
    assert (foreseen.state, foreseen.stop) == ("foreseen", False)
    assert foreseen.message == (
        "the budget of 1kJ will be exceeded: 1.2 kJ expected for the whole run (1.1 kJ to 1.3 kJ)"
    )
    assert watch.check(time_s=3, energy_j=300, forecast=sure) == []
    assert watch.check(time_s=9, energy_j=1000, forecast=sure) == []
    (exceeded,) = watch.check(time_s=75, energy_j=1001, forecast=sure)
    assert exceeded.message == (
        "the budget of 1kJ is used up after 1 min 15 s; 1 kJ are used so far, 0.001 kJ too much"
    )
    assert watch.check(time_s=80, energy_j=2000) == []


def test_what_was_not_foreseen_is_exceeded_all_the_same():
    watch = BudgetWatch([parse_budget("1kJ:stop")])
    (event,) = watch.check(time_s=5400, energy_j=1500, forecast=energy(1200, 1100, 1300))
    assert event.message == (
        "the budget of 1kJ is used up after 1 h 00 min; 1.5 kJ are used so far, 0.5 kJ too much; "
        "stopping the command"
    )
    assert as_message(event) == {
        "state": "exceeded",
        "budget": "1kJ:stop",
        "stop": True,
        "message": event.message,
    }


def test_a_forecast_stops_nothing():
    (event,) = BudgetWatch([parse_budget("1kJ:stop")]).check(
        time_s=1, energy_j=1, forecast=energy(1200, 1100, 1300)
    )
    assert (event.state, event.stop) == ("foreseen", False)


def test_an_ended_command_is_not_stopped():
    (event,) = BudgetWatch([parse_budget("1kJ:stop")]).check(time_s=5, energy_j=1001, ended=True)
    assert not event.stop
    assert "stopping" not in event.message


def test_energy_that_cannot_be_read_exceeds_nothing():
    watch = BudgetWatch([parse_budget("1J"), parse_budget("1s")])
    (event,) = watch.check(time_s=2, energy_j=None, forecast=energy(9, 9, 9))
    assert event.budget.kind == "time"


def test_each_of_several_budgets_is_watched():
    watch = BudgetWatch([parse_budget("1kJ"), parse_budget("2kJ:stop"), parse_budget("1min")])
    assert [event.budget.text for event in watch.check(time_s=30, energy_j=1500)] == ["1kJ"]
    assert [event.budget.text for event in watch.check(time_s=61, energy_j=2500)] == [
        "2kJ:stop",
        "1min",
    ]


def test_carbon_is_shown_in_carbon():
    watch = BudgetWatch([parse_budget("1kgCO2", 500)])
    (event,) = watch.check(
        time_s=1, energy_j=1, forecast=energy(3 * 3.6e6, 2.5 * 3.6e6, 3.5 * 3.6e6)
    )
    assert "1.5 kgCO2 expected for the whole run (1.25 kgCO2 to 1.75 kgCO2)" in event.message


def test_time_is_judged_without_energy():
    watch = BudgetWatch([parse_budget("10s"), parse_budget("30s:stop"), parse_budget("1J")])
    assert watch.time_left_s(1) == 9
    assert watch.time_left_s(11) == 19
    assert watch.time_left_s(31) is None
    assert watch.check(time_s=10, energy_j=None) == []
    assert [event.stop for event in watch.check(time_s=10.001, energy_j=None)] == [False]
    assert [event.stop for event in watch.check(time_s=31, energy_j=None)] == [True]


def test_what_one_process_found_the_other_does_not_find_again():
    budgets = [parse_budget("10s:stop")]
    (found,) = BudgetWatch(budgets).check(time_s=11, energy_j=None)
    watch = BudgetWatch(budgets)
    heard = watch.add_external(as_message(found))
    assert heard == found
    assert watch.add_external(as_message(found)) is None
    assert watch.check(time_s=11, energy_j=None, ended=True) == []


@given(st.floats(1, 1e6), st.floats(1, 1e3), st.floats(0.01, 10))
def test_the_time_reported_is_when_energy_reached_the_budget(limit_j, power_w, step_s):
    watch, now_s = BudgetWatch([parse_budget(f"{limit_j!r}J")]), limit_j / power_w
    assert watch.check(time_s=now_s - step_s / 2, energy_j=(now_s - step_s / 2) * power_w) == []
    now_s += step_s / 2
    (event,) = watch.check(time_s=now_s, energy_j=now_s * power_w)
    assert event.at_s == pytest.approx(limit_j / power_w, abs=1e-6 * now_s)


def test_what_is_left_lasts_until_the_nearest_budget_at_the_highest_power():
    budgets = [parse_budget(text) for text in ("100J", "300J:stop", "5s")]
    watch = BudgetWatch(budgets)
    assert watch.seconds_left(40, 30) == 2
    watch.check(time_s=1, energy_j=101)
    assert watch.seconds_left(150, 30) == 5
    assert watch.seconds_left(310, 30) == 0
    assert watch.seconds_left(150, math.inf) == 0
    assert BudgetWatch(budgets[2:]).seconds_left(1, 30) is None


def test_a_unit_of_two_meanings_is_requested_about():
    with pytest.raises(UsageError, match=r"mJ or MJ\?"):
        parse_budget("2mj")
    assert (parse_budget("2mJ").limit, parse_budget("2MJ").limit) == (2e-3, 2e6)
