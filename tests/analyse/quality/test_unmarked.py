"""A framework that ran without marks is warned of, and nothing else is."""

import json

import pytest

from joulewise.analyse.run_result import analyse
from joulewise.data import WarningCode
from joulewise.hooks.marks import Marks
from joulewise.store.layout import MARKS
from joulewise.store.manifest import CommandRecord
from tests.helpers.run_directories import PID, START, MadeRun, S, device


def used(made, time_s=30.0, cpu_s=25.0, pid=PID, **frameworks):
    imported_ns = START + S
    uses = {
        "pid": pid,
        "imported_ns": imported_ns,
        "end_ns": None if time_s is None else imported_ns + round(time_s * S),
        "cpu_s": cpu_s,
        "frameworks": frameworks or {"torch": {"version": "2.9"}},
    }
    (made.path / MARKS / f"{pid}-{imported_ns}.frameworks.json").write_text(json.dumps(uses))


@pytest.fixture
def made(tmp_path):
    made = MadeRun(tmp_path / "20261116-003512-7f3a", seconds=40.0)
    made.fast(device("gpu0"), lambda _: 100.0)
    return made


def no_marks_warnings(made, **changed):
    result = analyse(made.write(**changed))
    return [warning for warning in result.warnings if warning.code is WarningCode.NO_MARKS]


def test_a_framework_that_worked_without_marks(made):
    used(made, torch={"version": "2.9"}, keras={"version": "3.1"})
    (warning,) = no_marks_warnings(made)
    assert "torch 2.9, keras 3.1 ran for 30 s" in warning.message
    assert "joulewise.span" in warning.hint


@pytest.mark.parametrize(
    ("time_s", "cpu_s"),
    [(2.0, 2.0), (9.9, 9.9), (30.0, 1.0), (None, None)],
    ids=["tried out", "short", "a server that waits", "killed, not the command"],
)
def test_one_that_hardly_worked_is_no_news(made, time_s, cpu_s):
    used(made, time_s, cpu_s, pid=PID + 1)
    assert no_marks_warnings(made) == []


def test_any_span_is_enough(made):
    used(made)
    Marks(made.path / MARKS).whole("warm-up", START, START + S)
    assert no_marks_warnings(made) == []


def test_lost_marks_are_not_reported_as_missing_ones(made):
    used(made)
    (made.path / MARKS / "1-1.marks").write_bytes(b"nothing of ours" * 48)
    assert no_marks_warnings(made) == []


def test_without_a_framework_there_is_nothing_to_mark(made):
    assert no_marks_warnings(made) == []


def test_a_file_that_cannot_be_read_is_passed_over(made):
    (made.path / MARKS / "1-1.frameworks.json").write_text("{")
    (made.path / MARKS / "2-1.frameworks.json").write_text("[]")
    assert no_marks_warnings(made) == []


@pytest.mark.parametrize(
    ("exit_code", "cpu_s", "count"), [(-15, 35.0, 1), (-9, 1.0, 0), (0, 35, 0)]
)
def test_a_command_that_was_killed_is_known_by_its_cpu_time(made, exit_code, cpu_s, count):
    used(made, None, None)
    command = CommandRecord(PID, ("python",), START, START + 40 * S, exit_code, cpu_s)
    assert len(no_marks_warnings(made, commands=(command,))) == count
