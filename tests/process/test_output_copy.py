"""The output of a command, copied: the same bytes in the same order, whatever happens beside."""

import os
import pty
import signal
import socket
import subprocess
import sys

import pytest

from joulewise.process.output_copy import _Copied, _Copier
from tests.helpers.processes import DEADLINE_S

# Runs a command with its output copied. What the listener gets is written to the file of $HEARD.
COPYING = """
import os, pathlib, select, subprocess, sys, tempfile
from joulewise.process.output_copy import CopiedOutput, OutputListener
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "output")
    os.mkfifo(path)
    listener, output = OutputListener(path), CopiedOutput(path)
children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
environ = {**os.environ, "COPIER": min(children)}
child = subprocess.Popen(
    sys.argv[1:], close_fds=False, env=environ,
    stdout=None if output.streams[0] == 1 else output.streams[0], stderr=output.streams[1],
)
output.started()
heard = []
while child.poll() is None:
    select.select(output.descriptors, [], [], 0.02)
    output.check()
    heard += [] if os.environ.get("DEAF") else listener.poll()
output.drain()
heard += listener.poll()
with open(os.environ["HEARD"], "wb") as file:
    file.write(b"".join(part.text for part in heard))
sys.exit(child.returncode)
"""


@pytest.fixture
def heard(tmp_path):
    return tmp_path / "heard"


def copying(heard, code, **more):
    environ = {**os.environ, "HEARD": str(heard), **more.pop("environ", {})}
    words = [sys.executable, "-c", COPYING, sys.executable, "-c", code]
    return subprocess.run(
        words, env=environ, timeout=DEADLINE_S, check=False, **{"capture_output": True, **more}
    )


MIXED = """
import os, sys
for number in range(500):
    os.write(1, b"out %d \\x1b[32m\\xff\\x00\\r\\n" % number)
    os.write(2, b"err %d\\r" % number)
sys.exit(7)
"""
OUT = b"".join(b"out %d \x1b[32m\xff\x00\r\n" % number for number in range(500))
ERR = b"".join(b"err %d\r" % number for number in range(500))
BOTH = b"".join(b"out %d \x1b[32m\xff\x00\r\nerr %d\r" % (number, number) for number in range(500))


def test_bytes_and_exit_status_are_the_commands(heard):
    done = copying(heard, MIXED)
    assert (done.stdout, done.stderr, done.returncode) == (OUT, ERR, 7)
    assert len(heard.read_bytes()) == len(OUT) + len(ERR)


def test_two_streams_to_one_place_keep_their_order(heard):
    done = copying(heard, MIXED, capture_output=False, stdout=-1, stderr=subprocess.STDOUT)
    assert done.stdout == heard.read_bytes() == BOTH


def test_a_command_ended_by_a_signal(heard):
    code = "import os; os.write(1, b'last words'); os.kill(os.getpid(), 15)"
    done = copying(heard, code)
    assert (done.stdout, heard.read_bytes()) == (b"last words", b"last words")
    assert done.returncode in {-signal.SIGTERM, 256 - signal.SIGTERM}


def test_on_a_terminal_the_command_has_a_terminal_of_that_size(heard):
    code = "import os; print([os.isatty(n) for n in (1, 2)], *os.get_terminal_size(1)); print('b')"
    ours, its = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as reader:
        import fcntl
        import struct
        import termios

        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 31, 97, 0, 0))
        done = copying(heard, code, capture_output=False, stdout=its, stderr=its)
        os.close(its)
        assert done.returncode == 0
        assert reader.read(1000) == b"[True, True] 97 31\r\nb\r\n"  # one \r of the real terminal
    assert heard.read_bytes() == b"[True, True] 97 31\nb\n"


def test_a_reader_that_goes_away_ends_the_command_as_it_would_without_us(heard):
    code = "import signal, os\nsignal.signal(13, 0)\nwhile True: os.write(1, b'x' * 1000)"
    environ = {**os.environ, "HEARD": str(heard)}
    words = [sys.executable, "-c", COPYING, sys.executable, "-c", code]
    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE) as process:
        assert process.stdout.read(10) == b"x" * 10
        process.stdout.close()
        assert process.wait(DEADLINE_S) == 256 - signal.SIGPIPE


def test_a_copier_that_is_killed_is_replaced(heard):
    code = (
        "import os, time\n"
        "os.write(1, b'before\\n'); time.sleep(0.3)\n"
        "os.kill(int(os.environ['COPIER']), 9)\n"
        "for n in range(20000): os.write(1, b'%d\\n' % n)\n"
    )
    done = copying(heard, code)
    assert done.returncode == 0
    assert done.stdout == b"before\n" + b"".join(b"%d\n" % n for n in range(20000))


def test_a_listener_that_does_not_listen_holds_nothing_up(heard):
    code = "import os\nfor n in range(300): os.write(1, b'y' * 10000)"
    done = copying(heard, code, environ={"DEAF": "1"})
    assert done.stdout == b"y" * 3_000_000
    assert 0 < len(heard.read_bytes()) < 3_000_000


def test_a_child_that_outlives_the_command_keeps_its_output(heard):
    code = (
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import sys; input(); print(1 + 1)'])\n"
        "print('parent')\n"
    )
    environ = {**os.environ, "HEARD": str(heard)}
    words = [sys.executable, "-c", COPYING, sys.executable, "-c", code]
    with subprocess.Popen(
        words, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.wait(DEADLINE_S) == 0
        assert process.communicate("\n", DEADLINE_S)[0] == "parent\n2\n"


def test_a_closed_stdout_stays_closed(heard):
    code = (
        "import os\n"
        "try: os.write(1, b'x')\n"
        "except OSError as error: os.write(2, error.strerror.encode())\n"
    )
    done = copying(heard, code, preexec_fn=lambda: os.close(1))
    assert (done.stderr, heard.read_bytes()) == (b"Bad file descriptor",) * 2


# The front process stays, and neither waits for the copier nor closes its ends.
ENDING = """
import os, pathlib, signal, subprocess, sys, tempfile
from joulewise.process.output_copy import CopiedOutput, OutputListener

def own_ends():
    return len(os.listdir("/proc/self/fd"))

before = own_ends()
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "output")
    os.mkfifo(path)
    listener, output = OutputListener(path), CopiedOutput(path)
signal.alarm(60)  # an end that stays open would be waited for without end
(copier,) = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
child = subprocess.Popen(["true"], stdout=output.streams[0], stderr=output.streams[1])
output.started()
child.wait()
_, status = os.waitpid(int(copier), 0)
output.check()
output.close()
listener.close()
sys.exit(f"left open: {own_ends() - before}" if own_ends() != before else status)
"""


def test_the_last_end_that_the_command_closes_is_the_end_of_its_output():
    """Neither the front process nor the copier keeps an end at which the command could write."""
    done = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, timeout=DEADLINE_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_copier_goes_on_when_the_front_process_is_killed():
    """Also before it has heard all that the copier told it."""
    front, its = socket.socketpair()
    its.send(b"unheard")
    front.close()
    (source, command), (reader, target) = os.pipe(), os.pipe()
    os.write(command, b"still here")
    os.close(command)
    with its:
        _Copier([_Copied(source, target, is_terminal=False)], its, listener=-1).run()
    assert os.read(reader, 100) == b"still here"
    os.close(reader)
    os.close(target)
