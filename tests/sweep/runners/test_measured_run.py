"""The process of one run of a sweep: whatever its words are, and wherever it cannot start."""

import os
import sys

import pytest

from joulewise.errors import JoulewiseError
from joulewise.sweep.runners.local import MeasuredRun
from tests.helpers.processes import eventually, gone


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def begun(tmp_path, command, log, *options):
    return MeasuredRun(tmp_path / "runs", options, command, log=log, environ=os.environ)


def test_undecodable_argument_is_logged_as_bytes(tmp_path, scratch):
    log = tmp_path / "logs" / "one.log"
    with begun(tmp_path, ["true", os.fsdecode(b"caf\xe9")], log) as run:
        assert run.wait() == 0
        assert run.result().exit_code == 0
    assert log.read_bytes().splitlines()[0] == b"$ true 'caf\xe9'"
    assert list(scratch.iterdir()) == []


def test_unwritable_log_leaves_nothing_behind(tmp_path, scratch):
    (tmp_path / "logs").write_text("in the way")
    with pytest.raises(OSError, match="exists"):
        begun(tmp_path, ["true"], tmp_path / "logs" / "one.log")
    assert list(scratch.iterdir()) == []


def test_refusal_of_joulewise_is_the_reason(tmp_path):
    with begun(tmp_path, ["true"], tmp_path / "one.log", "--gpu=99", "--power-limit=200") as run:
        assert run.wait()
        with pytest.raises(JoulewiseError) as refused:
            run.result()
    assert "has no result" not in refused.value.message
    assert f"joulewise: {refused.value.message}" in run.tail().splitlines()


@pytest.mark.parametrize("how", ["asked", "stubborn"])
def test_end_ends_all_processes_of_the_command(tmp_path, how):
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


def test_run_has_the_id_that_was_handed_to_it(tmp_path):
    shown = tmp_path / "shown"
    command = [sys.executable, "-c", f"import os; open({str(shown)!r}, 'w').write(str(os.environ))"]
    with begun(tmp_path, command, tmp_path / "one.log") as run:
        assert run.wait() == 0
        assert run.result().id == run.run.name
    assert (run.run / "run.json").is_file()
    assert "JOULEWISE_RUN_ID" not in shown.read_text()  # runs of the command itself are others


@pytest.mark.parametrize("run_id", ["20260101-000000-abcd", "../elsewhere"])
def test_id_that_is_taken_or_invalid_is_refused(tmp_path, monkeypatch, run_id):
    (tmp_path / "runs" / "20260101-000000-abcd").mkdir(parents=True)
    monkeypatch.setattr("joulewise.sweep.runners.local.new_id", lambda: run_id)
    with begun(tmp_path, ["true"], tmp_path / "one.log") as run:
        run.wait()
        with pytest.raises(JoulewiseError):
            run.result()
    assert not list((tmp_path / "runs" / "20260101-000000-abcd").iterdir())
    assert not (tmp_path / "elsewhere").exists()
