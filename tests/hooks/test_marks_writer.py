"""The writer of marks: what it keeps, and that it never gets in anybody's way."""

import os
import signal
import threading
from pathlib import Path

import pytest

from joulewise.data import WarningCode
from joulewise.hooks.marks import MOST_NAMES, NAME_BYTES, OTHER_NAMES, RECORD_BYTES, Marks
from joulewise.store.spans import read_spans

FULL = Path("/dev/full")


@pytest.fixture
def run(tmp_path):
    (tmp_path / "marks").mkdir()
    return tmp_path


@pytest.fixture
def marks(run):
    writer = Marks(run / "marks")
    yield writer
    writer.close()


def test_no_file_before_the_first_mark(run, marks):
    assert list((run / "marks").iterdir()) == []
    marks.begin("epoch", 0)
    (file,) = (run / "marks").iterdir()
    assert file.name.startswith(f"{os.getpid()}-")
    assert file.stat().st_size % RECORD_BYTES == 0


def test_spans_nest_and_overlap(run, marks):
    outer, first = marks.begin("outer", t_ns=10), marks.begin("first", 7, 9, t_ns=20)
    second = marks.begin("second", t_ns=30)
    marks.end(first, 40)
    marks.end(second, 50)
    marks.end(outer, 60)
    spans = [(s.name, s.index, s.total, s.start_ns, s.end_ns, s.closed) for s in read_spans(run)]
    assert spans == [
        ("outer", None, None, 10, 60, True),
        ("first", 7, 9, 20, 40, True),
        ("second", None, None, 30, 50, True),
    ]


def test_a_second_end_moves_the_first(run, marks):
    token = marks.begin("epoch", t_ns=1)
    marks.end(token, 5)
    marks.end(token, 9)
    (span,) = read_spans(run)
    assert span.end_ns == 9


def test_threads_do_not_mix(run, marks):
    def work(number):
        for index in range(200):
            token = marks.begin(f"thread {number}", index, t_ns=index * 10 + number)
            marks.end(token, index * 10 + number + 5)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table = read_spans(run)
    assert table.closed.all()
    assert set((table.end_ns - table.start_ns).tolist()) == {5}
    for number in range(4):
        assert sorted(table.named(f"thread {number}").index.tolist()) == list(range(200))


@pytest.mark.parametrize("name", ["", "épreuve 試", "a\nb", "x" * NAME_BYTES, "\udcff"])
def test_a_name_may_be_anything(run, marks, name):
    marks.whole(name, 1, 2)
    (span,) = read_spans(run)
    assert span.name == name.encode("utf-8", "replace").decode()


def test_a_long_name_is_cut_between_characters(run, marks):
    marks.whole("試" * 100, 1, 2)
    (span,) = read_spans(run)
    assert span.name == "試" * ((NAME_BYTES - 3) // 3) + "…"


def test_names_without_end_share_one(run, marks):
    for number in range(MOST_NAMES + 5):
        marks.whole(f"name {number}", number, number + 1)
    table = read_spans(run)
    assert len(table) == MOST_NAMES + 5
    assert len(table.named(OTHER_NAMES)) == 5


@pytest.mark.parametrize("wrong", [{"name": None}, {"index": "three"}, {"total": 2**70}])
def test_what_is_no_mark_is_none(run, marks, wrong):
    marks.begin(**{"name": "span", **wrong})
    marks.whole("span", 1, 2)
    assert [span.name for span in read_spans(run)] == ["span"]


def test_where_nothing_can_be_written_it_is_silent(tmp_path):
    marks = Marks(tmp_path / "nowhere")
    marks.end(marks.begin("span"))
    assert marks.silent


@pytest.mark.skipif(not FULL.exists(), reason="no full device")
def test_a_full_disk_silences_it(run, marks):
    marks.whole("before", 1, 2)
    with FULL.open("wb") as full:
        os.dup2(full.fileno(), marks._descriptor)
    marks.whole("after", 3, 4)
    assert marks.silent
    marks.whole("later", 5, 6)
    table = read_spans(run)
    assert [span.name for span in table] == ["before"]
    (warning,) = table.warnings
    assert warning.code is WarningCode.SPANS_LOST


def test_a_disk_that_is_full_from_the_start_is_said(run, marks, monkeypatch):
    monkeypatch.setattr(os, "write", lambda *_: 0)
    marks.whole("span", 1, 2)
    monkeypatch.undo()
    (path,) = (run / "marks").glob("*.lost")
    table = read_spans(run)
    assert [path.stem in warning.message for warning in table.warnings] == [True]


def test_its_descriptor_is_out_of_the_way_of_a_program_that_closes_all(marks):
    marks.whole("span", 1, 2)
    assert marks._descriptor >= 700


def in_fork(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    return pid


# Python 3.12 warns of any fork in a process with threads; pytest-xdist has some.
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_has_a_file_of_its_own_and_ends_nothing_of_its_parent(run, marks):
    token = marks.begin("parent", t_ns=1)

    def work():
        own = marks.begin("child", t_ns=3)
        marks.end(own, 4)
        marks.end(token, 5)

    child = in_fork(work)
    marks.end(token, 9)
    spans = {span.name: span for span in read_spans(run)}
    assert len(list((run / "marks").iterdir())) == 2
    assert (spans["parent"].end_ns, spans["parent"].pid) == (9, os.getpid())
    assert (spans["child"].end_ns, spans["child"].pid) == (4, child)
