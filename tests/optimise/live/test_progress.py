"""Steps by the lines of a command's output."""

import pytest

from joulewise.data.tuning import StepSource
from joulewise.errors import UsageError
from joulewise.optimise.live.progress import ProgressFollower
from joulewise.optimise.live.tuner_client import compile_progress
from joulewise.process.output_copy import OutputPart

S = 10**9


class Written:
    """Output in parts: ``(seconds, text)``, and of another stream with its number."""

    def __init__(self, *parts):
        self._parts = [
            OutputPart(round(t_s * S), *(more or (1,)), False, text.encode())
            for t_s, text, *more in parts
        ]

    def poll(self):
        parts, self._parts = self._parts, []
        return parts


def steps(expression, *parts):
    follower = ProgressFollower(Written(*parts), compile_progress(expression))
    assert follower.source is StepSource.PROGRESS
    return [(step.start_ns / S, step.end_ns / S) for step in follower.poll()]


def test_each_match_ends_a_step():
    lines = ((t_s, f"step loss={t_s}\nnoise\n") for t_s in (1, 2, 4))
    assert steps(r"step loss", *lines) == [(1, 2), (2, 4)]


def test_a_number_that_grew_by_several_is_so_many_steps():
    lines = ((t_s, f"{n}/100\n") for t_s, n in ((0, 10), (1, 12), (2, 12), (4, 13)))
    assert steps(r"(?P<step>\d+)/", *lines) == [(0, 0.5), (0.5, 1), (1, 4)]


def test_steps_that_are_known_by_a_mean_say_since_when():
    lines = ((1, "step 10\n"), (3, "step 14\n"))
    follower = ProgressFollower(Written(*lines), compile_progress(r"step (?P<step>\d+)"))
    assert {step.known_since_ns for step in follower.poll()} == {S}


def test_a_smaller_number_begins_anew():
    lines = ((t_s, f"{n}/9\n") for t_s, n in ((0, 8), (1, 9), (5, 1), (6, 2)))
    assert steps(r"(?P<step>\d+)/", *lines) == [(0, 1), (5, 6)]


def test_a_bar_that_is_drawn_again_counts_from_when_it_was_written():
    bars = ((t_s, f"\r\x1b[32m{t_s:3}%\x1b[0m| {t_s}/9 [") for t_s in (1, 2, 3))
    assert steps(r"(?P<step>\d+)/9 \[", *bars, (9, "\n")) == [(1, 2), (2, 3)]


def test_colours_are_left_out():
    lines = ((t_s, f"step \x1b[1;32m{t_s}\x1b[0m/9 \x1b]0;title\x07\n") for t_s in (1, 2, 3))
    assert steps(r"step (?P<step>\d+)/9 $", *lines) == [(1, 2), (2, 3)]


def test_a_line_in_parts_counts_from_its_last():
    parts = ((0, "st"), (1, "ep 1"), (2, "2\nstep"), (3, " 13"), (5, "\n"))
    assert steps(r"step (?P<step>\d+)", *parts) == [(2, 3)]


def test_lines_of_two_streams_do_not_mix():
    parts = ((0, "step 1\nst", 1), (1, "error\n", 2), (2, "ep 2\n", 1))
    assert steps(r"step \d", *parts) == [(0, 2)]


def test_after_a_gap_the_first_line_only_begins():
    written = Written((0, "step\n"), (1, "step\n"), (5, "step\n"), (6, "step\n"))
    parts = written.poll()
    parts[2] = parts[2]._replace(is_after_gap=True)
    written.poll = lambda: parts
    follower = ProgressFollower(written, compile_progress("step"))
    assert [step.start_ns / S for step in follower.poll()] == [0, 5]


def test_a_jump_is_another_count():
    lines = ((t_s, f"{n}/x\n") for t_s, n in ((0, 1), (1, 10**9), (2, 10**9 + 1)))
    assert steps(r"(?P<step>\d+)/", *lines) == [(1, 2)]


def test_numbers_as_people_write_them():
    lines = ((0, "1,199 steps\n"), (1, "1,200 steps\n"), (2, "many steps\n"))
    assert steps(r"(?P<step>[\w,]+) steps", *lines) == [(0, 1)]


@pytest.mark.parametrize("expression", ["(", "", "x*", "(?P<step>[0-9]*)"])
def test_what_cannot_tell_a_step_is_refused(expression):
    with pytest.raises(UsageError):
        compile_progress(expression)
