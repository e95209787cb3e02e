"""A ``joulewise sim`` in the background, for tests that are its clients."""

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SIM = [sys.executable, "-m", "joulewise", "sim", "--latency", "none"]
DEADLINE_S = 30


def eventually(condition):
    """Wait until ``condition`` holds; what must come true comes within the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not (result := condition()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)
    return result


def first_line(pipe):
    """The first line that comes through the pipe, which must come within the deadline."""
    assert select.select([pipe], [], [], DEADLINE_S)[0], "nothing was said"
    return pipe.readline()


def gone(pid):
    """Whether the process has ended (a zombie waits only for its parent)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@dataclass
class Sim:
    process: subprocess.Popen
    shared: str
    command_pid: int

    @property
    def folder(self):
        return Path(self.shared).parent

    def children(self):
        pid = self.process.pid
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]

    def kill(self, number=signal.SIGKILL):
        os.kill(self.process.pid, number)
        self.process.wait(DEADLINE_S)


@contextmanager
def running_sim(*options):
    """Simulated GPUs that live until the block ends."""
    script = 'echo "$JOULEWISE_SIM $$"; exec cat'
    process = subprocess.Popen(
        [*SIM, *options, "--", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        shared, pid = first_line(process.stdout).split()
        yield Sim(process, shared, int(pid))
        process.stdin.close()
        assert process.wait(DEADLINE_S) == 0 or process.returncode == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            pipe.close()
