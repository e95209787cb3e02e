"""Sweeps in a store: made, found, resumed; damage stays where it is; one process at a time."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from joulewise.data.sweeps import WARM_UP, Planned
from joulewise.errors import JoulewiseError, UsageError
from joulewise.store.runs import Skipped, new_run, readable, runs
from joulewise.sweep.lock import LOCK, running
from joulewise.sweep.stored_sweeps import (
    LOGS,
    SWEEP_FILE,
    as_text,
    create_sweep,
    find_sweep,
    find_sweeps_to_continue,
    load_sweep,
    sweeps,
)
from tests.helpers import fake_runner
from tests.helpers.fake_runner import asked, failed, space, trial
from tests.helpers.processes import JOULEWISE, first_line


def made(store, start_ns=1, **more):
    """A sweep of that start and whatever else."""
    folder = create_sweep(store, asked(), space())
    sweep = replace(load_sweep(folder), start_wall_ns=start_ns, **more)
    (folder / SWEEP_FILE).write_text(as_text(sweep))
    return folder


def test_a_new_sweep_has_all_that_was_asked(tmp_path):
    folder = create_sweep(tmp_path, asked(name="mine", seed=7), space())
    sweep = load_sweep(folder)
    assert folder == tmp_path / "sweeps" / sweep.id
    assert (folder / LOGS).is_dir()
    assert type(asked()).from_json(sweep.asked) == asked(name="mine", seed=7)
    assert (sweep.name, sweep.seed, sweep.state, sweep.trials) == ("mine", 7, "interrupted", ())
    assert (sweep.settings, sweep.reference) == (space().settings, space().reference)


class TestState:
    def test_is_running_while_a_process_has_the_lock(self, tmp_path):
        folder = made(tmp_path, state="running")
        with running(folder):
            assert load_sweep(folder).state == "running"
        assert load_sweep(folder).state == "interrupted"

    @pytest.mark.parametrize(
        ("changed", "state"),
        [
            ({}, "running"),
            ({"started_ticks": 1}, "interrupted"),
            ({"boot_id": "another"}, "interrupted"),
            ({"host": "another", "boot_id": "another", "pid": 1}, "running"),
            ({"pid_namespace": "pid:[1]", "started_ticks": 1}, "running"),
            ({"pid": "no number"}, "interrupted"),
        ],
        ids=["ours", "its number is used again", "before a boot", "elsewhere", "container", "odd"],
    )
    def test_running_follows_the_process_that_signed_the_lock(self, tmp_path, changed, state):
        folder = made(tmp_path, state="running")
        with running(folder):
            signed = json.loads((folder / LOCK).read_text())
            (folder / LOCK).write_text(json.dumps({**signed, **changed}))
            assert load_sweep(folder).state == state

    @pytest.mark.parametrize(
        ("silent_s", "state"), [(60, "running"), (120, "interrupted"), (10**7, "interrupted")]
    )
    @pytest.mark.parametrize(
        "changed",
        [{"host": "another", "boot_id": "another", "pid": 1}, {"pid_namespace": "pid:[1]"}],
        ids=["elsewhere", "container"],
    )
    def test_of_one_elsewhere_is_told_by_the_age_of_its_heartbeat(
        self, tmp_path, changed, silent_s, state
    ):
        folder = made(tmp_path, state="running")
        with running(folder):
            signed = json.loads((folder / LOCK).read_text())
            (folder / LOCK).write_text(json.dumps({**signed, **changed}))
            last_s = time.time() - silent_s
            os.utime(folder / LOCK, (last_s, last_s))
            assert load_sweep(folder).state == state

    def test_the_heartbeat_goes_on_while_the_sweep_does(self, tmp_path, monkeypatch):
        monkeypatch.setattr("joulewise.sweep.lock._HEARTBEAT_S", 0.01)
        folder = made(tmp_path, state="running")
        lock = folder / LOCK
        with running(folder):
            signed = lock.read_text()
            os.utime(lock, (0, 0))
            give_up_s = time.monotonic() + 20
            while lock.stat().st_mtime == 0:
                assert time.monotonic() < give_up_s
                time.sleep(0.01)
            assert lock.read_text() == signed
        os.utime(lock, (0, 0))
        time.sleep(0.1)
        assert lock.stat().st_mtime == 0
        assert lock.read_text() == ""

    def test_of_a_killed_one_is_interrupted(self, tmp_path):
        environ = {**os.environ, "JOULEWISE_TEST_KILL_AT": "between-runs:2"}
        killed = subprocess.run(
            [sys.executable, fake_runner.__file__, tmp_path], env=environ, check=False
        )
        assert killed.returncode == -signal.SIGKILL
        assert load_sweep(find_sweep(tmp_path, "last")).state == "interrupted"

    def test_is_not_asked_of_one_that_is_finished(self, tmp_path):
        assert load_sweep(made(tmp_path, state="finished")).state == "finished"


def test_error_where_no_sweep_can_be_created(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("joulewise.sweep.stored_sweeps.replace_file", full)
    with pytest.raises(JoulewiseError, match=r"cannot make a sweep in .*: No space left") as why:
        create_sweep(tmp_path, asked(), space())
    assert why.value.hint.startswith("make room there, or name another with --store")


class TestUnfinished:
    def test_is_the_newest_of_which_the_same_was_asked(self, tmp_path):
        assert find_sweeps_to_continue(tmp_path, [asked()])[0] is None
        made(tmp_path, 2)
        newest = made(tmp_path, 3)
        made(tmp_path, 1)
        create_sweep(tmp_path, asked(repeat=9), space())
        assert find_sweeps_to_continue(tmp_path, [asked()])[0] == newest

    def test_is_none_that_came_to_its_end(self, tmp_path):
        made(tmp_path, state="finished")
        assert find_sweeps_to_continue(tmp_path, [asked()])[0] is None

    @pytest.mark.parametrize(("block", "goes_on"), [(0, True), (WARM_UP, False)])
    def test_is_one_that_came_to_its_end_with_a_failure(self, tmp_path, block, goes_on):
        """A run that only warms up is not tried again."""
        folder = made(tmp_path, state="finished")
        bad = failed(Planned(space().reference, block))
        (folder / SWEEP_FILE).write_text(as_text(replace(load_sweep(folder), trials=(bad,))))
        assert find_sweeps_to_continue(tmp_path, [asked()])[0] == (folder if goes_on else None)

    def test_is_none_of_which_more_was_asked_than_we_know(self, tmp_path):
        payload = json.loads(json.dumps(asked().as_json()))
        made(tmp_path, asked={**payload, "of a newer joulewise": 1})
        assert find_sweeps_to_continue(tmp_path, [asked()])[0] is None


class TestSeveral:
    """A file may ask for several sweeps, one after the other."""

    EVERY = tuple(asked(name=name) for name in "abc")

    def left(self, store, *begun):
        """Each is (which, start, state); what there is to go on with, by its start."""
        for which, start_ns, state in begun:
            payload = json.loads(json.dumps(self.EVERY["abc".index(which)].as_json()))
            made(store, start_ns, asked=payload, state=state)
        found = find_sweeps_to_continue(store, self.EVERY)
        return [folder and load_sweep(folder).start_wall_ns for folder in found]

    def test_none_was_begun(self, tmp_path):
        assert self.left(tmp_path) == [None, None, None]

    def test_what_is_finished_is_not_made_again(self, tmp_path):
        begun = [("a", 1, "finished"), ("b", 2, "running")]
        assert self.left(tmp_path, *begun) == [1, 2, None]

    def test_cut_off_between_two(self, tmp_path):
        assert self.left(tmp_path, ("a", 1, "finished")) == [1, None, None]

    def test_all_came_to_their_end_and_are_asked_for_again(self, tmp_path):
        assert self.left(tmp_path, *((each, 1, "finished") for each in "abc")) == [None] * 3

    def test_what_is_of_an_earlier_time_is_made_again(self, tmp_path):
        before = [(each, 1, "finished") for each in "abc"]
        assert self.left(tmp_path, *before, ("a", 2, "running")) == [2, None, None]
        assert self.left(tmp_path, ("b", 3, "finished")) == [2, 3, None]


class TestFind:
    def test_by_id_beginning_name_path_and_last(self, tmp_path):
        older, newer = made(tmp_path, 1, name="mine"), made(tmp_path, 2, name="")
        named_again = made(tmp_path, 0, name="mine")
        assert find_sweep(tmp_path, older.name) == older
        assert find_sweep(tmp_path, newer.name[:-1]) == newer or older.name[:-1] == newer.name[:-1]
        assert find_sweep(tmp_path, str(newer)) == newer
        assert find_sweep(tmp_path, "last") == newer
        assert find_sweep(tmp_path, "mine") == older != named_again

    def test_says_what_there_is(self, tmp_path):
        with pytest.raises(UsageError, match="there are no sweeps"):
            find_sweep(tmp_path, "last")
        folder = made(tmp_path)
        for which in ("other", ""):
            with pytest.raises(UsageError, match=f"has no sweep '{which}'") as caught:
                find_sweep(tmp_path, which)
            assert folder.name in caught.value.hint

    def test_asks_for_a_name_that_is_near(self, tmp_path):
        made(tmp_path, name="mine")
        with pytest.raises(UsageError) as caught:
            find_sweep(tmp_path, "mien")
        assert caught.value.hint.startswith("did you mean mine? ")

    def test_asks_for_more_of_the_id(self, tmp_path):
        made(tmp_path), made(tmp_path)
        with pytest.raises(UsageError, match="begins 2 sweeps"):
            find_sweep(tmp_path, "2")


def test_a_sweep_can_be_loaded_without_its_trials(tmp_path):
    folder = made(tmp_path)
    with_trials = replace(load_sweep(folder), trials=(trial(Planned(space().reference, 0)),))
    (folder / SWEEP_FILE).write_text(as_text(with_trials))
    ((_, whole),) = sweeps(tmp_path)
    assert len(whole.trials) == 1
    assert load_sweep(folder, has_trials=False) == replace(whole, trials=())


class TestDamage:
    def test_is_told_in_its_place_and_the_others_are_listed(self, tmp_path):
        good, torn, newer = made(tmp_path), made(tmp_path), made(tmp_path)
        (torn / SWEEP_FILE).write_text((torn / SWEEP_FILE).read_text()[:50])
        (newer / SWEEP_FILE).write_text('{"format": 99}')
        (tmp_path / "sweeps" / "20261116-000000-0000").mkdir()  # its maker was killed
        bad = [each for each in sweeps(tmp_path) if isinstance(each, Skipped)]
        assert [path for path, _ in filter(lambda each: each not in bad, sweeps(tmp_path))] == [
            good
        ]
        reasons = {each.path: each.reason for each in bad}
        assert reasons.keys() == {torn, newer}
        assert "not whole JSON" in reasons[torn]
        assert "newer joulewise" in reasons[newer]
        assert find_sweeps_to_continue(tmp_path, [asked()])[0] == good
        with pytest.raises(JoulewiseError, match="not whole JSON"):
            load_sweep(find_sweep(tmp_path, torn.name))


class TestDamagedNewest:
    """``last`` is never another sweep than the newest one, and never none where there is one."""

    def damaged(self, store, second, **more):
        """A sweep of that second of 2026-11-16, 00:00, cut short."""
        folder = self.sound(store, second, **more)
        (folder / SWEEP_FILE).write_text((folder / SWEEP_FILE).read_text()[:50])
        return folder

    def sound(self, store, second, **more):
        folder = made(store, **more)
        return folder.rename(folder.with_name(f"20261116-0000{second:02}-{folder.name[-4:]}"))

    def test_is_named_with_what_to_do_and_the_newest_sound_one(self, tmp_path):
        self.sound(tmp_path, 1)
        sound = self.sound(tmp_path, 2)
        torn = self.damaged(tmp_path, 3)
        with pytest.raises(JoulewiseError) as caught:
            find_sweep(tmp_path, "last")
        assert caught.value.exit_status == 125
        assert torn.name in caught.value.message
        assert "not whole JSON" in caught.value.message
        assert f"rm -r {torn}" in caught.value.hint
        assert caught.value.hint.endswith(f"the newest that can be read is {sound.name}")
        assert "\n" not in caught.value.message + caught.value.hint

    def test_is_named_where_there_is_no_other(self, tmp_path):
        torn = self.damaged(tmp_path, 3)
        with pytest.raises(JoulewiseError, match=torn.name) as caught:
            find_sweep(tmp_path, "last")
        assert caught.value.hint.endswith("no other can")

    def test_an_older_damaged_one_is_not_in_the_way(self, tmp_path):
        self.damaged(tmp_path, 1)
        self.damaged(tmp_path, 2).rename(tmp_path / "sweeps" / "renamed")
        sound = self.sound(tmp_path, 3)
        assert find_sweep(tmp_path, "last") == sound

    def test_a_name_that_is_not_found_may_be_that_of_a_damaged_one(self, tmp_path):
        self.sound(tmp_path, 1)
        torn = self.damaged(tmp_path, 2, name="mine")
        with pytest.raises(UsageError, match=f"not readable: {torn.name}"):
            find_sweep(tmp_path, "mine")


def test_the_runs_of_the_store_are_not_disturbed(tmp_path):
    run = new_run(tmp_path)
    made(tmp_path)
    assert list(runs(tmp_path)) == [run]
    assert [path for path, _ in readable(tmp_path)] == [run]
    payload = [*JOULEWISE, "--store", str(tmp_path), "ls", "--json", "-"]
    listed = json.loads(subprocess.run(payload, capture_output=True, check=True).stdout)
    assert listed["skipped"] == []
    gone = [*JOULEWISE, "--store", str(tmp_path), "rm", "--yes", "sweeps"]
    refused = subprocess.run(gone, capture_output=True, text=True, check=False)
    assert refused.returncode == 2, refused.stderr
    assert (tmp_path / "sweeps").is_dir()


class TestTwoAtOnce:
    def test_the_second_is_told_who_and_since_when(self, tmp_path):
        program = [sys.executable, fake_runner.__file__, str(tmp_path), "--wait"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(program, **pipes) as first:
            try:
                first.stdin.write("\n")
                first.stdin.flush()
                first_line(first.stdout)
                second = subprocess.run(program, capture_output=True, text=True, check=False)
            finally:
                first.kill()
        assert second.returncode == 125
        assert f"is being run by process {first.pid} on " in second.stderr
        assert " since 20" in second.stderr
        assert second.stdout == ""
        with running(
            find_sweeps_to_continue(tmp_path, [asked()])[0]
        ) as has_run:  # the lock went with its holder
            assert has_run

    def test_a_new_sweep_was_never_run(self, tmp_path):
        with running(create_sweep(tmp_path, asked(), space())) as has_run:
            assert not has_run

    def test_a_lock_that_nobody_has_signed_is_one(self, tmp_path):
        folder = create_sweep(tmp_path, asked(), space())
        with running(folder):
            (folder / "lock").write_text("")
            with pytest.raises(JoulewiseError, match=r"is being run \("), running(folder):
                pass

    def test_where_there_is_no_folder_it_is_said(self):
        with pytest.raises(JoulewiseError, match="cannot run"), running(Path("/nowhere")):
            pass
