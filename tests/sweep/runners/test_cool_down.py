"""Waiting between runs."""

import pytest

from joulewise.errors import UsageError
from joulewise.sweep.runners.cool_down import CoolDown, parse_cool_down


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("", CoolDown()),
        ("60s", CoolDown(wait_s=60)),
        ("1.5 min", CoolDown(wait_s=90)),
        ("50C", CoolDown(below_c=50)),
        ("50 °C", CoolDown(below_c=50)),
    ],
)
def test_a_time_or_a_temperature(text, meant):
    assert parse_cool_down(text) == meant


@pytest.mark.parametrize("text", ["60", "hot", "-5s", "50F", "s"])
def test_anything_else_is_refused(text):
    with pytest.raises(UsageError, match="is not a cool-down"):
        parse_cool_down(text)


class Slept(list):
    def __call__(self, wait_s):
        self.append(wait_s)
        return True


def test_it_waits_until_it_is_cool():
    warm, slept = iter([60.0, 55.0, 49.0]), Slept()
    assert CoolDown(below_c=50).wait(lambda: next(warm), slept) == ""
    assert len(slept) == 2


def test_timed_pause_reads_no_temperature():
    slept = Slept()
    assert CoolDown(wait_s=7).wait(pytest.fail, slept) == ""
    assert slept == [7]


def test_without_a_thermometer_it_says_so_and_goes_on():
    assert "no GPU reports" in CoolDown(below_c=50).wait(lambda: None, Slept())


def test_cool_down_can_be_cancelled():
    assert CoolDown(below_c=50).wait(lambda: 90.0, lambda _: False) == ""


def test_cool_down_times_out(monkeypatch):
    now = iter(range(0, 10_000, 400))
    monkeypatch.setattr("joulewise.sweep.runners.cool_down.time.monotonic", lambda: next(now))
    assert "still 90 °C after 15 min" in CoolDown(below_c=50).wait(lambda: 90.0, Slept())
