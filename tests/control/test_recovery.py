"""What killed guardians have left is undone, once, by whoever comes next."""

import errno
import fcntl
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from joulewise.cli.restore import command as restore
from joulewise.control import journal
from joulewise.control.claims import Claims
from joulewise.control.guardian import Guardian
from joulewise.control.holds import DeviceRequest, RestoreResult
from joulewise.control.restore import RecoveryReport, recover
from joulewise.process import state_dir
from tests.helpers.failing_gpus import HOLDER, LIMIT, SM, Board, by_uid, kill


@pytest.fixture
def boards():
    return [Board("gpu0", 240.0), Board("gpu1", 260.0)]


@pytest.fixture
def log():
    return []


@pytest.fixture
def run(tmp_path, boards, log):
    return lambda: recover(tmp_path, lambda: by_uid(*boards), log.append, patience_s=0)


def leave(state, boards, *settings):
    """Leases whose holder and guardian are killed."""
    guardian = Guardian(state, boards, lambda _: None)
    for each in settings:
        guardian.lease("anna", HOLDER, [DeviceRequest(board.info.key, each) for board in boards])
    kill(guardian)
    return guardian._journal.path


def ends(reported):
    return {each.outcome.key: each.outcome.end for each in reported.undone}


def edit_header(path, **content):
    header, rest = path.read_bytes().split(b"\n", 1)
    path.write_bytes(json.dumps({**json.loads(header), **content}).encode() + b"\n" + rest)


def test_everything_goes_back_and_the_file_is_gone(tmp_path, boards, run, log):
    leave(tmp_path, boards, {LIMIT: 200, SM: 1000}, {LIMIT: 150})
    assert not run().failed
    assert [board.values for board in boards] == [
        {**boards[0].values, LIMIT: 240.0, SM: None},
        {**boards[1].values, LIMIT: 260.0, SM: None},
    ]
    assert journal.read_journals(tmp_path) == []
    assert f"left by pid {HOLDER.pid}: gpu0's power limit back to 240 W" in log
    assert run().undone == ()


def test_what_a_live_guardian_holds_is_let_be(tmp_path, boards, run):
    guardian = Guardian(tmp_path, boards, lambda _: None)
    guardian.lease("anna", HOLDER, [DeviceRequest("gpu0", {LIMIT: 200})])
    assert run().undone == ()
    assert boards[0].values[LIMIT] == 200


def test_devices_are_not_opened_for_nothing(tmp_path, boards):
    guardian = Guardian(tmp_path, boards, lambda _: None)
    guardian.lease("anna", HOLDER, [DeviceRequest("gpu0", {LIMIT: 200})])
    assert recover(tmp_path, lambda: pytest.fail("opened"), lambda _: None).undone == ()


def test_devices_are_opened_once(tmp_path, boards):
    leave(tmp_path, boards[:1], {LIMIT: 200})
    leave(tmp_path, boards[1:], {LIMIT: 200})
    opened = []
    recover(tmp_path, lambda: opened.append(1) or by_uid(*boards), lambda _: None)
    assert opened == [1]
    assert [board.values[LIMIT] for board in boards] == [240, 260]


def test_a_lost_gpu_does_not_keep_the_others_and_its_turn_comes(tmp_path, boards, run):
    leave(tmp_path, boards, {LIMIT: 200, SM: 1000})
    boards[1].is_lost = True
    result = run()
    assert [each.outcome.key for each in result.failed] == ["gpu1", "gpu1"]
    assert boards[0].values[LIMIT] == 240
    boards[0].values[LIMIT] = 200  # a stranger's
    boards[0].values[SM] = 700
    boards[1].is_lost = False
    assert ends(run()) == {"gpu1": RestoreResult.RESTORED}
    assert boards[0].values[LIMIT] == 200
    assert boards[0].values[SM] == 700
    assert boards[1].values[LIMIT] == 260
    assert journal.read_journals(tmp_path) == []


def test_what_a_stranger_set_is_left_and_forgotten(tmp_path, boards, run):
    leave(tmp_path, boards, {LIMIT: 200})
    boards[0].values[LIMIT] = 225
    assert ends(run()) == {"gpu0": RestoreResult.FOREIGN, "gpu1": RestoreResult.RESTORED}
    assert boards[0].values[LIMIT] == 225
    assert journal.read_journals(tmp_path) == []


def test_a_reboot_has_done_it_already(tmp_path, boards, run, log):
    path = leave(tmp_path, boards, {LIMIT: 200})
    edit_header(path, boot_id="another")
    result = run()
    assert (result.rebooted, result.undone) == (1, ())
    assert boards[0].values[LIMIT] == 200
    assert log == [f"a reboot has undone the settings in {path.name}"]
    assert journal.read_journals(tmp_path) == []


def test_what_another_machine_left_is_its_own(tmp_path, boards, run):
    path = leave(tmp_path, boards, {LIMIT: 200})
    edit_header(path, boot_id="another", node="another")
    assert run() == RecoveryReport()
    assert path.exists()


def test_another_version_checks_after_its_own(tmp_path, boards, run):
    path = leave(tmp_path, boards, {LIMIT: 200})
    edit_header(path, format=2)
    result = run()
    assert (result.unread, result.undone) == ((path,), ())
    assert path.exists()


def test_damage_is_reported_once_and_keeps_nobody(tmp_path, boards, run):
    damaged = leave(tmp_path, boards[:1], {LIMIT: 200})
    damaged.write_bytes(damaged.read_bytes() + b"\0\0\0\n")
    leave(tmp_path, boards[1:], {LIMIT: 200})
    headless = damaged.with_name("0.journal")
    headless.write_bytes(b"junk\n")
    assert set(run().unread) == {damaged, headless}
    assert [board.values[LIMIT] for board in boards] == [240, 260]
    assert run().unread == ()
    assert damaged.with_suffix(".damaged").exists()


def test_a_journal_that_had_not_begun_is_nothing(tmp_path, run):
    (tmp_path / "leases").mkdir()
    (tmp_path / "leases" / "1-0.journal").touch(0o644)
    result = run()
    assert (result.undone, result.unread) == ((), ())
    assert journal.read_journals(tmp_path) == []


def test_a_lock_that_a_stranger_has_on_the_journal_means_nothing(tmp_path, boards, run):
    path = leave(tmp_path, boards, {LIMIT: 200})
    with path.open("rb") as anybody:
        fcntl.flock(anybody, fcntl.LOCK_SH)
        assert set(ends(run()).values()) == {RestoreResult.RESTORED}
    assert [board.values[LIMIT] for board in boards] == [240, 260]


def test_what_another_keeps_to_himself_is_reported(tmp_path, boards, run, monkeypatch):
    path = leave(tmp_path, boards, {LIMIT: 200})
    (leftover,) = journal.read_journals(tmp_path)
    with journal.claim_journal(leftover):
        monkeypatch.setattr(journal, "is_live", lambda _: False)  # it was claimed after that look
        assert run() == RecoveryReport(unclaimed=(path,))
    assert set(ends(run()).values()) == {RestoreResult.RESTORED}


def test_restore_does_not_say_that_nothing_is_left_then(tmp_path, boards, monkeypatch):
    path = leave(tmp_path, boards, {LIMIT: 200})
    (leftover,) = journal.read_journals(tmp_path)
    for module in (journal, state_dir):
        monkeypatch.setattr(module, "is_live", lambda _: False)
    with journal.claim_journal(leftover):
        ran = CliRunner().invoke(restore, env={"JOULEWISE_STATE": str(tmp_path)})
    assert "Nothing is left" not in ran.output
    assert path.name in ran.output.replace("\n", "")
    assert ran.exception.exit_status == 125


@pytest.fixture
def read_only(monkeypatch):
    """As on a file system that the kernel has mounted again, for reading alone."""
    open_file = os.open

    def fail(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def open_to_read(path, flags, *mode, **rest):
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        return fail() if writes else open_file(path, flags, *mode, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_to_read)
        for name in ("unlink", "replace"):
            patch.setattr(type(Path()), name, fail)
        yield


@pytest.mark.parametrize("is_locked", [True, False])
def test_where_nothing_can_be_written_settings_go_back(
    tmp_path, boards, run, log, request, *, is_locked
):
    path = leave(tmp_path, boards, {LIMIT: 200})
    if not is_locked:
        path.with_suffix(".lock").unlink()
        edit_header(path, pid=0, ticks=1)  # our own would be alive
    request.getfixturevalue("read_only")
    result = run()
    assert [board.values[LIMIT] for board in boards] == [240, 260]
    assert set(ends(result).values()) == {RestoreResult.RESTORED}
    (warning,) = result.unremoved
    assert warning.startswith("restored, but the journal cannot be removed: ")
    assert warning in log


def test_without_its_lock_a_journal_of_a_process_that_runs_is_let_be(tmp_path, boards, run):
    leave(tmp_path, boards, {LIMIT: 200}).with_suffix(".lock").unlink()
    assert run() == RecoveryReport()
    assert not state_dir.has_leftovers(tmp_path)


def test_what_somebody_has_changed_since_waits_for_them(tmp_path, boards, run):
    """Who does not know of the leftover: their journals are in another folder."""
    leave(tmp_path, boards, {LIMIT: 220}, {LIMIT: 200})
    other = Guardian(tmp_path / "elsewhere", boards, lambda _: None)
    other.lease("ben", HOLDER, [DeviceRequest("gpu0", {LIMIT: 150})])
    for _ in range(5):  # however often it is asked who they are
        result = run()
    assert ends(result) == {"gpu0": RestoreResult.FAILED}
    assert result.failed[0].outcome.value == 240
    other.drop("ben")
    assert boards[0].values[LIMIT] == 200
    assert ends(run()) == {"gpu0": RestoreResult.RESTORED}
    assert [board.values[LIMIT] for board in boards] == [240, 260]


def test_what_a_stranger_claims_goes_back_all_the_same(tmp_path, boards, run, monkeypatch):
    leave(tmp_path, boards, {LIMIT: 200})
    monkeypatch.setattr(Claims, "take", lambda *_: (1, 4711))
    assert set(ends(run()).values()) == {RestoreResult.RESTORED}
