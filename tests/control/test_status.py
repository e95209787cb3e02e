"""What is turned now and who sees to it, read from journals of the living and the dead."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from joulewise.control import journal as journal_module
from joulewise.control.holds import Change, Hold, LeaseHolder
from joulewise.control.journal import Journal
from joulewise.control.status import Restorer, await_restored, list_held_settings
from joulewise.data import ControlKind
from joulewise.process.linux import started_ticks
from joulewise.process.state_dir import has_leftovers, may_restore

CHANGE = Change("GPU-1", "gpu0", ControlKind.POWER_LIMIT, 250.0, 150.0)


@pytest.fixture
def dead_pid():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path)
    yield journal
    journal.close(leave=False)


def hold(pid):
    return Hold("1", LeaseHolder(pid, 0, "python", 0.0, started_ticks(pid) or 1), (CHANGE,))


def test_a_living_holder_keeps_its_setting(tmp_path, journal):
    journal.begin(hold(os.getpid()))
    (found,) = list_held_settings(tmp_path)
    assert (found.change, found.keeper) == (CHANGE, Restorer.HOLDER)
    assert not has_leftovers(tmp_path)
    assert await_restored(tmp_path, 10, sleep=pytest.fail)


def test_a_guardian_whose_holder_is_dead_is_waited_for(tmp_path, journal, dead_pid):
    journal.begin(hold(dead_pid))
    assert list_held_settings(tmp_path)[0].keeper is Restorer.GUARDIAN
    assert await_restored(tmp_path, 10, sleep=lambda _: journal.end("1"), now_s=lambda: 0)


def test_patience_has_an_end(tmp_path, journal, dead_pid):
    journal.begin(hold(dead_pid))
    clock_s = iter(range(100))
    assert not await_restored(tmp_path, 10, sleep=lambda _: None, now_s=lambda: next(clock_s))


def test_what_a_killed_guardian_left_is_nobodys(tmp_path, dead_pid):
    journal = Journal(tmp_path)
    journal.begin(hold(dead_pid))
    journal.close(leave=True)
    assert list_held_settings(tmp_path)[0].keeper is Restorer.NOBODY
    assert has_leftovers(tmp_path)


def test_there_need_not_be_a_folder(tmp_path):
    assert not has_leftovers(tmp_path / "nowhere")
    assert list_held_settings(tmp_path / "nowhere") == []


def test_a_pid_that_is_used_again_is_another_process(tmp_path, journal):
    by = replace(hold(os.getpid()).holder, ticks=1)
    journal.begin(Hold("1", by, (CHANGE,)))
    assert list_held_settings(tmp_path)[0].keeper is Restorer.GUARDIAN


def test_what_a_pid_means_in_another_container_nobody_knows(tmp_path, dead_pid, monkeypatch):
    monkeypatch.setattr(journal_module, "pid_namespace", lambda: "pid:[1]")
    theirs = Journal(tmp_path)
    theirs.begin(hold(dead_pid))
    assert list_held_settings(tmp_path)[0].keeper is Restorer.HOLDER
    theirs.close(leave=False)


@pytest.fixture
def open_folder():
    """One that everybody can look into, as nobody can into pytest's."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("is_live", [True, False])
def test_others_who_cannot_open_the_lock_see_whether_the_guardian_lives(open_folder, *, is_live):
    theirs = Journal(open_folder)
    theirs.begin(hold(os.getpid()))
    if not is_live:
        header, rest = theirs.path.read_bytes().split(b"\n", 1)
        dead = {**json.loads(header), "ticks": 1}
        theirs.path.write_bytes(json.dumps(dead).encode() + b"\n" + rest)
    os.seteuid(65534)
    try:
        assert has_leftovers(open_folder) is not is_live
        assert not may_restore(open_folder)
    finally:
        os.seteuid(0)
    theirs.close(leave=False)
