"""Logs as meters write them, and what is wrong with one in a line."""

from datetime import datetime, timezone

import pytest

from joulewise.calibrate.gain import read_meter
from joulewise.errors import UsageError

AHEAD_S = 1_700_000_000.0  # the wall clock stood there when the monotonic one began


def log(tmp_path, lines, header="time,power_w"):
    path = tmp_path / "meter.csv"
    path.write_text("\n".join([header, *lines] if header else lines) + "\n", "utf-8")
    return path


def rows(stamp, power="{:.1f}", separator=","):
    return [f"{stamp(i)}{separator}{power.format(100 + i)}" for i in range(30)]


def iso(i):
    return datetime.fromtimestamp(AHEAD_S + 10 + i, timezone.utc).isoformat()


@pytest.mark.parametrize(
    ("lines", "header"),
    [
        (rows(iso), "time,power_w"),
        (rows(lambda i: iso(i).replace("+00:00", "Z")), "Date/Time,Power (W)"),
        (rows(lambda i: AHEAD_S + 10 + i), "timestamp,watts"),
        (rows(lambda i: f"{(AHEAD_S + 10 + i) * 1e3:.0f}"), "timestamp,watts"),
        (rows(lambda i: f"{(AHEAD_S + 10 + i) * 1e9:.0f}"), "timestamp,watts"),
        (rows(lambda i: 10 + i), "time,power_w"),
        (rows(lambda i: (10 + i) * 10**9), "monotonic_ns,power_w"),
        (rows(lambda i: 10 + i), None),
        (rows(lambda i: 10 + i, power="{:.1f} W"), "time,power"),
        (rows(lambda i: 10 + i, separator=";"), "time;power"),
        (rows(lambda i: 10 + i, power="{:.0f},0", separator=";"), "\ufefftime;power"),
        ([f"{100 + i},{230},{10 + i}" for i in range(30)], "power_w,voltage_v,time"),
        ([*rows(lambda i: 10 + i), "", "# the end", "60,"], "time,power_w"),
        (rows(lambda i: 10 + i)[::-1], "time,power_w"),
    ],
)
def test_times_and_power_are_found(tmp_path, lines, header):
    meter = read_meter(log(tmp_path, lines, header), AHEAD_S)
    assert meter.t_s == pytest.approx([10 + i for i in range(30)], abs=1e-3)
    assert meter.power_w == pytest.approx([100 + i for i in range(30)])


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "readings, too few"),
        (["1,2"] * 5, "5 readings, too few"),
        ([*rows(lambda i: i), "9,much"], "line 32: it has no power: 'much'"),
        ([*rows(lambda i: i), "noon,3"], "line 32: it has no time: 'noon'"),
        ([*rows(lambda i: i), "9"], "line 32: it has too few columns"),
        ([*rows(lambda i: i), "9,nan"], "line 32: it has no power"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(tmp_path, lines, said):
    with pytest.raises(UsageError, match=said):
        read_meter(log(tmp_path, lines), AHEAD_S)


def test_files_that_are_no_logs(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        read_meter(tmp_path / "nowhere.csv", AHEAD_S)
    for content, said in (
        (b"", "is empty"),
        (b"\xff\xfe\x00", "not a text file"),
        (b"power\n1\n", "one col"),
    ):
        path = tmp_path / "log.csv"
        path.write_bytes(content)
        with pytest.raises(UsageError, match=said):
            read_meter(path, AHEAD_S)
