"""Processes, pipes and terminals, for tests that look at ours from outside."""

import os
import pty
import select
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

JOULEWISE = [sys.executable, "-m", "joulewise"]
DEADLINE_S = 180  # a machine that is busy with other tests is slow; nothing is judged by it


def eventually(condition):
    """Wait until ``condition`` holds; what must come true comes within the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not (result := condition()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)
    return result


def first_line(pipe):
    """The first line that comes through the pipe, which must come within the deadline."""
    assert select.select([pipe], [], [], DEADLINE_S)[0], "nothing was said"
    return pipe.readline()


def state(pid):
    """The letter that the kernel has for it (R, S, T, Z and others); empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def gone(pid):
    """Whether the process has ended (a zombie waits only for its parent)."""
    return state(pid) in {"", "Z"}


def python(code):
    return ["--", sys.executable, "-c", f"import os, signal, sys, time\n{code}"]


# A handler may run within a print(), where another one fails as reentrant: it writes by itself.
INTERRUPTED_ONCE = """
import os, signal, sys
signal.signal(signal.SIGCONT, lambda *_: os.write(1, b"res" b"umed\\n"))
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
print("start" "ed", flush=True)
signal.sigwaitinfo({signal.SIGINT})
again = signal.sigtimedwait({signal.SIGINT}, 0.5)
print("interrupted", "twice" if again else "once")
sys.exit(5)
"""


def stop_resume_and_interrupt(command, tmp_path, environ=None):
    """What a terminal shows after Ctrl-Z, ``fg`` and Ctrl-C of a program in ``command``."""
    program = tmp_path / "program.py"
    program.write_text(INTERRUPTED_ONCE)
    line = " ".join([*command, "--", sys.executable, str(program)])
    with _shell_at_a_terminal(environ) as terminal:
        _type_in(terminal, f"{line}\n", "started")
        _type_in(terminal, "\x1a", "Stopped")
        _type_in(terminal, "fg; echo status=$?.\n", "resumed")
        return _type_in(terminal, "\x03", "status=5.")


@contextmanager
def _shell_at_a_terminal(environ):
    terminal, other_end = pty.openpty()
    take_it = "import fcntl, os, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    become_bash = "os.execvp('bash', ['bash', '--norc', '--noediting', '-i'])"
    shell = subprocess.Popen(
        [sys.executable, "-c", take_it + become_bash],
        stdin=other_end,
        stdout=other_end,
        stderr=other_end,
        start_new_session=True,
        env=environ,
    )
    os.close(other_end)
    try:
        yield terminal
    finally:
        shell.kill()
        shell.wait()
        os.close(terminal)


def _type_in(terminal, text, expected):
    """Type, then read until the terminal shows ``expected``."""
    os.write(terminal, text.encode())
    screen = ""
    while expected not in screen:
        assert select.select([terminal], [], [], DEADLINE_S)[0], screen
        screen += os.read(terminal, 4096).decode()
    return screen
