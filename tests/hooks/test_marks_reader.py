"""Reading marks back: ranks, damage, unfinished spans, and following them as they come."""

import os
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.data import WarningCode
from joulewise.hooks.marks import MAGIC, MARK_FORM, NONE, RECORD_BYTES, WHOLE, Marks
from joulewise.hooks.ranks import find_rank
from joulewise.store.spans import SpanFollower, read_spans


@pytest.fixture
def run(tmp_path):
    (tmp_path / "marks").mkdir()
    return tmp_path


def write(run, spans, **environ):
    """A process's marks, with what its launcher told it in the environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environ.items():
            patch.setenv(name, str(value))
        marks = Marks(run / "marks")
        for name, index, start_ns, end_ns in spans:
            token = marks.begin(name, index, t_ns=start_ns)
            if end_ns is not None:
                marks.end(token, end_ns)
        marks.close()
    return max((run / "marks").iterdir(), key=lambda path: int(path.stem.partition("-")[2]))


def rank(number, size=2, **more):
    return {"RANK": number, "WORLD_SIZE": size, "LOCAL_RANK": number, "MASTER_PORT": 1, **more}


def seen(run):
    return [(s.name, s.index, s.start_ns, s.end_ns) for s in read_spans(run)]


def test_a_run_without_marks_has_no_spans(tmp_path):
    table = read_spans(tmp_path)
    assert (len(table), list(table), table.warnings) == (0, [], ())


def test_what_never_ended_ends_with_the_last_sign_of_life(run):
    write(run, [("training", 0, 10, None), ("epoch", 0, 11, 20), ("epoch", 1, 21, None)])
    spans = list(read_spans(run))
    assert [(s.end_ns, s.closed) for s in spans] == [(21, False), (20, True), (21, False)]


def test_what_was_broken_off_has_its_end_and_is_not_closed(run):
    marks = Marks(run / "marks")
    marks.end(marks.begin("epoch", 0, t_ns=10), 20)
    marks.end(marks.begin("epoch", 1, t_ns=20), 25, cut=True)
    marks.end(marks.begin("save", t_ns=30), 40)
    table = read_spans(run)
    assert [(s.end_ns, s.closed) for s in table] == [(20, True), (25, False), (40, True)]
    assert table.ended.all()
    assert [(s.index, s.closed) for s in SpanFollower(run / "marks").poll()] == [
        (0, True),
        (1, False),
    ]


def test_ranks_of_a_job_are_one(run):
    write(run, [("epoch", 0, 10, 20), ("epoch", 1, 21, 30), ("save", None, 30, 31)], **rank(0))
    write(run, [("epoch", 0, 9, 21), ("epoch", 1, 22, 29)], **rank(1))
    assert seen(run) == [("epoch", 0, 9, 21), ("epoch", 1, 21, 30), ("save", None, 30, 31)]
    assert {span.pid for span in read_spans(run)} == {os.getpid()}


def test_a_span_is_closed_when_all_its_ranks_closed_it(run):
    write(run, [("epoch", 0, 10, 20)], **rank(0))
    write(run, [("epoch", 0, 10, None)], **rank(1))
    (span,) = read_spans(run)
    assert not span.closed


def test_what_repeats_goes_first_with_first(run):
    for number in (0, 1):
        write(
            run, [("load", None, 10 + number, 15), ("load", None, 20, 25 + number)], **rank(number)
        )
    assert seen(run) == [("load", None, 10, 15), ("load", None, 20, 26)]


def test_jobs_stay_apart(run):
    for job, start in (("one", 10), ("two", 12)):
        for number in (0, 1):
            result = rank(number, TORCHELASTIC_RUN_ID=job)
            write(run, [("epoch", 0, start, start + 5 + number)], **result)
    assert seen(run) == [("epoch", 0, 10, 16), ("epoch", 0, 12, 18)]


def test_one_job_after_the_other_on_one_port_stay_apart(run):
    for start in (10, 100):
        for number in (0, 1):
            write(run, [("epoch", 0, start + number, start + 5)], **rank(number))
    assert seen(run) == [("epoch", 0, 10, 15), ("epoch", 0, 100, 105)]


def test_processes_that_have_nothing_to_do_with_each_other_stay_apart(run):
    write(run, [("epoch", 0, 10, 20)])
    write(run, [("epoch", 0, 11, 19)])
    assert seen(run) == [("epoch", 0, 10, 20), ("epoch", 0, 11, 19)]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (0, 1, 0)),
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, (3, 8, 1)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2, 1)),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "2"}, (1, 2, 1)),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}, (2, 4, 0)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (0, 1, 0)),
        ({"RANK": "x", "WORLD_SIZE": "2"}, (0, 1, 0)),
    ],
)
def test_a_rank_is_what_the_launcher_says(environ, expected):
    assert find_rank(environ)[:3] == expected


def test_what_is_told_counts_before_what_is_guessed(run):
    follower = SpanFollower(run / "marks")
    by_hand, hooks = Marks(run / "marks"), Marks(run / "marks")
    for index in range(2):
        result = by_hand.begin("epoch", index, 2)
        guess = hooks.begin("epoch", index, guessed=True)
        hooks.whole("step", 1, 2, index, guessed=True)
        hooks.end(guess)
        by_hand.end(result)
        assert [span.total for span in follower.poll()] == [2]
    by_hand.close()
    hooks.close()
    table = read_spans(run)
    assert table.named("epoch").total.tolist() == [2, 2]
    assert table.named("step").index.tolist() == [0, 1]


def test_half_a_record_at_the_end_does_not_count_and_is_said(run):
    path = write(run, [("epoch", 0, 10, 20), ("epoch", 1, 30, 40)])
    os.truncate(path, path.stat().st_size - RECORD_BYTES // 2)
    table = read_spans(run)
    assert table.closed.tolist() == [True, False]
    (warning,) = table.warnings
    assert warning.code is WarningCode.SPANS_LOST
    assert "full disk" in warning.message


def test_a_damaged_file_is_read_up_to_the_damage_and_said(run):
    path = write(run, [("epoch", 0, 10, 20), ("epoch", 1, 30, 40)])
    with path.open("r+b") as file:
        file.seek(-2 * RECORD_BYTES, os.SEEK_END)
        file.write(b"\xff" * RECORD_BYTES)
    table = read_spans(run)
    assert table.index.tolist() == [0]
    assert [warning.code for warning in table.warnings] == [WarningCode.SPANS_LOST]


@pytest.mark.parametrize("content", [b"\x89PNG" + bytes(60), b"\x4a\x01\x63\x00" + bytes(44)])
def test_a_foreign_file_is_left_out_and_said(run, content):
    write(run, [("epoch", 0, 10, 20)])
    (run / "marks" / "1-1.marks").write_bytes(content)
    (run / "marks" / "2-2.marks").touch()
    table = read_spans(run)
    assert len(table) == 1
    assert [warning.code for warning in table.warnings] == [WarningCode.SPANS_LOST]
    assert SpanFollower(run / "marks").poll() == list(table)


@settings(max_examples=30, deadline=None)
@given(
    ranks=st.integers(1, 3),
    spans=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 50), st.integers(0, 50)),
        min_size=1,
        max_size=20,
    ),
)
def test_no_time_is_lost_or_made_in_the_merge(tmp_path_factory, ranks, spans):
    run = tmp_path_factory.mktemp("run")
    (run / "marks").mkdir()
    spans = sorted(("s", index, start, start + long) for index, start, long in spans)
    for number in range(ranks):
        shifted = [(name, i, start + number, end + number) for name, i, start, end in spans]
        write(run, shifted, **rank(number, ranks))
    table = read_spans(run)
    assert len(table) == len(spans)
    assert np.array_equal(np.sort(table.start_ns), sorted(start for *_, start, _ in spans))
    assert table.end_ns.sum() == sum(end + ranks - 1 for *_, end in spans)


def test_a_million_steps_are_columns(run):
    marks = Marks(run / "marks")
    marks.whole("step", 0, 5, 0)
    (path,) = (run / "marks").iterdir()
    content = path.read_bytes()
    path.write_bytes(content + content[-RECORD_BYTES:] * 999_999)
    marks.close()
    table = read_spans(run)
    assert len(table) == 1_000_000
    assert table.end_ns.sum() == 5_000_000
    assert SpanFollower(run / "marks").poll() == []


@pytest.mark.parametrize("ranks", [1, 4])
def test_steps_take_little_memory_while_they_are_read(run, ranks):
    steps = 100_000
    for number in range(ranks):
        path = write(run, [("step", 0, 0, 5)], **rank(number, ranks))
        with path.open("ab") as file:
            for step in range(1, steps):
                file.write(MARK_FORM.pack(MAGIC, WHOLE, 0, 1, step * 9, step * 8, step, NONE, 1, 0))
    tracemalloc.start()
    table = read_spans(run)
    _, peak_b = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(table) == steps
    assert table.index.tolist() == list(range(steps))
    assert peak_b < 100 * steps * ranks + 10_000_000


def test_marks_are_read_alike_whatever_is_read_at_once(run, monkeypatch):
    name = "a long name " * 12
    write(run, [(name, 0, 10, 20), ("epoch", 1, 30, 40), (name, 2, 50, None), ("x", 3, 60, 70)])
    at_once = seen(run)
    for records in (1, 2, 3):
        monkeypatch.setattr("joulewise.store.spans._RECORDS_AT_ONCE", records)
        assert seen(run) == at_once


def test_following_tells_what_began_and_what_ended(run):
    follower = SpanFollower(run / "marks")
    assert follower.poll() == []
    marks = Marks(run / "marks")
    training = marks.begin("training", 0, t_ns=10)
    epoch = marks.begin("epoch", 0, 3, t_ns=11)
    marks.whole("step", 11, 12, 0)
    marks.begin("mine", t_ns=12)
    begun = follower.poll()
    assert [(s.name, s.start_ns, s.total, s.closed) for s in begun] == [
        ("training", 10, None, False),
        ("epoch", 11, 3, False),
    ]
    assert follower.poll() == []
    marks.end(epoch, 20)
    short = marks.begin("epoch", 1, 3, t_ns=21)
    marks.end(short, 22)
    assert [(s.index, s.end_ns, s.closed) for s in follower.poll()] == [
        (0, 20, True),
        (1, 22, True),
    ]
    marks.end(epoch, 25)
    marks.end(training, 30)
    assert [(s.name, s.end_ns) for s in follower.poll()] == [("training", 30), ("epoch", 25)]
    marks.close()


def test_following_waits_for_the_rest_of_a_record(run):
    path = write(run, [("epoch", 0, 10, 20)])
    content = path.read_bytes()
    follower = SpanFollower(run / "marks")
    for size in range(0, len(content), 7):
        path.write_bytes(content[:size])
        assert all(not span.closed for span in follower.poll())
    path.write_bytes(content)
    assert [span.closed for span in follower.poll()] == [True]


def test_following_hears_one_rank_of_a_job(run):
    for number in (0, 1):
        write(run, [("epoch", 0, 10 + number, 20)], **rank(number))
    assert [span.start_ns for span in SpanFollower(run / "marks").poll()] == [10]
