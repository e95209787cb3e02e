"""What a guardian grants, refuses, rolls back and puts back."""

import errno
import fcntl
import os
import shutil
from dataclasses import replace

import pytest

from joulewise.control import journal
from joulewise.control.guardian import Guardian
from joulewise.control.holds import DeviceRequest, RestoreResult
from joulewise.errors import DeviceError, HeldError, JoulewiseError, OutOfRangeError, UsageError
from tests.helpers.failing_gpus import HOLDER, LIMIT, MEMORY, SM, Board, kill

ANNA, BEN = object(), object()


class Place:
    """Two boards, their guardian, and its log."""

    def __init__(self, state):
        self.state = state
        self.boards = [Board("gpu0", 240.0), Board("gpu1", 260.0)]
        self.log = []
        self.guardian = self.another()

    def another(self):
        return Guardian(self.state, self.boards, self.log.append, patience_s=0)

    def lease(self, *wanted, owner=ANNA, by=None):
        return (by or self.guardian).lease(owner, HOLDER, wanted)

    def release(self, granted, owner=ANNA):
        return self.guardian.release(owner, granted.hold.id)

    @property
    def limits(self):
        return [board.values[LIMIT] for board in self.boards]

    @property
    def written(self):
        return [hold for kept in journal.read_journals(self.state) for hold in kept.holds]


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def watts(value, key="gpu0"):
    return DeviceRequest(key, {LIMIT: value})


def test_changed_and_changed_back(place):
    granted = place.lease(watts(200), DeviceRequest("gpu1", {LIMIT: 150, SM: 1200}))
    assert place.limits == [200, 150]
    assert place.boards[1].values[SM] == 1200
    assert granted.enforced == {"gpu0": {LIMIT: 200}, "gpu1": {LIMIT: 150, SM: 1200}}
    assert place.written == [granted.hold]
    assert {outcome.end for outcome in place.release(granted)} == {RestoreResult.RESTORED}
    assert place.limits == [240, 260]
    assert place.boards[1].values[SM] is None
    assert place.written == []
    place.guardian.close()
    assert journal.read_journals(place.state) == []


def test_it_is_written_before_it_is_done(place, monkeypatch):
    seen = []
    monkeypatch.setattr(
        place.boards[0], "_set", lambda *_: seen.extend(change.value for change in on_disk())
    )

    def on_disk():
        return [change for hold in place.written for change in hold.changes]

    place.lease(watts(200))
    assert seen == [200]


def test_leases_of_one_holder_stack(place):
    outer, inner = place.lease(watts(200)), place.lease(watts(150))
    place.release(inner)
    assert place.limits[0] == 200
    place.release(outer)
    assert place.limits[0] == 240


def test_released_out_of_order_it_is_the_last_that_goes_back(place):
    outer, inner = place.lease(watts(200)), place.lease(watts(150))
    assert place.release(outer) == []
    assert place.limits[0] == 150
    (hold,) = place.written
    assert (hold.id, hold.changes[0].before) == (inner.hold.id, 240)
    place.release(inner)
    assert place.limits[0] == 240


def test_what_a_stranger_sets_between_two_leases_stays_in_any_order(place):
    outer = place.lease(watts(200))
    place.boards[0].values[LIMIT] = 225
    inner = place.lease(watts(150))
    place.release(outer)
    place.release(inner)
    assert place.limits[0] == 225


def test_locks_of_one_holder_stack_though_nobody_reports_them(place):
    outer = place.lease(DeviceRequest("gpu0", {SM: 1000}))
    inner = place.lease(DeviceRequest("gpu0", {SM: 1200}))
    place.release(inner)
    assert place.boards[0].values[SM] == 1000
    place.release(outer)
    assert place.boards[0].values[SM] is None


def test_another_holder_is_reported_who_has_it(place):
    place.lease(watts(200))
    said = rf"^gpu0's power limit is held at 200 W by pid {HOLDER.pid} "
    with pytest.raises(HeldError, match=said) as refused:
        place.lease(watts(150), owner=BEN)
    assert "`joulewise doctor` shows all leases" in refused.value.hint
    place.lease(watts(150, "gpu1"), owner=BEN)
    place.guardian.drop(ANNA)
    assert place.limits == [240, 150]
    place.lease(watts(150), owner=BEN)


def test_another_guardian_is_reported_who_has_it(place):
    place.lease(watts(200))
    other = place.another()
    with pytest.raises(HeldError, match="is held at "):
        place.lease(watts(150), by=other)
    place.guardian.drop(ANNA)
    place.lease(watts(150), by=other)
    with pytest.raises(HeldError, match="is held at "):
        place.lease(watts(200))


def test_what_a_dead_guardian_left_is_undone_before_the_next_lease(place):
    place.lease(watts(200))
    kill(place.guardian)
    other = place.another()
    granted = place.lease(watts(150), by=other)
    assert granted.hold.changes[0].before == 240


def test_no_lease_on_top_of_a_leftover_that_cannot_be_undone(place):
    place.lease(watts(200))
    kill(place.guardian)
    place.boards[0].refuses = {LIMIT}
    other = place.another()
    with pytest.raises(DeviceError, match="could not be restored after its last lease"):
        place.lease(watts(150), by=other)
    place.lease(watts(150, "gpu1"), by=other)


def test_all_or_nothing(place):
    place.boards[1].refuses = {LIMIT}
    with pytest.raises(DeviceError, match=r"gpu1 refuses"):
        place.lease(DeviceRequest("gpu0", {LIMIT: 200, SM: 1000}), watts(150, "gpu1"))
    assert place.limits == [240, 260]
    assert place.boards[0].values[SM] is None
    assert place.written == []
    assert place.guardian.holds(ANNA) == []


def test_a_lock_that_was_refused_is_not_reset(place):
    place.boards[0].values[MEMORY] = 900  # a stranger's, which nobody tells us of
    place.boards[0].refuses = {MEMORY}
    with pytest.raises(DeviceError, match="refuses"):
        place.lease(DeviceRequest("gpu0", {SM: 1000, MEMORY: 1200}))
    assert place.guardian.retry()
    place.boards[0].refuses = set()
    place.guardian.retry()
    assert place.boards[0].values == {LIMIT: 240, SM: None, MEMORY: 900}


def test_a_rollback_that_fails_shows_so_and_is_restored(place):
    board = place.boards[0]
    turn = board._set

    def once(info, value):
        turn(info, value)
        board.refuses = {LIMIT}

    board._set = once
    place.boards[1].refuses = {LIMIT}
    with pytest.raises(
        DeviceError, match=r"gpu1 refuses .*; gpu0's power limit could not be put back to 240 W"
    ):
        place.lease(watts(200), watts(150, "gpu1"))
    assert [hold.changes[0].key for hold in place.written] == ["gpu0"]
    board._set, board.refuses = turn, set()
    assert place.guardian.retry()
    assert place.limits == [240, 260]


@pytest.mark.parametrize(
    ("wanted", "error", "what"),
    [
        ([watts(90)], OutOfRangeError, "100 to 300"),
        ([watts(150, "gpu7")], UsageError, "no device"),
        ([watts(150), watts(200)], UsageError, "twice"),
    ],
)
def test_what_cannot_be_intended_turns_nothing(place, wanted, error, what):
    with pytest.raises(error, match=what) as result:
        place.lease(*wanted)
    assert result.value.hint
    assert [board.turned for board in place.boards] == [[], []]
    assert place.written == []


def test_a_clock_goes_to_the_nearest_and_that_is_shown(place):
    granted = place.lease(DeviceRequest("gpu0", {SM: 1049}))
    assert place.boards[0].values[SM] == 1000
    assert granted.notes == ("gpu0: SM clock set to 1000 MHz, the nearest supported to 1049",)


def test_what_is_the_same_of_several_is_shown_once(place):
    granted = place.lease(DeviceRequest("gpu0", {SM: 1049}), DeviceRequest("gpu1", {SM: 1049}))
    assert granted.notes == ("gpu0, gpu1: SM clock set to 1000 MHz, the nearest supported to 1049",)


def test_what_a_device_makes_of_a_value_is_ours(place):
    place.boards[0].rounds_to_w = 20
    granted = place.lease(watts(207))
    assert place.limits[0] == granted.enforced["gpu0"][LIMIT] == 200
    assert granted.notes == ("gpu0: power limit set to 200 W, rounded from 207",)
    assert place.written == [granted.hold]
    assert place.release(granted)[0].end is RestoreResult.RESTORED
    assert place.limits[0] == 240


def test_who_holds_a_setting_is_shown_before_who_else_uses_the_device(place):
    def refuse(*_):
        raise HeldError("gpu0 is used by pid 7", "wait")

    place.guardian = Guardian(
        place.state, place.boards, place.log.append, overridable_rules=[refuse]
    )
    place.guardian.lease(ANNA, HOLDER, [watts(200)], force=True)
    with pytest.raises(HeldError, match="gpu0's power limit is held at 200 W by"):
        place.lease(watts(150), owner=BEN)
    with pytest.raises(HeldError, match="used by"):
        place.lease(watts(150, "gpu1"), owner=BEN)


def test_what_cannot_be_read_is_not_changed(place):
    place.boards[0].is_lost = True
    with pytest.raises(DeviceError, match="gpu0's power limit cannot be read: gpu0 is lost"):
        place.lease(watts(200))
    assert place.written == []


def test_a_lost_gpu_does_not_keep_the_others_and_is_restored(place):
    place.lease(watts(200), watts(150, "gpu1"))
    place.boards[1].is_lost = True
    outcomes = {outcome.key: outcome for outcome in place.guardian.drop(ANNA)}
    assert outcomes["gpu0"].end is RestoreResult.RESTORED
    assert (outcomes["gpu1"].end, outcomes["gpu1"].reason) == (RestoreResult.FAILED, "gpu1 is lost")
    assert [change.key for hold in place.written for change in hold.changes] == ["gpu1"]
    place.boards[0].values[LIMIT] = 200  # by a stranger, who happens to like it
    assert not place.guardian.retry()
    place.boards[1].is_lost = False
    assert place.guardian.retry()
    assert place.limits == [200, 260]
    assert sum("could not" in line for line in place.log) == 1


def test_what_is_free_by_the_journal_can_be_had(place, elsewhere, monkeypatch):
    """Whoever waits for a control looks there."""
    granted = place.lease(watts(200))
    had = []
    end = journal.Journal.end

    def look(ours, hold_id):
        had.append(place.lease(watts(150), by=elsewhere))
        end(ours, hold_id)

    monkeypatch.setattr(journal.Journal, "end", look)
    place.release(granted)
    assert len(had) == 1


def test_what_another_left_goes_back_without_being_requested_for(place, tmp_path):
    now_s = [0.0]
    found = {}
    dead = place.another()
    dead.lease(ANNA, HOLDER, [watts(200), watts(150, "gpu1")])
    kill(dead)
    (gpu0, gpu1), log = place.boards, []
    service = Guardian(tmp_path, [gpu0], log.append, find=lambda: found, now_s=lambda: now_s[0])
    service.retry()
    assert place.limits == [200, 150]
    for now_s[0] in (10.0, 20.0, 30.0):
        service.retry()
        assert place.limits == [240, 150]
    assert sum("the device is not there" in line for line in log) == 1
    found[gpu1.info.uid] = gpu1
    now_s[0] = 40.0
    service.retry()
    assert place.limits == [240, 260]
    assert place.written == []


def test_nobody_can_drown_what_others_did(place):
    other = replace(HOLDER, uid=4711)
    for _ in range(300):
        place.release(place.lease(watts(200)))
    place.guardian.lease(BEN, other, [watts(150)])
    place.guardian.drop(BEN)
    place.guardian.close()
    result = [line for line in place.log if "4711" in line]
    assert [line.rpartition(": ")[2] for line in result] == [
        "gpu0's power limit from 240 W to 150 W",
        "gpu0's power limit back to 240 W",
    ]
    assert len(place.log) == 203
    assert place.log[-1].startswith("and 400 more of user ")


def test_what_is_wrong_is_reported_however_much_there_was(place):
    for _ in range(300):
        place.release(place.lease(watts(200)))
    granted = place.lease(watts(200))
    place.boards[0].values[LIMIT] = 225
    place.release(granted)
    assert "which joulewise did not set" in place.log[-1]


def test_what_cannot_be_restored_stays_in_the_journal(place):
    place.lease(watts(200))
    place.boards[0].refuses = {LIMIT}
    place.guardian.drop(ANNA)
    place.guardian.close()
    assert [hold.changes[0].before for hold in place.written] == [240]


def test_an_outer_lease_that_ends_while_the_inner_is_restored_goes_under_it(place):
    outer, inner = place.lease(watts(200)), place.lease(watts(150))
    place.boards[0].refuses = {LIMIT}
    assert place.release(inner)[0].end is RestoreResult.FAILED
    place.boards[0].refuses = set()
    place.release(outer)
    assert place.guardian.retry()
    assert place.limits[0] == 240


def test_what_a_stranger_set_is_reported_once_and_left(place):
    granted = place.lease(watts(200))
    place.boards[0].values[LIMIT] = 225
    (outcome,) = place.release(granted)
    assert (outcome.end, outcome.found) == (RestoreResult.FOREIGN, 225)
    assert place.guardian.retry()
    assert place.limits[0] == 225
    assert place.written == []


def test_a_full_disk_is_met_before_anything_is_changed(place, monkeypatch):
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with pytest.raises(JoulewiseError, match="No space left") as result:
        place.lease(watts(200))
    assert "nothing was changed" in result.value.hint
    assert place.limits == [240, 260]
    assert place.guardian.holds(ANNA) == []


def test_a_full_disk_does_not_keep_a_setting_from_going_back(place, monkeypatch):
    outer, inner = place.lease(watts(200)), place.lease(watts(150))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda *_: 0)
        place.release(outer)
        place.release(inner)
    assert place.limits[0] == 240


def test_a_lease_of_someone_else_is_not_ours_to_end(place):
    granted = place.lease(watts(200))
    with pytest.raises(UsageError, match="no lease"):
        place.release(granted, owner=BEN)
    assert place.limits[0] == 200


@pytest.fixture
def elsewhere(place, tmp_path):
    """A guardian of the same boards with another state folder."""
    return Guardian(tmp_path / "elsewhere", place.boards, place.log.append, patience_s=0)


def test_a_setting_is_held_whatever_the_state_folder(place, elsewhere):
    place.lease(watts(200))
    with pytest.raises(HeldError, match=rf"^gpu0's power limit is held by pid {os.getpid()} of "):
        place.lease(watts(150), by=elsewhere)
    place.lease(watts(150, "gpu1"), by=elsewhere)
    place.guardian.drop(ANNA)
    place.lease(watts(150), by=elsewhere)
    elsewhere.drop(ANNA)
    assert place.limits == [240, 260]


def test_what_was_refused_is_not_claimed(place, elsewhere):
    place.lease(watts(200, "gpu1"))
    with pytest.raises(HeldError, match="gpu1"):
        place.lease(watts(150), watts(150, "gpu1"), by=elsewhere)
    place.lease(watts(150))


def test_a_setting_that_could_not_be_put_back_stays_claimed(place, elsewhere):
    granted = place.lease(watts(200))
    place.boards[0].refuses = {LIMIT}
    place.release(granted)
    with pytest.raises(HeldError, match="gpu0"):
        place.lease(watts(150), by=elsewhere)
    place.boards[0].refuses = set()
    assert place.guardian.retry()
    place.lease(watts(150), by=elsewhere)


def test_what_a_stopped_process_puts_back_is_refused_and_the_rest_goes_on(place):
    by = replace(HOLDER, ticks=HOLDER.ticks + 1)  # as of a pid that is used again
    place.guardian.lease(ANNA, by, [watts(200)])
    kill(place.guardian)
    (leftover,) = journal.read_journals(place.state)
    with journal.claim_journal(leftover):
        other = place.another()
        with pytest.raises(HeldError, match="gpu0's power limit is being restored after pid"):
            place.lease(watts(150), by=other)
        place.lease(watts(150, "gpu1"), by=other)


@pytest.mark.parametrize("delete", [shutil.rmtree, lambda folder: empty(folder, "*.lock")])
def test_a_journal_that_somebody_deletes_is_written_again_before_the_next_lease(place, delete):
    first = place.lease(watts(200))
    delete(place.state / "leases")
    second = place.lease(watts(150, "gpu1"))
    assert place.written == [first.hold, second.hold]
    (kept,) = journal.read_journals(place.state)
    assert kept.is_live
    assert kept.path.with_suffix(".lock").exists()


def test_a_journal_that_somebody_deletes_is_written_again_after_a_while(place):
    granted = place.lease(watts(200))
    shutil.rmtree(place.state)
    place.guardian.retry()
    assert place.written == [granted.hold]
    place.release(granted)
    place.guardian.close()
    assert list((place.state / "leases").iterdir()) == []


def empty(folder, pattern):
    for path in folder.glob(pattern):
        path.unlink()


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.ENOSPC, "free some disk space"),
        (errno.EROFS, "mount its file system for writing"),
        (errno.EACCES, "make that folder writable"),
        (errno.ENOLCK, "mount its file system with locks"),
    ],
)
def test_what_keeps_a_journal_from_being_written_is_shown(place, monkeypatch, number, cure):
    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(JoulewiseError, match=os.strerror(number)) as result:
        place.lease(watts(200))
    assert cure in result.value.hint
    assert place.limits == [240, 260]
    assert list((place.state / "leases").iterdir()) == []
