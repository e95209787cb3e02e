"""What is left of a command: found, asked to end, killed, or told of."""

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from joulewise.session import termination as ending_module
from joulewise.session.termination import (
    COMMAND,
    CommandTermination,
    left_running,
    list_names,
    processes,
)
from tests.helpers.processes import eventually, first_line, gone, python
from tests.helpers.run_processes import manifest, run

SAVES = """
import signal, sys, time
def save(*_):
    time.sleep({save_s})
    open({file!r}, "w").write("saved")
    sys.exit()
signal.signal(signal.SIGTERM, save)
open({file!r} + ".ready", "w").close()
time.sleep(600)
"""
TELLS = """
import signal, sys
numbers = {signal.SIGTERM, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
print("ready", flush=True)
while (came := signal.sigwaitinfo(numbers).si_signo) != signal.SIGUSR1:
    print(came, flush=True)
"""


def test_what_runs_behind_a_shell_has_the_whole_grace_to_save(tmp_path):
    """Longer than what is left of a killed command has."""
    saved, program = tmp_path / "saved", tmp_path / "train.py"
    program.write_text(SAVES.format(save_s=4, file=str(saved)))
    shell = f"'{sys.executable}' '{program}'; true"
    done = run(tmp_path / "store", "--budget", "2s:stop", "--", "sh", "-c", shell)
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert (tmp_path / "saved.ready").exists(), "the machine is too slow for this test"
    assert saved.read_text() == "saved"
    assert "killed" not in done.stderr


@pytest.fixture
def program(request):
    """A process of a command whose token is the test's name."""
    token = request.node.name
    process = subprocess.Popen(
        [sys.executable, "-c", TELLS],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, COMMAND: token},
    )
    try:
        assert first_line(process.stdout) == "ready\n"
        yield token, process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_each_is_requested_once_and_killed_by_name_when_there_is_hurry(program):
    token, process = program
    assert [each.pid for each in processes(token)] == [process.pid]
    ending = CommandTermination(token)
    assert ending.ask()
    assert ending.ask()
    asked = iter([False, False, True])
    (name,) = ending.end(600, lambda: next(asked))
    assert name.endswith(f"({process.pid})")
    assert process.wait() == -signal.SIGKILL
    assert process.stdout.read() == f"{int(signal.SIGTERM)}\n"
    assert not ending.ask()


def test_the_command_itself_is_ended_though_it_overwrote_its_environment(program):
    _, process = program
    ending = CommandTermination("another", process.pid)
    assert ending.ask()
    assert first_line(process.stdout) == f"{int(signal.SIGTERM)}\n"
    process.send_signal(signal.SIGUSR1)
    process.wait()
    assert ending.end(0) == []


def test_one_that_is_stopped_is_resumed_to_end(program):
    """It would have cost the whole grace, and would not have saved anything."""
    token, process = program
    process.send_signal(signal.SIGSTOP)
    eventually(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    CommandTermination(token).ask()
    assert first_line(process.stdout) == f"{int(signal.SIGTERM)}\n"


class PlayedProcess:
    def __init__(self, pid, start_s, order):
        self.pid, self.start_s, self.order = pid, start_s, order

    def create_time(self):
        return self.start_s

    def terminate(self):
        self.order.append(self.pid)

    def status(self):
        return psutil.STATUS_RUNNING


@pytest.mark.parametrize("own", [None, 7])
def test_parents_are_requested_before_their_children(monkeypatch, own):
    """A shell whose child is gone first ends as if nothing had stopped it."""
    order = []
    starts_s = {9: 3.0, 4: 2.0, 7: 2.0, 5: 1.0, 11: 3.5, 12: 3.5, 13: 4.0}
    all_of_it = {pid: PlayedProcess(pid, start_s, order) for pid, start_s in starts_s.items()}
    monkeypatch.setattr(ending_module, "processes", lambda *_: set(all_of_it.values()))
    ending = CommandTermination("token")
    ending._own = all_of_it.get(own)
    ending.ask()
    first = [5, 4, 7] if own is None else [7, 5, 4]
    assert order == [*first, 9, 11, 12, 13]


def test_what_ends_a_moment_later_is_not_left_running(program):
    token, process = program
    assert len(left_running(token, 0)) == 1
    process.send_signal(signal.SIGUSR1)
    assert left_running(token, 60) == []


def test_one_that_is_about_to_start_is_found_though_it_has_no_environment_yet(program, monkeypatch):
    """Its parent goes on as soon as the kernel has closed its files, and may be gone by then."""
    token, process = program
    opened = []

    def open_late(path, *how):
        opened.append(path)
        ours = path == f"/proc/{process.pid}/environ" and opened.count(path) < 3
        return io.BytesIO() if ours else Path(path).open(*how)

    monkeypatch.setattr(ending_module, "open", open_late, raising=False)
    monkeypatch.setattr(ending_module, "_is_starting", lambda _: True)  # however busy it is here
    assert [each.pid for each in processes(token)] == [process.pid]


@pytest.mark.parametrize(("age_s", "is_starting"), [(0.2, True), (5.0, False)])
def test_a_program_is_about_to_start_for_a_moment(program, monkeypatch, age_s, is_starting):
    _, process = program
    start_s = psutil.Process(process.pid).create_time() - psutil.boot_time()
    monkeypatch.setattr(ending_module.time, "clock_gettime", lambda _: start_s + age_s)
    assert ending_module._is_starting(str(process.pid)) is is_starting


def test_a_program_without_an_environment_is_none_of_a_command():
    with subprocess.Popen(["sleep", "60"], env={}) as process:
        try:
            assert ending_module._environ(str(process.pid)) == b""
            assert process.pid not in {each.pid for each in processes("token")}
        finally:
            process.kill()


def test_many_are_not_all_named():
    assert list_names(["a (1)"]) == "a (1)"
    assert (
        list_names(["a (1)", "b (2)", "c (3)", "d (4)", "e (5)"])
        == "a (1), b (2), c (3) and 2 more"
    )


def test_a_process_that_the_command_leaves_running_is_reported(tmp_path):
    code = """
import subprocess
nothing = subprocess.DEVNULL
sleep = subprocess.Popen(["sleep", "600"], stdin=nothing, stdout=nothing, stderr=nothing)
print(sleep.pid)
"""
    done = run(tmp_path, *python(code))
    pid = int(done.stdout)
    try:
        result = f"a process of the command still runs and is not counted: sleep ({pid})"
        assert done.returncode == 0
        assert f"warning: {result}" in done.stderr
        assert "joulewise run --pid" in done.stderr
        notes = [n for n in manifest(tmp_path)["notes"] if n["code"] == "left_running"]
        assert [note["message"] for note in notes] == [result]
        assert not gone(pid)
    finally:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: gone(pid))


def test_a_command_that_leaves_nothing_has_no_such_warning(tmp_path):
    assert "goes on" not in run(tmp_path, "true").stderr
