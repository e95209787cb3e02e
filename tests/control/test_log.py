"""The log of what was turned."""

import os

import pytest

from joulewise.control import messages
from joulewise.control.messages import LOG, LogLimiter, open_log


def test_each_line_shows_when_and_who(tmp_path):
    write = open_log(tmp_path / "state", "guardian")
    write("one\nof two lines")
    write("two")
    one, two = (tmp_path / "state" / LOG).read_text().splitlines()
    assert one.endswith(f" guardian[{os.getpid()}] one of two lines")
    assert two.endswith(" two")


def test_it_does_not_grow_for_ever(tmp_path):
    write = open_log(tmp_path, "guardian")
    (tmp_path / LOG).write_text("x" * (1 << 21))
    write("new")
    assert (tmp_path / LOG).read_text().endswith("new\n")
    assert (tmp_path / f"{LOG}.1").stat().st_size == 1 << 21
    for number in range(20):
        (tmp_path / LOG).write_text(str(number) * (1 << 20))
        write("newer")
    kept = sorted(each.name for each in tmp_path.iterdir())
    assert kept == [LOG, *(f"{LOG}.{number}" for number in range(1, 9))]
    assert [(tmp_path / name).read_text()[:2] for name in kept[1:3]] == ["19", "18"]


def test_it_is_not_for_others_to_write_nor_to_lead_elsewhere(tmp_path):
    before = os.umask(0)
    try:
        open_log(tmp_path / "state", "guardian")("one")
    finally:
        os.umask(before)
    assert (tmp_path / "state" / LOG).stat().st_mode & 0o022 == 0
    target = tmp_path / "somebody's"
    (tmp_path / LOG).symlink_to(target)
    open_log(tmp_path, "guardian")("two")
    assert not target.exists()


def test_a_state_folder_that_was_removed_is_not_made_again_for_a_line(tmp_path):
    write = open_log(tmp_path / "state", "guardian")
    (tmp_path / "state").rmdir()
    write("one")
    assert not (tmp_path / "state").exists()


@pytest.fixture
def said():
    return []


@pytest.fixture
def clock_s():
    return [0.0]


@pytest.fixture
def ration(said, clock_s):
    return LogLimiter(said.append, 20, lambda: clock_s[0])


def test_of_one_caller_a_few_lines_a_minute_are_reported_and_the_rest_is_counted(
    ration, said, clock_s
):
    for number in range(30_020):
        ration.log("uid 7", f"no {number}")
    assert said == [f"no {number}" for number in range(20)]
    clock_s[0] = 60.0
    ration.report_dropped()
    assert said[20:] == ["and 30,000 more of uid 7"]
    ration.log("uid 7", "again")
    assert said[-1] == "again"


def test_one_who_is_refused_a_lot_does_not_hide_another(ration, said):
    for _ in range(100):
        ration.log("uid 7", "no")
    ration.log("uid 8", "no to 8")
    assert said[-1] == "no to 8"


def test_nothing_is_added_where_nothing_was_left_out(ration, said):
    ration.log("uid 7", "no")
    ration.report_dropped(everything=True)
    assert said == ["no"]


def test_callers_beyond_all_measure_are_counted_together(ration, said):
    for uid in range(5000):
        ration.log(f"uid {uid}", "no")
    assert len(ration._callers) == messages._MAX_CALLERS + 1
    ration.report_dropped(everything=True)
    assert said[-1] == f"and {5000 - messages._MAX_CALLERS - 20:,} more of others"
