"""Steps of a job from its marks, while it writes them.

"Broken" names what was broken in ``steps.py`` to see a test fail.
"""

import subprocess
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.hooks.marks import RECORD_BYTES, Marks
from joulewise.optimise.live.steps import StepFollower
from joulewise.store.spans import read_spans
from joulewise.units import NS_PER_S
from tests.optimise.live.live_jobs import live_job, poll_until

S = NS_PER_S


def marks_of(folder, rank=None, size=2, pid=None):
    """A process's marks; those of a rank know what torchrun told it."""
    with pytest.MonkeyPatch.context() as patch:
        if rank is not None:
            result = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "MASTER_PORT": 1}
            for name, value in result.items():
                patch.setenv(name, str(value))
            patch.setattr("os.getpid", lambda: pid or 1000 + rank)
        marks = Marks(folder)
        marks.whole("start", 0, 1)
    return marks


def mark(marks, name, start_ns, end_ns, index=None, **more):
    marks.end(marks.begin(name, index, t_ns=start_ns, **more), end_ns)


def pairs(steps):
    return [(step.start_ns, step.end_ns) for step in steps]


def test_a_step_lasts_to_the_start_of_the_next(tmp_path):
    """Broken: it ends at its own end mark."""
    follower, marks = StepFollower(tmp_path), marks_of(tmp_path)
    for start_ns in (10, 20, 30):
        mark(marks, "step", start_ns, start_ns + 6)
    assert pairs(follower.poll()) == [(10, 20), (20, 30)]
    assert follower.poll() == []
    mark(marks, "step", 40, 46)
    assert pairs(follower.poll()) == [(30, 40)]
    assert (follower.ranks, follower.is_inferred) == (1, False)


@pytest.mark.parametrize("name", ["validation", "checkpoint", "epoch"])
def test_before_an_interruption_it_lasts_to_its_own_end(tmp_path, name):
    """Broken: events between two steps ignored in ``_finish_pending``."""
    follower, marks = StepFollower(tmp_path), marks_of(tmp_path)
    mark(marks, "step", 10, 16)
    mark(marks, name, 17, 25)
    mark(marks, "step", 30, 36)
    mark(marks, "step", 40, 46)
    assert pairs(follower.poll()) == [(10, 16), (30, 40)]


def test_the_end_of_an_epoch_tells_its_last_step_at_once(tmp_path):
    """Broken: ``_note`` waits for the next step."""
    follower, marks = StepFollower(tmp_path), marks_of(tmp_path)
    epoch = marks.begin("epoch", 0, t_ns=5)
    mark(marks, "step", 10, 16)
    assert follower.poll() == []
    marks.end(epoch, 18)
    assert pairs(follower.poll()) == [(10, 16)]


def test_a_validation_that_another_file_of_the_process_tells(tmp_path):
    """``joulewise.span`` and the hooks write a file each. Broken: records taken file by file."""
    follower, hooks, own = StepFollower(tmp_path), marks_of(tmp_path), marks_of(tmp_path)
    mark(own, "validation", 17, 25)
    for start_ns in (10, 30, 40):
        hooks.whole("step", start_ns, start_ns + 6)
    assert pairs(follower.poll()) == [(10, 16), (30, 40)]


def test_spans_within_steps_change_nothing(tmp_path):
    """Broken: ``_is_inner`` always false."""
    follower, marks = StepFollower(tmp_path), marks_of(tmp_path)
    for start_ns in (10, 20, 30):
        step = marks.begin("step", t_ns=start_ns)
        mark(marks, "forward", start_ns, start_ns + 3)
        late = marks.begin("save in the background", t_ns=start_ns + 4)
        mark(marks, "step", start_ns + 4, start_ns + 5)  # one within it
        marks.end(step, start_ns + 6)
        marks.end(late, start_ns + 8)
    assert pairs(follower.poll()) == [(10, 20), (20, 30)]


def test_a_span_between_all_steps_is_part_of_the_loop(tmp_path):
    """Broken: ``names_in_loop`` empty. The first steps cannot know it yet."""
    follower, marks = StepFollower(tmp_path), marks_of(tmp_path)
    for number in range(12):
        mark(marks, "data", 10 * number + 2, 10 * number + 4)
        mark(marks, "step", 10 * number + 5, 10 * number + 9)
    mark(marks, "checkpoint", 119, 124)
    mark(marks, "data", 125, 126)
    mark(marks, "step", 130, 136)
    lengths_ns = [step.end_ns - step.start_ns for step in follower.poll()]
    assert lengths_ns == [4] * 4 + [10] * 7 + [4]


def test_a_figure_that_is_called_step_is_no_step(tmp_path):
    """Broken: figures are not left out in ``_Process.add``."""
    follower, marks = StepFollower(tmp_path), marks_of(tmp_path)
    for start_ns in (10, 20, 30):
        mark(marks, "step", start_ns, start_ns + 6, guessed=True)
        marks.figure("step", 5.0, t_ns=start_ns + 3)
    assert pairs(follower.poll()) == [(10, 20), (20, 30)]
    assert follower.is_inferred


def test_a_step_that_was_cut_does_not_count(tmp_path):
    """Broken: the flag ignored."""
    follower, marks = StepFollower(tmp_path), marks_of(tmp_path)
    mark(marks, "step", 10, 16)
    marks.end(marks.begin("step", t_ns=20), 23, cut=True)
    mark(marks, "step", 30, 36)
    mark(marks, "step", 40, 46)
    assert pairs(follower.poll()) == [(10, 20), (30, 40)]


def test_guessed_steps_count_until_the_program_marks_its_own(tmp_path):
    """``_counts`` and ``is_outdated`` each hold it alone."""
    follower, hooks, own = StepFollower(tmp_path), marks_of(tmp_path), marks_of(tmp_path)
    for start_ns in (10, 20, 30):
        hooks.whole("step", start_ns, start_ns + 10, guessed=True)
    assert pairs(follower.poll()) == [(10, 20), (20, 30)]
    assert follower.is_inferred
    for start_ns in (40, 50, 60):
        mark(own, "step", start_ns, start_ns + 8)
        hooks.whole("step", start_ns, start_ns + 10, guessed=True)
    assert pairs(follower.poll()) == [(40, 50), (50, 60)]
    assert not follower.is_inferred


def test_a_guessed_step_with_a_checkpoint_in_it_is_left_out(tmp_path):
    """Broken: ``_is_interrupted_within`` always false."""
    follower, hooks, own = StepFollower(tmp_path), marks_of(tmp_path), marks_of(tmp_path)
    mark(own, "checkpoint", 32, 38)
    for start_ns in (10, 20, 30, 40, 50):
        hooks.whole("step", start_ns, start_ns + 10, guessed=True)
    assert pairs(follower.poll()) == [(10, 20), (20, 30), (40, 50)]


def test_ranks_are_one_job_from_the_first_start_to_the_last_end(tmp_path):
    """Broken: ``take_steps`` waits for nobody."""
    follower = StepFollower(tmp_path)
    zero, one = (marks_of(tmp_path, rank) for rank in (0, 1))
    for number in range(3):
        mark(zero, "step", 100 * number + 10, 100 * number + 60, number)
        mark(one, "step", 100 * number + 12, 100 * number + 80, number)
    assert pairs(follower.poll()) == [(10, 112), (112, 212)]
    assert follower.ranks == 2
    mark(zero, "step", 310, 360, 3)
    assert follower.poll() == []
    mark(one, "step", 312, 380, 3)
    assert pairs(follower.poll()) == [(212, 312)]


def test_what_only_one_rank_does_between_steps_is_in_no_step(tmp_path):
    """Rank 0 alone writes a checkpoint. Broken: ``_merge`` takes the latest next start."""
    follower = StepFollower(tmp_path)
    zero, one = (marks_of(tmp_path, rank) for rank in (0, 1))
    mark(zero, "step", 10, 60)
    mark(zero, "checkpoint", 70, 190)
    mark(one, "step", 10, 62)
    for marks in (zero, one):
        mark(marks, "step", 200, 260)
        mark(marks, "step", 300, 360)
    assert pairs(follower.poll()) == [(10, 62), (200, 300)]


def test_a_rank_that_made_fewer_steps_shifts_nothing(tmp_path):
    """Broken: steps matched by their order instead of by ``key``."""
    follower = StepFollower(tmp_path)
    zero, one = (marks_of(tmp_path, rank) for rank in (0, 1))
    for epoch in range(2):
        for index in range(3):
            start_ns = 1000 * epoch + 100 * index
            mark(zero, "step", start_ns + 10, start_ns + 60, index)
            if index < 2:
                mark(one, "step", start_ns + 12, start_ns + 80, index)
        mark(zero, "validation", 1000 * epoch + 400, 1000 * epoch + 500)
        mark(one, "validation", 1000 * epoch + 400, 1000 * epoch + 500)
    steps = pairs(follower.poll())
    assert [start_ns for start_ns, _ in steps] == [10, 112, 210, 1010, 1112]


def test_a_rank_that_falls_silent_is_lost(tmp_path):
    """Broken: ``has_lost_rank`` compares with the present only."""
    follower = StepFollower(tmp_path)
    zero, one = (marks_of(tmp_path, rank) for rank in (0, 1))
    for number in range(40):
        mark(zero, "step", number * S, number * S + S // 2, number)
        if number < 5:
            mark(one, "step", number * S, number * S + S // 2, number)
    follower.poll()
    assert "rank 1" in follower.has_lost_rank(40 * S)
    for number in range(5, 40):
        mark(one, "step", number * S, number * S + S // 2, number)
    assert len(follower.poll()) == 35
    assert not follower.has_lost_rank(1000 * S)  # all are silent: a long validation


def test_a_rank_whose_process_is_gone_is_lost_soon(tmp_path):
    """Broken: ``_is_lost`` waits for the same silence whether the process lives or not."""
    follower = StepFollower(tmp_path)
    zero = marks_of(tmp_path, 0)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        one = marks_of(tmp_path, 1, pid=process.pid)
        for number in range(30):
            mark(zero, "step", number * S // 10, number * S // 10 + S // 20, number)
            if number < 10:
                mark(one, "step", number * S // 10, number * S // 10 + S // 20, number)
        follower.poll()
        assert not follower.has_lost_rank(3 * S)  # it lives, and may be writing a checkpoint
    assert "rank 1 has ended" in follower.has_lost_rank(3 * S)
    for number in range(10, 25):
        mark(one, "step", number * S // 10, number * S // 10 + S // 20, number)
    follower.poll()
    assert not follower.has_lost_rank(3 * S)  # all of them end, and the other is a moment later


def test_a_disk_that_was_full_is_told(tmp_path):
    follower, marks = StepFollower(tmp_path), marks_of(tmp_path)
    for start_ns in (10, 20, 30):
        mark(marks, "step", start_ns, start_ns + 6)
    follower.poll()
    (path,) = tmp_path.glob("*.marks")
    path.with_suffix(".lost").touch()
    follower.poll()
    assert "full disk" in follower.has_lost_rank(40)


def test_ranks_that_are_started_again_are_followed(tmp_path, monkeypatch):
    follower, first = StepFollower(tmp_path), marks_of(tmp_path, 0, size=2)
    for start_ns in (10, 20, 30):
        mark(first, "step", start_ns, start_ns + 6, start_ns // 10)
    assert len(follower.poll()) == 2
    monkeypatch.setattr("os.getpid", lambda: 77)
    with monkeypatch.context() as patch:
        for name, value in {"RANK": 0, "WORLD_SIZE": 2, "MASTER_PORT": 1}.items():
            patch.setenv(name, str(value))
        again = Marks(tmp_path)
        for start_ns in (100, 110, 120):
            mark(again, "step", start_ns, start_ns + 6, start_ns // 10)
    assert pairs(follower.poll()) == [(100, 110), (110, 120)]


def test_a_program_that_is_started_again_is_followed_once_the_first_is_silent(
    tmp_path, monkeypatch
):
    """Broken: ``_drop_steps`` not called."""
    follower, first = StepFollower(tmp_path), marks_of(tmp_path)
    for number in range(3):
        mark(first, "step", number * S, number * S + S // 2)
    assert len(follower.poll()) == 2
    monkeypatch.setattr("os.getpid", lambda: 78)
    second = Marks(tmp_path)
    for number in (3, 4, 5):
        mark(second, "step", number * S, number * S + S // 2)
    assert follower.poll() == []
    for number in (30, 31, 32):
        mark(second, "step", number * S, number * S + S // 2)
    assert [step.start_ns // S for step in follower.poll()] == [30, 31]


def test_damage_ends_the_steps_and_is_told(tmp_path):
    follower, marks = StepFollower(tmp_path), marks_of(tmp_path)
    mark(marks, "step", 10, 16)
    mark(marks, "step", 20, 26)
    (tmp_path / "1-1.marks").write_bytes(b"no marks" * 20)
    assert pairs(follower.poll()) == [(10, 20)]
    (path,) = (path for path in tmp_path.glob("*.marks") if path.name != "1-1.marks")
    with path.open("ab") as file:
        file.write(b"\xff" * RECORD_BYTES)
    assert follower.poll() == []
    assert "cannot be read" in follower.has_lost_rank(40)


def test_no_folder_and_no_marks_are_no_steps(tmp_path):
    follower = StepFollower(tmp_path / "marks")
    assert (follower.poll(), follower.ranks, follower.has_lost_rank(S)) == ([], 0, "")


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=2, max_size=30),
    ranks=st.integers(1, 3),
    pieces=st.lists(st.integers(1, 400), min_size=1, max_size=8),
)
def test_however_the_files_grow_the_steps_are_the_same(tmp_path_factory, lengths, ranks, pieces):
    """And they fill the time."""
    whole, grown = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("grown")
    for rank in range(ranks):
        marks, t_ns = marks_of(whole, rank if ranks > 1 else None, ranks), 10
        for index, (work_ns, rest_ns) in enumerate(lengths):
            mark(marks, "step", t_ns + rank, t_ns + rank + work_ns, index)
            t_ns += work_ns + rest_ns + ranks
        marks.close()
    expected = pairs(StepFollower(whole).poll())
    assert len(expected) == len(lengths) - 1
    assert all(step[1] == after[0] for step, after in pairwise(expected))
    follower, found = StepFollower(grown), []
    contents = {path.name: path.read_bytes() for path in whole.glob("*.marks")}
    longest_b, size_b, turn = max(map(len, contents.values())), 0, 0
    while size_b < longest_b:
        size_b += pieces[turn % len(pieces)]
        turn += 1
        for name, content in contents.items():
            (grown / name).write_bytes(content[:size_b])
        found += pairs(follower.poll())
    assert found == expected or ranks > 1
    assert sum(end - start for start, end in found) == found[-1][1] - found[0][0]
    assert found[-1] == expected[-1]


def test_only_what_was_appended_is_read(tmp_path, monkeypatch):
    follower, marks = StepFollower(tmp_path), marks_of(tmp_path)
    for number in range(2000):
        mark(marks, "step", 10 * number, 10 * number + 6)
    follower.poll()
    read = []
    decode = "joulewise.optimise.live.steps._decode"
    monkeypatch.setattr(decode, lambda _, records: read.append(len(records)) or iter(()))
    mark(marks, "step", 30_000, 30_006)
    follower.poll()
    assert read == [2]


def test_steps_of_a_real_job_while_it_runs(tmp_path):
    """In real time, against all marks of the run."""
    steps, late_s = [], []
    with live_job(tmp_path) as (run, end):
        follower = StepFollower(run / "marks")

        def poll():
            new = follower.poll()
            late_s.extend((time.monotonic_ns() - step.end_ns) / S for step in new)
            steps.extend(new)

        poll_until(lambda: len(steps) >= 15, poll)
        assert (follower.ranks, follower.is_inferred) == (1, False)
        assert not follower.has_lost_rank(time.monotonic_ns())
        end()
    marked = read_spans(run).named("step")
    assert [step.start_ns for step in steps] == marked.start_ns[: len(steps)].tolist()
    assert [step.end_ns for step in steps] == marked.start_ns[1 : len(steps) + 1].tolist()
