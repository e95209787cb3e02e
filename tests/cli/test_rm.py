"""Deleting runs, and only runs."""

import os
import pty
import subprocess
import sys

import pytest

from joulewise.process.linux import boot_id, started_ticks
from joulewise.store.manifest import RecorderRecord

ID, OTHER = "20261116-003512-7f3a", "20261116-003513-beef"


def test_several_runs_are_gone(joulewise, make_run, store):
    make_run(ID, name="old"), make_run(OTHER)
    ran = joulewise("rm", "--yes", "old", OTHER, ID)
    assert (ran.returncode, ran.stdout) == (0, "")
    assert ran.stderr == f"deleted {ID}, {OTHER}\n"
    assert list(store.iterdir()) == []


def test_nobody_to_ask(joulewise_alone, make_run):
    run = make_run(ID)
    ran = joulewise_alone("rm", ID)
    assert ran.returncode == 2
    assert "add --yes" in ran.stderr
    assert run.exists()


@pytest.mark.parametrize(("answer", "status", "there"), [(b"y\n", 0, False), (b"n\n", 130, True)])
def test_a_terminal_is_requested(make_run, store, answer, status, there):
    run = make_run(ID)
    mine, theirs = pty.openpty()
    os.write(mine, answer)
    ran = subprocess.run(
        [sys.executable, "-m", "joulewise", "--store", str(store), "rm", ID],
        stdin=theirs,
        capture_output=True,
        text=True,
        check=False,
    )
    os.close(mine)
    os.close(theirs)
    assert f"Delete {ID} permanently?" in ran.stderr
    assert (ran.returncode, run.exists()) == (status, there)


def test_a_live_run_is_refused_and_nothing_else_goes(joulewise, make_run):
    other = make_run(OTHER)
    me = RecorderRecord(os.getpid(), started_ticks(os.getpid()))
    live = make_run(ID, result=False, state="recording", recorder=me, boot_id=boot_id())
    ran = joulewise("rm", "--yes", OTHER, ID)
    assert ran.returncode == 2
    assert f"{ID} is being recorded" in ran.stderr
    assert live.exists()
    assert other.exists()


def test_a_damaged_run_can_go(joulewise, make_run):
    run = make_run(ID)
    (run / "run.json").write_text("{")
    for name in (
        "checksums.json",
        "checksums.log",
        "live.json",
        "tuning.json",
        ".reserve",
        ".tuning-reserve",
    ):
        (run / name).touch()
    assert joulewise("rm", "--yes", ID).returncode == 0
    assert not run.exists()


@pytest.mark.parametrize("manifest", ["{", '{"name": "mine", "scripts": {}}'])
def test_what_is_no_run_stays(joulewise, tmp_path, manifest):
    project = tmp_path / "project"
    project.mkdir()
    (project / "run.json").write_text(manifest)
    (project / "thesis.tex").write_text("years of work")
    ran = joulewise("rm", "--yes", str(project))
    assert ran.returncode == 2
    assert "thesis.tex" in ran.stderr
    assert (project / "thesis.tex").exists()


def test_no_such_run(joulewise, make_run):
    run = make_run(ID)
    assert joulewise("rm", "--yes", "nobody").returncode == 2
    assert joulewise("rm", "--yes").returncode == 2
    assert run.exists()
