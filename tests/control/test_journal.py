"""What a journal keeps, and who may read, claim and trust it."""

import errno
import fcntl
import json
import os
import shutil
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.control import journal
from joulewise.control.holds import Change, Hold
from tests.helpers.failing_gpus import HOLDER, LIMIT, SM

LOWER = Change("GPU-0", "gpu0", LIMIT, 250.0, 200.0)
LOCK = Change("GPU-0", "gpu0", SM, None, 1200.0)
ONE, TWO = Hold("1", HOLDER, (LOWER, LOCK)), Hold("2", HOLDER, (replace(LOWER, before=200.0),))


@pytest.fixture
def ours(tmp_path):
    made = journal.Journal(tmp_path)
    yield made
    made.close(leave=True)


def abandon(state, *holds):
    """A journal as it is when its guardian was killed."""
    left = journal.Journal(state)
    for hold in holds:
        left.begin(hold)
    left.close(leave=True)
    return left.path


def only(state):
    (kept,) = journal.read_journals(state)
    return kept


def test_what_has_begun_and_not_ended_is_reported_in_its_order(tmp_path, ours):
    for hold in (ONE, TWO):
        ours.begin(hold)
    assert only(tmp_path).holds == (ONE, TWO)
    ours.end("1")
    kept = only(tmp_path)
    assert kept.holds == (TWO,)
    assert kept.is_live
    assert kept.is_of_this_boot
    assert kept.pid == os.getpid()
    assert not kept.is_damaged


def test_a_hold_that_is_written_again_keeps_its_place(tmp_path, ours):
    ours.begin(ONE)
    ours.begin(TWO)
    ours.update(replace(ONE, changes=(LOCK,)))
    assert only(tmp_path).holds == (replace(ONE, changes=(LOCK,)), TWO)


def test_the_file_does_not_grow_for_ever(tmp_path, ours):
    empty_b = ours.path.stat().st_size
    for _ in range(3):
        ours.begin(ONE)
        ours.end("1")
        assert ours.path.stat().st_size == empty_b
    ours.begin(TWO)
    assert only(tmp_path).holds == (TWO,)


def test_nor_while_one_hold_lasts_and_others_come_and_go(tmp_path, ours):
    ours.begin(ONE)
    for number in range(1000):
        ours.begin(replace(TWO, id=f"{number} of many"))
        ours.end(f"{number} of many")
    kept = only(tmp_path)
    assert kept.holds == (ONE,)
    assert kept.is_live
    assert kept.path.stat().st_size < 1 << 17
    assert len(list(kept.path.parent.iterdir())) == 2


def test_without_its_guardian_it_is_a_leftover(tmp_path):
    abandon(tmp_path, ONE)
    assert not only(tmp_path).is_live


def test_a_line_that_is_cut_off_was_not_done(tmp_path):
    path = abandon(tmp_path, ONE, TWO)
    path.write_bytes(path.read_bytes()[:-10])
    kept = only(tmp_path)
    assert kept.holds == (ONE,)
    assert not kept.is_damaged


@pytest.fixture
def full_disk(monkeypatch):
    """Half of a line still fits."""
    write = os.pwrite

    def fill(descriptor, data, offset):
        return write(descriptor, data[: len(data) // 2], offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fill)
        yield patch


def test_on_a_full_disk_nothing_begins_and_no_half_line_is_left(tmp_path, ours, full_disk):
    before = ours.path.read_bytes()
    with pytest.raises(OSError, match="No space") as result:
        ours.begin(ONE)
    assert result.value.errno == errno.ENOSPC
    assert ours.path.read_bytes() == before
    full_disk.undo()
    ours.begin(TWO)
    assert only(tmp_path).holds == (TWO,)


def test_what_was_not_synced_has_not_begun(tmp_path, ours, monkeypatch):
    with monkeypatch.context() as patch:

        def fail(_):
            raise OSError(errno.EIO, "bad disk")

        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="bad disk"):
            ours.begin(ONE)
    assert only(tmp_path).holds == ()


def test_an_end_that_does_not_fit_is_written_before_the_next_begins(tmp_path, ours, full_disk):
    full_disk.undo()
    ours.begin(ONE)
    ours.begin(TWO)
    full_disk.setattr(os, "pwrite", lambda *_: 0)
    ours.update(replace(TWO, changes=(LOWER,)))
    ours.end("1")
    assert only(tmp_path).holds == (ONE, TWO)  # more than is left, and in order
    full_disk.undo()
    three = replace(ONE, id="3")
    ours.begin(three)
    assert only(tmp_path).holds == (replace(TWO, changes=(LOWER,)), three)


def test_the_last_end_needs_no_room(tmp_path, ours, full_disk):
    full_disk.undo()
    ours.begin(ONE)
    full_disk.setattr(os, "pwrite", lambda *_: 0)
    ours.end("1")
    assert only(tmp_path).holds == ()


def test_a_journal_that_cannot_be_begun_leaves_no_file(tmp_path, full_disk):
    del full_disk
    with pytest.raises(OSError, match="No space"):
        journal.Journal(tmp_path)
    assert list((tmp_path / "leases").iterdir()) == []


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_all_may_read_and_the_owner_writes_whatever_the_umask(tmp_path, umask):
    state = tmp_path / "state"
    before = os.umask(umask)
    try:
        path = abandon(state, ONE)
    finally:
        os.umask(before)
    modes = {each: each.stat().st_mode & 0o777 for each in (state, path.parent, path)}
    assert modes == {state: 0o755, path.parent: 0o755, path: 0o644}
    assert path.with_suffix(".lock").stat().st_mode & 0o777 == 0o600  # who can read it can lock it


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_whose_word_is_not_ours_is_not_taken(tmp_path):
    path = abandon(tmp_path, ONE)
    os.chown(path, 4711, -1)
    assert journal.read_journals(tmp_path) == []


def test_what_others_can_write_is_not_taken(tmp_path):
    abandon(tmp_path, ONE).chmod(0o666)
    assert journal.read_journals(tmp_path) == []


def test_what_is_no_file_does_not_stop_the_others(tmp_path):
    path = abandon(tmp_path, ONE)
    (path.parent / "folder.journal").mkdir()
    os.mkfifo(path.parent / "pipe.journal")
    (path.parent / "nowhere.journal").symlink_to("/nonexistent")
    (path.parent / "link.journal").symlink_to(path)
    assert only(tmp_path).path == path


@given(st.binary() | st.recursive(st.none() | st.text() | st.floats(), st.lists).map(json.dumps))
def test_any_line_is_a_hold_or_damage_but_no_crash(tmp_path_factory, junk):
    state = tmp_path_factory.mktemp("state")
    path = abandon(state, ONE)
    line = junk if isinstance(junk, bytes) else junk.encode()
    path.write_bytes(path.read_bytes() + line.replace(b"\n", b" ") + b"\n")
    kept = only(state)
    assert kept.holds == (ONE,)
    assert kept.is_damaged


HOLD = ONE.as_json()
CHANGE = HOLD["changes"][0]


@pytest.mark.parametrize(
    "reported",
    [
        {**HOLD, "changes": 1},
        {**HOLD, "changes": [{**CHANGE, "value": "much"}]},
        {**HOLD, "changes": [{**CHANGE, "before": float("nan")}]},
        {**HOLD, "changes": [{**CHANGE, "before": float("inf")}]},
        {**HOLD, "changes": [{**CHANGE, "knob": "volume"}]},
        {**HOLD, "holder": None},
        {"id": "1"},
        None,
    ],
)
def test_what_is_no_hold_is_damage(tmp_path, reported):
    path = abandon(tmp_path)
    path.write_bytes(path.read_bytes() + json.dumps({"begin": reported}).encode() + b"\n")
    kept = only(tmp_path)
    assert kept.holds == ()
    assert kept.is_damaged


def test_a_leftover_is_claimed_once(tmp_path):
    abandon(tmp_path, ONE)
    found = only(tmp_path)
    with journal.claim_journal(found) as first, journal.claim_journal(found) as second:
        assert first.content.holds == (ONE,)
        assert second is None
    with journal.claim_journal(found) as third:
        third.end([])
    with journal.claim_journal(found) as late:
        assert late is None


def test_who_reads_for_a_moment_does_not_keep_others_from_claiming(tmp_path, monkeypatch):
    path = abandon(tmp_path, ONE)
    with path.with_suffix(".lock").open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        monkeypatch.setattr(journal.time, "sleep", lambda _: fcntl.flock(reader, fcntl.LOCK_UN))
        with journal.claim_journal(only(tmp_path)) as ours:
            assert ours is not None


def test_what_is_left_of_a_leftover_is_all_that_it_reports_of(tmp_path):
    path = abandon(tmp_path, ONE, TWO)
    path.write_bytes(path.read_bytes() + b'{"begin": {"id"')  # half a line
    left = replace(ONE, changes=(LOCK,))
    with journal.claim_journal(only(tmp_path)) as ours:
        ours.end([left])
    kept = only(tmp_path)
    assert kept.holds == (left,)
    assert not kept.is_damaged


def test_where_nothing_of_a_leftover_was_undone_nothing_is_written(tmp_path):
    before = abandon(tmp_path, ONE, TWO).read_bytes()
    with journal.claim_journal(only(tmp_path)) as ours:
        ours.end([ONE, TWO])
    assert only(tmp_path).path.read_bytes() == before


def test_a_lock_without_a_journal_is_swept_away_once_nobody_can_need_it(tmp_path, ours):
    stale, young, locked = (ours.path.with_name(f"{name}.lock") for name in ("a", "b", "c"))
    for path in (stale, young, locked):
        path.touch()
    for path in (stale, locked, ours.path.with_suffix(".lock")):
        os.utime(path, (0, 0))
    with locked.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        journal.remove_stale_locks(tmp_path)
    assert set(ours.path.parent.glob("*.lock")) == {young, locked, ours.path.with_suffix(".lock")}


def test_a_tree_that_is_gone_as_a_whole_is_not_made_again(tmp_path):
    state = tmp_path / "simulated" / "state"
    ours = journal.Journal(state)
    ours.begin(ONE)
    shutil.rmtree(tmp_path / "simulated")
    ours.catch_up()
    with pytest.raises(FileNotFoundError):
        ours.begin(TWO)
    assert list(tmp_path.iterdir()) == []
    ours.close(leave=True)
    assert list(tmp_path.iterdir()) == []
