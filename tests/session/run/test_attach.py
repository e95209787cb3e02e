"""``joulewise run --pid``: a job that runs already, and goes on whatever we do."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from tests.helpers.processes import DEADLINE_S, JOULEWISE, eventually, gone
from tests.helpers.run_processes import environment, run, runs

BUSY = """
import sys, time
end = time.process_time() + float(sys.argv[1])
print("working", flush=True)
while time.process_time() < end:
    pass
sys.exit(9)
"""


@contextmanager
def job(seconds):
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY, str(seconds), "--password", "hush"], stdout=subprocess.PIPE
    )
    try:
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def test_until_it_ends(tmp_path):
    with job(1.5) as process:
        done = run(
            tmp_path / "store", "--pid", str(process.pid), "--json", str(tmp_path / "r.json")
        )
    assert done.returncode == 0, done.stderr
    assert "total" in done.stderr
    payload = json.loads((runs(tmp_path / "store")[0] / "run.json").read_text())
    (command,) = payload["commands"]
    assert command["pid"] == process.pid
    assert command["arguments"][-2:] == ["--password", "***"]
    assert 0.05 < command["cpu_s"] < 2
    assert payload["state"] == "complete"
    assert json.loads((tmp_path / "r.json").read_text())["exit_code"] is None  # nobody told us


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_shows_the_result_and_leaves_the_job_alone(number, tmp_path):
    with job(600) as process:
        measuring = subprocess.Popen(
            [*JOULEWISE, "--store", str(tmp_path), "run", "--pid", str(process.pid)],
            stderr=subprocess.PIPE, text=True, env=environment(),
        )  # fmt: skip
        assert measuring.stderr.readline().startswith("joulewise: ")
        folder = eventually(lambda: runs(tmp_path))[0]
        eventually(lambda: json.loads((folder / "run.json").read_text())["commands"])
        measuring.send_signal(number)
        _, said = measuring.communicate(timeout=DEADLINE_S)
        assert measuring.returncode == 0
        assert "total" in said
        assert "measuring was stopped; the process goes on" in said
        assert json.loads((folder / "run.json").read_text())["state"] == "stopped"
        assert not gone(process.pid)


def test_killed_it_leaves_the_job_alone(tmp_path):
    with job(600) as process:
        measuring = subprocess.Popen(
            [*JOULEWISE, "--store", str(tmp_path), "run", "--pid", str(process.pid)],
            stderr=subprocess.DEVNULL, env=environment(),
        )  # fmt: skip
        folder = eventually(lambda: runs(tmp_path))[0]
        payload = eventually(
            lambda: (m := json.loads((folder / "run.json").read_text()))["commands"] and m
        )
        measuring.kill()
        measuring.wait()
        eventually(lambda: gone(payload["recorder"]["pid"]))
        payload = json.loads((folder / "run.json").read_text())
        assert payload["state"] == "stopped"
        assert "joulewise was killed; the process goes on" in payload["notes"][-1]["message"]
        assert not gone(process.pid)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--pid", str(2**22 + 1)], "no process"),
        (["--pid", str(os.getpid()), "--", "true"], "cannot be combined"),
        (["--pid", str(os.getpid()), "--budget", "1kWh:stop"], "does not stop a process"),
        (["--pid", "0"], "0"),
    ],
)
def test_what_cannot_be_intended(options, message, tmp_path):
    done = run(tmp_path, *options)
    assert done.returncode == 2
    assert message in done.stderr.splitlines()[0]
    assert runs(tmp_path) == []
