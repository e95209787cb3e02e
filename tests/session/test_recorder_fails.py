"""A recorder that fails by no fault of the user costs the figures, never the command."""

import signal
import socket

from joulewise.process.json_lines import JsonSocket
from joulewise.session import recorder_client
from joulewise.session.recorder_client import RecorderProcess
from tests.helpers.processes import gone, python
from tests.helpers.run_processes import environment, run


def without_recorder(folder):
    """An environment in which no recorder starts."""
    (folder / "sitecustomize.py").write_text(
        "import sys; sys.modules['joulewise.session.recording'] = None"
    )
    return environment(PYTHONPATH=str(folder))


def test_a_recorder_that_fails_at_its_start_lets_the_command_run_unmeasured(tmp_path):
    command = python("print('hi'); sys.exit(3)")
    done = run(tmp_path / "store", *command, env=without_recorder(tmp_path))
    assert (done.returncode, done.stdout) == (3, "hi\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("joulewise: the recorder failed with ModuleNotFoundError: ")
    assert "the command is not measured" in line
    assert not list((tmp_path / "store").glob("*"))


def test_a_budget_of_time_holds_for_a_command_that_is_not_measured(tmp_path):
    budgets = ["--budget", "0.3s:stop", "--budget", "0.2s", "--budget", "2kWh:stop"]
    code = (
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    done = run(tmp_path / "store", *budgets, *python(code), env=without_recorder(tmp_path))
    assert done.returncode == 128 + signal.SIGTERM
    assert gone(int(done.stdout))
    unmeasured, unchecked, *used_up = done.stderr.splitlines()
    assert "the command is not measured" in unmeasured
    assert unchecked == "joulewise: not checked, since energy is not measured: 2kWh:stop"
    assert used_up == [
        "joulewise: the budget of 0.2s is used up",
        "joulewise: the budget of 0.3s is used up; stopping the command",
    ]


FAILING_TO_WRITE = """
from joulewise.record import writer
def end(self):
    raise OSError(5, "Input/output error")
writer.Writer.end = end
"""


def test_a_recorder_that_fails_at_its_end_shows_with_what_beside_the_result(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(FAILING_TO_WRITE)
    done = run(
        tmp_path / "store", *python("time.sleep(1.5); sys.exit(3)"),
        env=environment(PYTHONPATH=str(tmp_path)),
    )  # fmt: skip
    assert done.returncode == 3
    said = "joulewise: the recorder failed with OSError: [Errno 5] Input/output error"
    assert said in done.stderr.splitlines()
    assert "total" in done.stderr


def test_what_a_recorder_fails_with_at_the_end_is_reported():
    ours, theirs = socket.socketpair()
    recorder = RecorderProcess(JsonSocket(ours), None, recorder_client.Ready("run", (), 10.0))
    with theirs:
        JsonSocket(theirs).send(
            "failed", message="the recorder failed with OSError: 5", hint="report it"
        )
    assert recorder.finish() is None
    assert recorder.lost
    assert recorder.remark == "the recorder failed with OSError: 5"
