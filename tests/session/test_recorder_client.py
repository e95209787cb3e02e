"""The line to a recorder, and a recorder that hangs."""

import fcntl
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading

import pytest

from joulewise.process import child
from joulewise.process.json_lines import JsonSocket
from joulewise.session import recorder_client, recorder_process
from joulewise.session.recorder_client import RecorderProcess
from joulewise.session.recorder_process import RecorderServer
from joulewise.session.request import Request
from joulewise.session.run import finish_run
from joulewise.store.manifest import CommandRecord
from tests.helpers.processes import eventually, gone


def recorder_pid(recorder):
    return json.loads((recorder.ready.run / "run.json").read_text())["recorder"]["pid"]


def test_a_recorder_that_hangs_is_killed_and_its_run_finished_without_it(tmp_path):
    recorder = RecorderProcess.start(tmp_path)
    pid = recorder_pid(recorder)
    recorder.command_started(os.getpid(), ["me"], 1)
    eventually(lambda: json.loads((recorder.ready.run / "run.json").read_text())["commands"])
    os.kill(pid, signal.SIGSTOP)
    assert recorder.finish(silence_s=0.2) is None
    assert recorder.lost
    assert "did not answer for 0.2 s" in recorder.remark
    eventually(lambda: gone(pid))
    result, _ = finish_run(recorder.ready.run, CommandRecord(os.getpid(), ("me",), 1, 2, 0))
    assert result.state == "stopped"


def test_a_recorder_that_not_even_sigkill_ends_is_not_waited_for(monkeypatch):
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    )
    try:
        with monkeypatch.context() as patched, theirs:
            patched.setattr(recorder_client.os, "killpg", lambda *_: None)
            patched.setattr(recorder_client, "_REAP_DEADLINE_S", 0.01)
            recorder_client.end(JsonSocket(ours), process, patience_s=0.0)
        assert process.returncode == 0
    finally:
        os.kill(process.pid, signal.SIGKILL)
        os.waitpid(process.pid, 0)


def test_a_recorder_is_reaped_where_a_faked_clock_has_sleeps_fail(monkeypatch):
    def fail(_):
        raise OSError(22, "Invalid argument")

    ours, theirs = socket.socketpair()
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    with theirs:
        monkeypatch.setattr(recorder_client.time, "sleep", fail)
        monkeypatch.setattr(recorder_client.os, "killpg", lambda *_: None)
        monkeypatch.setattr(recorder_client, "_REAP_DEADLINE_S", 60.0)
        recorder_client.end(JsonSocket(ours), process, patience_s=0.0)
    assert process.returncode == 3


def test_a_recorder_that_does_not_get_ready_is_killed_and_shown_to_be_missing(
    monkeypatch, tmp_path
):
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(recorder_client, "_START_DEADLINE_S", 0.1)
    monkeypatch.setattr(child, "_MAIN", "import time; time.sleep(600)")
    monkeypatch.setattr(
        child.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[0]
    )
    with pytest.raises(recorder_client.RecorderStartError, match="not ready after"):
        RecorderProcess.start(tmp_path)
    assert started[0].returncode == -signal.SIGKILL


def test_a_program_with_thousands_of_open_files_has_a_line_too():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    ours, theirs = socket.socketpair()
    high = socket.socket(fileno=fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, 1500))
    try:
        JsonSocket(theirs).send("hello")
        assert [each["kind"] for each in JsonSocket(high).receive(timeout_s=60)] == ["hello"]
    finally:
        for end in (ours, theirs, high):
            end.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


class SlowRecording:
    """Has its result once ``heard`` is set."""

    has_commands = True
    check_after_s = 60.0
    request = Request()

    def __init__(self, heard):
        self._heard = heard
        self.ready = recorder_client.Ready("run", (), 10.0)

    def look(self):
        return []

    def stop(self, *, stopped):
        pass

    def result(self):
        assert self._heard.wait(60)
        raise ValueError("none")


def test_while_the_result_is_computed_the_recorder_shows_so(monkeypatch):
    monkeypatch.setattr(recorder_process, "_WORKING_S", 0.01)
    ours, theirs = socket.socketpair()
    heard = threading.Event()
    serving = threading.Thread(
        target=lambda: RecorderServer(SlowRecording(heard), JsonSocket(theirs)).serve()
    )
    serving.start()
    wire = JsonSocket(ours)
    wire.send("goodbye")
    kinds = []
    while "result" not in kinds:
        messages = wire.receive(timeout_s=60)
        assert messages, "it says nothing"
        kinds += [message["kind"] for message in messages]
        if kinds.count("working") > 1:
            heard.set()
    serving.join()
    theirs.close()
    ours.close()
    assert kinds[0] == "ready"
