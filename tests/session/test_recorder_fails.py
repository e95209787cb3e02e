"""A recorder that fails by no fault of the user costs the figures, never the command."""

import socket

from joulewise.process.json_lines import JsonSocket
from joulewise.session import recorder_client
from joulewise.session.recorder_client import RecorderProcess
from tests.helpers.processes import python
from tests.helpers.run_processes import environment, run


def test_a_recorder_that_fails_at_its_start_lets_the_command_run_unmeasured(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys; sys.modules['joulewise.session.recorder_server'] = None"
    )
    done = run(
        tmp_path / "store", *python("print('hi'); sys.exit(3)"),
        env=environment(PYTHONPATH=str(tmp_path)),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "hi\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("joulewise: the recorder failed with ModuleNotFoundError: ")
    assert "the command is not measured" in line
    assert not list((tmp_path / "store").glob("*"))


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
