"""Whoever is killed: what was recorded can be read, and nobody is left behind."""

import json
import os
import signal
import subprocess

import pytest

from joulewise.store.layout import StreamKind
from joulewise.store.manifest import read_manifest
from joulewise.store.runs import status
from joulewise.store.trace import open_device_stream
from tests.helpers.processes import DEADLINE_S, JOULEWISE, eventually, gone, python
from tests.helpers.run_processes import environment, manifest, run, running, runs

PARENT = """
import subprocess
nothing = subprocess.DEVNULL
code = "import time; time.sleep(600)"
pipes = {"stdin": nothing, "stdout": nothing, "stderr": nothing}
child = subprocess.Popen([sys.executable, "-c", code], **pipes)
print(os.getpid(), child.pid, flush=True)
sys.stdin.read()
"""
STUBBORN = PARENT.replace("import time;", "import signal, time; signal.signal(15, signal.SIG_IGN);")


def rows(folder):
    return sum(
        lane.rows
        for device in read_manifest(folder).devices
        if (lane := open_device_stream(folder, device.info.key, StreamKind.FAST))
    )


@pytest.mark.parametrize("code", [PARENT, STUBBORN], ids=["willing", "stubborn"])
def test_killing_joulewise_ends_the_command_and_all_that_it_started(code, tmp_path):
    with running(tmp_path, code=code) as session:
        (child,) = session.others
        try:
            session.kill(session.process.pid)
            for pid in (session.command_pid, child, session.recorder_pid):
                eventually(lambda pid=pid: gone(pid))
        finally:
            if not gone(child):
                os.kill(child, signal.SIGKILL)
        payload = session.manifest()
        assert (payload["state"], payload["exit_code"]) == ("stopped", 137)
        assert payload["commands"][0]["end_ns"]
        assert rows(session.run) > 0
        result = json.loads((session.run / "result.json").read_text())
        assert result["state"] == "stopped"
        (why,) = [w["message"] for w in result["warnings"] if w["code"] == "stopped"]
        assert why == "joulewise was killed, and the command with it (exit status 137)"


def test_killing_joulewise_before_it_reports_the_start_leaves_nobody_and_a_run(tmp_path):
    stopped = {**environment(), "JOULEWISE_TEST_KILL_AT": "command-running:1:STOP"}
    with running(tmp_path, code=PARENT, env=stopped) as session:
        (child,) = session.others
        try:
            session.kill(session.process.pid)
            for pid in (session.command_pid, child, session.recorder_pid):
                eventually(lambda pid=pid: gone(pid))
        finally:
            if not gone(child):
                os.kill(child, signal.SIGKILL)
        recorded = session.manifest()
        assert (recorded["state"], recorded["exit_code"]) == ("stopped", 137)
        assert recorded["commands"][0]["arguments"][1:2] == ["-c"]


def test_killing_the_recorder_touches_nothing_and_joulewise_reports_what_there_is(tmp_path):
    with running(tmp_path) as session:
        eventually(lambda: rows(session.run) > 0)
        session.kill(session.recorder_pid)
        eventually(lambda: gone(session.recorder_pid))
        assert not gone(session.command_pid)
        opening, lost = (session.process.stderr.readline() for _ in range(2))
        assert "gpu" in opening or "cpu" in opening
        assert "the rest is not measured" in lost  # while the command still runs
        output, errors = session.process.communicate("", timeout=DEADLINE_S)
        assert (session.process.returncode, output) == (0, "")
        assert not (session.run / "live.json").exists()
        assert "  finished, recorder killed · " in errors
        assert "Traceback" not in errors
        payload = session.manifest()
        assert (payload["state"], payload["exit_code"]) == ("stopped", 0)
        warnings = json.loads((session.run / "result.json").read_text())["warnings"]
        assert [w["code"] for w in warnings].count("recorder_ended") == 1


def test_what_happens_after_the_recorder_was_killed_is_in_the_result(tmp_path):
    code = PARENT.replace("**pipes", "start_new_session=True, **pipes")
    arguments = ["--budget", "3s", "--budget", "2kWh"]
    with running(tmp_path, *arguments, code=code) as session:
        (child,) = session.others
        try:
            session.kill(session.recorder_pid)
            _, *said = (session.process.stderr.readline() for _ in range(4))
            assert said[1:] == [
                "joulewise: not checked, since energy is not measured: 2kWh\n",
                "joulewise: the budget of 3s is used up\n",
            ]
            session.process.communicate("", timeout=DEADLINE_S)
        finally:
            os.kill(child, signal.SIGKILL)
        warnings = json.loads((session.run / "result.json").read_text())["warnings"]
        (left,) = [w["message"] for w in warnings if w["code"] == "left_running"]
        assert f"({child})" in left
        (budget,) = [w["message"] for w in warnings if w["code"] == "budget"]
        assert budget.startswith("the budget of 3s was used up")


def test_killing_all_three_leaves_a_run_that_shows_so(tmp_path):
    with running(tmp_path) as session:
        eventually(lambda: rows(session.run) > 0)
        for pid in (session.recorder_pid, session.process.pid, session.command_pid):
            session.kill(pid)
        for pid in session.pids:
            eventually(lambda pid=pid: gone(pid))
        assert status(read_manifest(session.run)) == "killed"
        assert rows(session.run) > 0


def test_the_recorder_hears_no_other_signal(tmp_path):
    with running(tmp_path) as session:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            session.kill(session.recorder_pid, number)
        session.process.communicate("", timeout=DEADLINE_S)
        assert session.process.returncode == 0
        assert session.manifest()["state"] == "complete"


def test_who_is_impatient_gets_the_exit_status_and_the_run_is_finished(tmp_path):
    """Ctrl-C while the result is computed: the recorder, stopped, would take for ever."""
    code = "print(os.getpid(), flush=True); sys.stdin.read(); sys.exit(6)"
    with running(tmp_path, code=code) as session:
        session.kill(session.recorder_pid, signal.SIGSTOP)
        session.process.stdin.close()
        eventually(lambda: gone(session.command_pid))
        # The first may come while the command is being reaped, and be taken as meant for it.
        eventually(lambda: session.process.send_signal(signal.SIGINT) or session.process.poll())
        assert session.process.returncode == 6
        assert f" show {session.run.name}" in session.process.stderr.read()
        session.kill(session.recorder_pid, signal.SIGCONT)
        eventually(lambda: gone(session.recorder_pid))
        assert session.manifest()["state"] == "complete"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ended_before_the_command_started_it_leaves_no_run(number, tmp_path):
    process = subprocess.Popen(
        [*JOULEWISE, "--store", str(tmp_path), "run", "--baseline", "600", "--", "true"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr.readline().startswith("joulewise: ")
    recorder = manifest(tmp_path)["recorder"]["pid"]
    process.send_signal(number)
    assert "Traceback" not in process.communicate(timeout=DEADLINE_S)[1]
    assert process.returncode in {130, -number}
    eventually(lambda: gone(recorder))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "point",
    ["after-batch", "before-rename-run.json:4", "after-rename-run.json:4", "compact-written",
     "compact-renamed"],
)  # fmt: skip
def test_a_recorder_that_dies_at_its_worst_moment(point, tmp_path):
    environ = {**os.environ, "JOULEWISE_TEST_KILL_AT": point, "JOULEWISE_COMPACT_OVER_ROWS": "0"}
    done = run(tmp_path, *python("time.sleep(1.2); sys.exit(3)"), env=environ)
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    (folder,) = runs(tmp_path)
    assert rows(folder) > 0
    assert "the recorder ended" in done.stderr
    assert (folder / "result.json").exists()
