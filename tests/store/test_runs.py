"""Runs in a store are made, found, identified and removed, and run.json is read back."""

import errno
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from joulewise.data import DeviceInfo, Kind, SensorProfile, Source, Unavailable
from joulewise.errors import JoulewiseError, UsageError
from joulewise.process.linux import boot_id, pid_namespace, started_ticks
from joulewise.record.recorder import RecorderOptions
from joulewise.store.layout import FORMAT, MANIFEST
from joulewise.store.manifest import (
    CommandRecord,
    Manifest,
    RecordedDevice,
    RecorderRecord,
    read_manifest,
    write_manifest,
)
from joulewise.store.runs import (
    Skipped,
    default_store,
    find,
    new_run,
    readable,
    remove,
    runs,
    status,
)


def manifest(run, **more):
    known = {"commands": (), "boot_id": boot_id(), "state": "complete", "wall_start_ns": 1, **more}
    return Manifest(run.name, cwd="/", rate_hz=10.0, monotonic_start_ns=2, **known)


def made(store, when_s=0.0, **more):
    run = new_run(store, when_s)
    write_manifest(run, manifest(run, **{"wall_start_ns": round(when_s * 1e9), **more}))
    return run


def test_everything_in_a_manifest_comes_back(tmp_path):
    device = RecordedDevice(
        DeviceInfo("gpu0", Kind.GPU, "V100", "GPU-1", "nvidia", contains=("a", "b")),
        sources={"power_w": Source.MEASURED},
        card=SensorProfile(update_period_s=0.02, gain_sigma=0.01),
        settings={"power_limit_w": 250.0},
        maximum_w=300.0,
    )
    silent = RecordedDevice(
        DeviceInfo("gpu1", Kind.GPU, "V100", "GPU-2", "nvidia", better=Unavailable("no", "do")),
        unavailable=Unavailable("lost"),
    )
    run = new_run(tmp_path)
    before = manifest(
        run,
        commands=(CommandRecord(4, ("python", "tränen.py"), 10, 20, 3, 1.5),),
        devices=(device, silent),
        missing={"amd": Unavailable("none", "buy one")},
        recorder=RecorderRecord(5, 6, 0.25, {"gpu0": {"rows": 7, "rate_cv": None}}),
        tags=("a", "b"),
        options={"budgets": ["2kWh"]},
        notes=({"code": "gap", "message": "…"},),
    )
    write_manifest(run, before)
    after = read_manifest(run)
    assert after == before
    assert [path.name for path in run.iterdir() if path.is_file()] == [MANIFEST]


def rewrite(run, payload):
    """As whoever edits run.json does: without the checksum, which is then not looked for."""
    del payload["crc32"]
    (run / MANIFEST).write_text(json.dumps(payload))


def test_what_a_newer_joulewise_added_is_passed_over(tmp_path):
    run = made(tmp_path)
    payload = json.loads((run / MANIFEST).read_text())
    payload["weather"] = {"sun": True}
    rewrite(run, payload)
    assert read_manifest(run).id == run.name


def test_a_newer_format_is_refused_in_a_line(tmp_path):
    run = made(tmp_path)
    payload = json.loads((run / MANIFEST).read_text())
    payload["format"] = FORMAT + 1
    rewrite(run, payload)
    with pytest.raises(JoulewiseError, match="newer joulewise") as refused:
        read_manifest(run)
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"format": "1"}', '{"format": 1}', '{"format": 1, "id": 7}', "\0\0\0"],
)
def test_what_is_damaged_or_foreign_is_skipped_with_a_reason(tmp_path, text):
    good = made(tmp_path)
    bad = tmp_path / "zzz"
    bad.mkdir()
    (bad / MANIFEST).write_text(text)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "empty").mkdir()
    found = list(readable(tmp_path))
    assert [each[0] for each in found if not isinstance(each, Skipped)] == [good]
    skipped = {each.path.name: each.reason for each in found if isinstance(each, Skipped)}
    assert skipped.keys() == {"zzz", "empty"}
    assert all(skipped.values())
    with pytest.raises(JoulewiseError):
        read_manifest(bad)


def test_a_store_that_is_not_there_has_no_runs(tmp_path):
    assert list(runs(tmp_path / "none")) == []
    with pytest.raises(UsageError, match="no runs"):
        find(tmp_path / "none", "last")


def test_the_store_is_named_by_the_environment(tmp_path):
    assert default_store({"JOULEWISE_STORE": str(tmp_path)}) == tmp_path
    assert str(default_store({})) == "joulewise-runs"


def test_runs_that_begin_at_once_have_names_of_their_own(tmp_path):
    store = tmp_path / "mit Leerzeichen und Ümläuten ☂"
    with ThreadPoolExecutor(8) as pool:
        made_runs = list(pool.map(lambda _: new_run(store, 0.0), range(200)))
    assert len(set(made_runs)) == 200
    assert len(list(store.iterdir())) == 200


def test_a_run_is_found_by_id_prefix_name_last_and_path(tmp_path):
    first, second = made(tmp_path, 0.0, name="small"), made(tmp_path, 100.0, name="big")
    assert find(tmp_path, first.name) == first
    assert find(tmp_path, first.name[:-2]) == first
    assert find(tmp_path, "big") == second
    assert find(tmp_path, "last") == second
    assert find(tmp_path / "elsewhere", str(first)) == first
    with pytest.raises(UsageError, match="begins 2 runs"):
        find(tmp_path, first.name[:4])
    for unknown in ("nothing", ""):
        with pytest.raises(UsageError, match="no run"):
            find(tmp_path, unknown)


def test_a_name_that_was_used_twice_means_the_newest(tmp_path):
    made(tmp_path, 0.0, name="again")
    newest = made(tmp_path, 100.0, name="again")
    assert find(tmp_path, "again") == newest


def test_the_last_run_is_that_of_the_newest_id_or_start(tmp_path):
    """A renamed one stands where its manifest says, and so do those of one second."""
    second = made(tmp_path, 100.0, wall_start_ns=100 * 10**9 + 2, name="again")
    first = made(tmp_path, 100.0, wall_start_ns=100 * 10**9 + 1, name="again")
    renamed = tmp_path / "kept"
    made(tmp_path, 300.0, wall_start_ns=99 * 10**9, name="again").rename(renamed)
    assert find(tmp_path, "last") == second
    assert find(tmp_path, "again") == second
    assert [run for run, _ in readable(tmp_path)] == [renamed, first, second]
    newest = tmp_path / "newest"
    made(tmp_path, 50.0, wall_start_ns=101 * 10**9, name="again").rename(newest)
    assert find(tmp_path, "last") == newest
    assert find(tmp_path, "again") == newest


def test_the_last_run_may_be_one_that_cannot_be_read(tmp_path):
    made(tmp_path, 100.0)
    damaged = made(tmp_path, 200.0)
    (damaged / MANIFEST).write_text("{")
    other = tmp_path / "99999999-999999-abcd"
    other.mkdir()
    (other / MANIFEST).write_text("{")
    assert find(tmp_path, "last") == damaged


def test_an_id_is_in_the_time_that_has_no_summer(tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert new_run(tmp_path, 1_794_801_600.0).name.startswith("20261116-040000-")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_how_a_run_stands(tmp_path):
    run = new_run(tmp_path)
    recorder = RecorderRecord(os.getpid(), started_ticks(os.getpid()))
    recording = manifest(run, state="recording", recorder=recorder)
    assert status(recording) == "recording"
    assert status(replace(recording, state="complete")) == "complete"
    assert status(replace(recording, state="stopped")) == "stopped"
    later = replace(recorder, started_ticks=recorder.started_ticks + 1)
    assert status(replace(recording, recorder=later)) == "killed"
    assert status(replace(recording, boot_id="another")) == "killed"
    assert status(replace(recording, recorder=None)) == "killed"


@pytest.mark.parametrize(
    ("where", "namespace"),
    [
        ({"boot_id": "another", "host": {"name": "node7"}}, pid_namespace()),
        ({"host": {"name": "container"}}, pid_namespace()),
        ({}, "pid:[1]"),
    ],
)
def test_a_run_of_another_node_is_recorded_while_it_shows_life(tmp_path, where, namespace):
    for silent_s, stands in ((0, "recording"), (60, "recording"), (200, "killed")):
        saved_ns = time.time_ns() - silent_s * 10**9
        recorder = RecorderRecord(1, 1, saved_wall_ns=saved_ns, pid_namespace=namespace)
        run = made(tmp_path, state="recording", recorder=recorder, **where)
        assert status(read_manifest(run)) == stands
    remove(run)
    recorder = replace(recorder, saved_wall_ns=time.time_ns())
    run = made(tmp_path, state="recording", recorder=recorder, **where)
    with pytest.raises(UsageError, match="being recorded"):
        remove(run)


def test_who_is_killed_before_it_found_a_device_leaves_a_run_that_can_go(tmp_path):
    script = f"""
import os, pathlib
from joulewise.store.runs import new_run
new_run(pathlib.Path({str(tmp_path)!r}))
os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    ((run, left),) = readable(tmp_path)
    assert (status(left), left.devices, left.commands) == ("killed", (), ())
    assert find(tmp_path, "last") == run
    remove(run)
    assert list(tmp_path.iterdir()) == []


def test_who_is_killed_before_it_wrote_anything_leaves_what_can_go_by_its_id(tmp_path):
    (tmp_path / "20261116-003512-7f3a").mkdir()
    (tmp_path / "20261116").mkdir()
    remove(find(tmp_path, "20261116-003512-7f3a"))
    with pytest.raises(UsageError):
        find(tmp_path, "20261116")


def test_a_recorder_that_is_a_zombie_is_dead(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    recorder = RecorderRecord(child.pid, started_ticks(child.pid))
    run = manifest(new_run(tmp_path), state="recording", recorder=recorder)
    assert status(run) == "recording"
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert status(run) == "killed"
    child.wait()


def test_a_run_that_is_recorded_is_not_removed(tmp_path):
    recorder = RecorderRecord(os.getpid(), started_ticks(os.getpid()))
    run = made(tmp_path, state="recording", recorder=recorder)
    with pytest.raises(UsageError, match="being recorded"):
        remove(run)
    assert read_manifest(run)
    for state in ("complete", "stopped"):
        write_manifest(run, manifest(run, state=state))
    remove(run)
    assert not run.exists()


def test_what_cannot_be_read_can_be_removed(tmp_path):
    run = new_run(tmp_path)
    (run / MANIFEST).write_text("{")
    remove(run)
    assert not run.exists()


@pytest.mark.parametrize("store", ["/dev/null/runs", "/proc/runs"])
def test_a_store_that_cannot_be_written_is_a_line_with_a_hint(store, tmp_path):
    with pytest.raises(JoulewiseError, match="cannot make a run") as refused:
        new_run(tmp_path.__class__(store))
    assert "--store" in refused.value.hint
    assert "\n" not in str(refused.value)


def test_a_run_that_could_not_be_begun_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("joulewise.store.runs.write_manifest", full)
    with pytest.raises(JoulewiseError, match="No space left"):
        new_run(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.EACCES, "make it writable, or name another"),
        (errno.EROFS, "make it writable, or name another"),
        (errno.ENOSPC, "make room there, or name another"),
        (errno.EDQUOT, "make room there, or name another"),
        (errno.ENOTDIR, "name another"),
    ],
)
def test_what_to_do_is_fit_for_why_a_run_cannot_be_made(tmp_path, monkeypatch, number, hint):
    def fails(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("joulewise.store.runs.write_manifest", fails)
    with pytest.raises(JoulewiseError) as refused:
        new_run(tmp_path)
    assert refused.value.hint == f"{hint} with --store DIR or $JOULEWISE_STORE"


def test_a_run_can_begin_in_a_folder_that_was_deleted(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert read_manifest(new_run(tmp_path)).cwd == ""
    assert RecorderOptions().cwd == ""


def test_a_run_in_another_process_id_namespace_is_not_taken_for_killed(tmp_path):
    script = f"""
import pathlib
from joulewise.store.runs import new_run
new_run(pathlib.Path({str(tmp_path)!r}))
print("made", flush=True)
input()
"""
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    namespace = ["unshare", *as_root, "--pid", "--fork", "--mount-proc"]
    command = [*namespace, sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            if process.stdout.readline() != b"made\n":
                pytest.skip("no process id namespace can be made here")
            ((run, recording),) = readable(tmp_path)
            assert status(recording) == "recording"
            with pytest.raises(UsageError, match="being recorded"):
                remove(run)
        finally:
            process.stdin.close()
