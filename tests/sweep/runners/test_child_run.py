"""The process of one run of a sweep: whatever its words are, and wherever it cannot start."""

import os
import sys

import pytest

from joulewise.errors import JoulewiseError
from joulewise.sweep.runners.child_run import MeasuredRun
from tests.helpers.processes import eventually, gone


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def begun(tmp_path, command, log, *options):
    return MeasuredRun(tmp_path / "runs", options, command, log=log, environ=os.environ)


def test_a_word_that_is_no_text_is_told_as_it_is(tmp_path, scratch):
    log = tmp_path / "logs" / "one.log"
    with begun(tmp_path, ["true", os.fsdecode(b"caf\xe9")], log) as run:
        assert run.wait() == 0
        assert run.result().exit_code == 0
    assert log.read_bytes().splitlines()[0] == b"$ true 'caf\xe9'"
    assert list(scratch.iterdir()) == []


def test_what_cannot_have_a_log_leaves_nothing_behind(tmp_path, scratch):
    (tmp_path / "logs").write_text("in the way")
    with pytest.raises(OSError, match="exists"):
        begun(tmp_path, ["true"], tmp_path / "logs" / "one.log")
    assert list(scratch.iterdir()) == []


def test_why_joulewise_did_not_run_it_is_the_reason(tmp_path):
    with begun(tmp_path, ["true"], tmp_path / "one.log", "--gpu=99", "--power-limit=200") as run:
        assert run.wait()
        with pytest.raises(JoulewiseError) as refused:
            run.result()
    assert "has no result" not in refused.value.message
    assert f"joulewise: {refused.value.message}" in run.tail().splitlines()


@pytest.mark.parametrize("how", ["asked", "stubborn"])
def test_what_is_ended_is_ended_with_all_that_it_started(tmp_path, how):
    """A process behind a shell would go on beside the next run, and be in its figures."""
    stubborn = "signal.signal(signal.SIGTERM, signal.SIG_IGN)" if how == "stubborn" else ""
    pids = tmp_path / "pids"
    child = f"""
import os, signal, time
{stubborn}
with open({str(pids)!r}, "a") as file:
    file.write(str(os.getpid()))
time.sleep(600)
"""
    command = ["sh", "-c", '"$0" -c "$1"; true', sys.executable, child]
    with begun(tmp_path, command, tmp_path / "one.log") as run:
        (pid,) = eventually(lambda: pids.exists() and pids.read_text().split())
        run.end(grace_s=5.0 if how == "asked" else 0.5)
        assert gone(int(pid))
