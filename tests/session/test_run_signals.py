"""Signals of the terminal, of the group and to joulewise alone: the command gets each once."""

import fcntl
import os
import signal
import struct
import termios
from contextlib import contextmanager
from pathlib import Path

import pytest
from running_run import running

from processes import DEADLINE_S, eventually, first_line, gone

TELLS = """
numbers = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
print(os.getpid(), flush=True)
while (came := signal.sigwaitinfo(numbers).si_signo) != signal.SIGUSR1:
    print(came, flush=True)
"""


@contextmanager
def running_at_a_terminal(store, code):
    """With the end of the terminal at which people are."""
    keyboard, screen = os.openpty()
    name = os.ttyname(screen)

    def lead_a_session():
        os.setsid()
        os.open(name, os.O_RDWR)

    try:
        with running(store, code=code, preexec_fn=lead_a_session) as session:
            yield session, keyboard
    finally:
        os.close(screen)
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
