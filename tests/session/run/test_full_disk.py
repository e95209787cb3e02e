"""A disk that is full when a run ends, and a recorder that was killed before it wrote anything."""

import errno
import os
import shutil
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from joulewise.data import WarningCode
from joulewise.session.recording import Recording
from joulewise.session.request import Request
from joulewise.session.run import finish_run
from joulewise.store.layout import MANIFEST, RESERVE, TRACE
from joulewise.store.manifest import CommandRecord, read_manifest, write_final_manifest
from joulewise.store.runs import new_run, readable, status
from tests.helpers.mounts import mounted_tmpfs

COMMAND = CommandRecord(os.getpid(), ("train.py", "--token", "abc"), 5)


@pytest.fixture
def small_disk(tmp_path):
    with mounted_tmpfs(tmp_path, "size=2m") as disk:
        yield disk


def fill(folder):
    with (folder / "filler").open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    assert shutil.disk_usage(folder).free == 0


def ended_recording(store, exit_code, before_end):
    recording = Recording(store, Request(), os.environ)
    start_ns = time.monotonic_ns()
    recording.command_started(replace(COMMAND, start_ns=start_ns))
    before_end()
    recording.command_ended(COMMAND.pid, start_ns + 10**8, exit_code)
    recording.stop(stopped=False)
    return recording


def test_a_full_disk_takes_how_the_run_ended(small_disk):
    recording = ended_recording(small_disk, 3, lambda: fill(small_disk))
    result = recording.result()
    assert (result.state, result.exit_code) == ("complete", 3)
    ((run, manifest),) = readable(small_disk)
    assert (run, status(manifest), manifest.exit_code) == (recording.run, "complete", 3)
    assert not (run / RESERVE).exists()


def test_room_that_others_take_at_once_is_not_missed(small_disk, monkeypatch):
    """Whatever is freed is gone: how the run ended is written over what was reserved for it."""
    unlink, replace_path = Path.unlink, Path.replace

    def refilling(action):
        def act(*arguments, **options):
            done = action(*arguments, **options)
            fill(small_disk)
            return done

        return act

    def fill_and_keep_full():
        fill(small_disk)
        monkeypatch.setattr(Path, "unlink", refilling(unlink))
        monkeypatch.setattr(Path, "replace", refilling(replace_path))

    recording = ended_recording(small_disk, 3, fill_and_keep_full)
    ((run, manifest),) = readable(small_disk)
    assert (run, status(manifest), manifest.exit_code) == (recording.run, "complete", 3)


def test_a_manifest_that_was_not_stored_still_shows_how_the_run_ended(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    def fill_up():
        for name in ("replace_file", "replace_by_reserve"):
            monkeypatch.setattr(f"joulewise.store.manifest.{name}", full)

    result = ended_recording(tmp_path, 3, fill_up).result()
    assert (result.state, result.exit_code) == ("complete", 3)
    stored = [w.message for w in result.warnings if w.code is WarningCode.NOT_STORED]
    assert "run.json: No space left on device" in stored


def test_a_run_that_ended_in_order_keeps_no_reserve(tmp_path):
    run = ended_recording(tmp_path, 0, lambda: None).run
    assert {MANIFEST, TRACE} <= {path.name for path in run.iterdir()}
    assert not (run / RESERVE).exists()


def test_a_command_that_a_killed_recorder_had_not_written_is_in_the_run(tmp_path):
    run = new_run(tmp_path)
    ended = replace(COMMAND, end_ns=2 * 10**9, exit_code=3, cpu_s=0.5)
    result, _ = finish_run(run, ended)
    assert (result.state, result.exit_code) == ("stopped", 3)
    (command,) = read_manifest(run).commands
    assert command == replace(ended, arguments=("train.py", "--token", "***"))


def test_a_recorder_that_was_waited_for_is_no_clock_that_was_set(tmp_path, monkeypatch):
    run, ended_ns = new_run(tmp_path), time.monotonic_ns()
    later_ns = 60 * 10**9
    for name in ("time_ns", "monotonic_ns"):
        now_ns = getattr(time, name)() + later_ns
        monkeypatch.setattr(f"joulewise.session.run.time.{name}", lambda now_ns=now_ns: now_ns)
    result, _ = finish_run(run, replace(COMMAND, end_ns=ended_ns, exit_code=0))
    assert WarningCode.CLOCK_SET not in [warning.code for warning in result.warnings]


def test_a_process_id_that_comes_again_is_another_command(tmp_path):
    run = new_run(tmp_path)
    first = replace(COMMAND, end_ns=9, exit_code=4)
    write_final_manifest(run, replace(read_manifest(run), commands=(first,)))
    finish_run(run, replace(COMMAND, start_ns=20, end_ns=30, exit_code=0))
    assert [each.exit_code for each in read_manifest(run).commands] == [4, 0]


def test_two_commands_of_one_process_id_end_one_by_one(tmp_path):
    recording = Recording(tmp_path, Request(), os.environ)
    now_ns = time.monotonic_ns()
    for start_ns, code in ((now_ns, 4), (now_ns + 2 * 10**7, 0)):
        recording.command_started(replace(COMMAND, start_ns=start_ns))
        recording.command_ended(COMMAND.pid, start_ns + 10**7, code)
    recording.stop(stopped=False)
    result = read_manifest(recording.run)
    assert [each.exit_code for each in result.commands] == [4, 0]
    assert result.exit_code == 4
