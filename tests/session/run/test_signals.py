"""Signals of the terminal, of the group and to joulewise alone: the command gets each once."""

import fcntl
import os
import signal
import struct
import termios
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.helpers.processes import DEADLINE_S, eventually, first_line, gone, state
from tests.helpers.run_processes import WAIT, running

TELLS = """
numbers = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
print(os.getpid(), flush=True)
while (came := signal.sigwaitinfo(numbers).si_signo) != signal.SIGUSR1:
    print(came, flush=True)
"""


@contextmanager
def running_at_a_terminal(store, code, ignored=(), before=()):
    """With the end of the terminal at which people are; joulewise leads the session of it.

    ``before`` are the words of a program that starts joulewise, and leads the session instead.
    """
    keyboard, screen = os.openpty()
    name = os.ttyname(screen)

    def lead_a_session():
        os.setsid()
        os.open(name, os.O_RDWR)
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    try:
        with running(store, code=code, preexec_fn=lead_a_session, before=before) as session:
            os.close(screen)
            yield session, keyboard
    finally:
        with suppress(OSError):
            os.close(keyboard)


def test_after_ctrl_c_a_signal_to_joulewise_alone_is_passed_on(tmp_path):
    with running_at_a_terminal(tmp_path, TELLS) as (session, keyboard):
        for _ in range(2):
            os.write(keyboard, b"\x03")
            assert first_line(session.process.stdout) == "2\n"
            eventually(lambda: not pending_in_joulewise(session.process.pid))
            session.process.send_signal(signal.SIGINT)
            assert first_line(session.process.stdout) == "2\n"
        session.process.send_signal(signal.SIGUSR1)
        assert session.process.wait(DEADLINE_S) == 0
        assert session.process.stdout.read() == ""


def test_a_new_size_of_the_window_comes_once_and_one_to_joulewise_alone_is_passed_on(tmp_path):
    code = TELLS.replace("numbers = {", "numbers = {signal.SIGWINCH, ")
    winch = f"{signal.SIGWINCH.value}\n"
    with running_at_a_terminal(tmp_path, code) as (session, keyboard):
        for columns in 90, 91:
            fcntl.ioctl(keyboard, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
            assert first_line(session.process.stdout) == winch
            eventually(lambda: not pending_in_joulewise(session.process.pid))
            session.process.send_signal(signal.SIGWINCH)
            assert first_line(session.process.stdout) == winch
        session.process.send_signal(signal.SIGUSR1)
        assert session.process.wait(DEADLINE_S) == 0
        assert session.process.stdout.read() == ""


def pending_in_joulewise(pid):
    """Two signals of a number that nobody has looked at are one."""
    (line,) = (x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if "ShdPnd" in x)
    return int(line.split()[1], 16)


def test_after_a_signal_of_the_command_to_its_group_one_to_joulewise_is_passed_on(tmp_path):
    code = TELLS.replace("while", "input()\nos.killpg(os.getpgrp(), signal.SIGTERM)\nwhile")
    with running(tmp_path, code=code, start_new_session=True) as session:
        session.process.stdin.write("\n")
        session.process.stdin.flush()
        assert first_line(session.process.stdout) == "15\n"
        eventually(lambda: not pending_in_joulewise(session.process.pid))
        session.process.send_signal(signal.SIGTERM)
        assert first_line(session.process.stdout) == "15\n"
        session.process.send_signal(signal.SIGUSR1)
        assert session.process.wait(DEADLINE_S) == 0


def children(pid):
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV], ids=["kill", "crash"])
def test_no_process_of_ours_outlives_joulewise(number, tmp_path):
    with running(tmp_path, start_new_session=True) as session:
        known = {session.command_pid, session.recorder_pid}
        eventually(lambda: children(session.process.pid) > known)  # the witness of signals
        started = children(session.process.pid)
        session.kill(session.process.pid, number)
        for pid in started:
            eventually(lambda pid=pid: gone(pid))


# All of a shell's words have its process group; it waits for them, and so leads their session.
SHELL = ["sh", "-c", '"$@"; exit $?', "sh"]


@pytest.mark.parametrize("before", [[], SHELL], ids=["leads the session", "in a group"])
def test_a_terminal_that_is_hung_up_ends_the_command(before, tmp_path):
    with running_at_a_terminal(tmp_path, WAIT, before=before) as (session, keyboard):
        os.close(keyboard)
        eventually(lambda: gone(session.command_pid))
        eventually(lambda: session.manifest()["state"] != "recording")
        if not before:
            assert session.process.wait(DEADLINE_S) == 128 + signal.SIGHUP
    assert session.manifest()["state"] == "complete"
    assert session.manifest()["exit_code"] == 128 + signal.SIGHUP


def test_a_terminal_that_is_hung_up_does_not_end_what_ignores_it(tmp_path):
    terminal = running_at_a_terminal(tmp_path, TELLS, ignored=[signal.SIGHUP])
    with terminal as (session, keyboard):
        os.close(keyboard)
        session.process.send_signal(signal.SIGTERM)
        assert first_line(session.process.stdout) == "15\n"
        session.process.send_signal(signal.SIGUSR1)
        assert session.process.wait(DEADLINE_S) == 0


def is_stopped(pid):
    return state(pid) == "T"


@pytest.mark.parametrize("number", [signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU])
def test_a_stop_of_joulewise_alone_stops_the_command_and_both_are_resumed(number, tmp_path):
    # A group of its own, whose parent is in the same session: in an orphaned process group, as that
    # of these tests may be, the kernel discards what stops a job.
    with running(tmp_path, code=TELLS, preexec_fn=os.setpgrp) as session:
        for _ in range(2):
            session.process.send_signal(number)
            eventually(lambda: is_stopped(session.command_pid) and is_stopped(session.process.pid))
            session.process.send_signal(signal.SIGCONT)
            session.process.send_signal(signal.SIGTERM)
            assert first_line(session.process.stdout) == "15\n"
            assert not is_stopped(session.process.pid)
        session.process.send_signal(signal.SIGUSR1)
        assert session.process.wait(DEADLINE_S) == 0


def test_a_command_that_ignores_ctrl_z_is_waited_for(tmp_path):
    terminal = running_at_a_terminal(tmp_path, TELLS, ignored=[signal.SIGTSTP])
    with terminal as (session, keyboard):
        os.write(keyboard, b"\x1a")
        session.process.send_signal(signal.SIGTERM)
        assert first_line(session.process.stdout) == "15\n"
        session.process.send_signal(signal.SIGUSR1)
        assert session.process.wait(DEADLINE_S) == 0


def test_a_command_that_somebody_stops_and_resumes_does_not_stop_joulewise(tmp_path):
    with running(tmp_path, code=TELLS) as session:
        os.kill(session.command_pid, signal.SIGSTOP)
        eventually(lambda: is_stopped(session.command_pid))
        os.kill(session.command_pid, signal.SIGCONT)
        session.process.send_signal(signal.SIGUSR1)
        assert session.process.wait(DEADLINE_S) == 0


def test_an_alarm_of_joulewise_reaches_the_command(tmp_path):
    """Such as one that was set before joulewise was started: a timer outlives an exec."""
    code = "signal.pthread_sigmask(signal.SIG_BLOCK, {14})\nprint(os.getpid(), flush=True)\n"
    code += "sys.exit(7 if signal.sigwaitinfo({14}) else 8)"
    with running(tmp_path, code=code) as session:
        session.process.send_signal(signal.SIGALRM)
        assert session.process.wait(DEADLINE_S) == 7
