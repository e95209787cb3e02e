"""A ``joulewise sim`` in the background, for tests that are its clients."""

import os
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.processes import DEADLINE_S, JOULEWISE, first_line

SIM = [*JOULEWISE, "sim", "--latency", "none"]
# Says which process it is, and then every line that it is told, until its input ends. It stays the
# program that it is: /proc shows a process that starts another one as one without an environment.
WAIT = 'echo "$JOULEWISE_SIM $$"; while read -r line; do echo "$line"; done'


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
    process = subprocess.Popen(
        [*SIM, *options, "--", "sh", "-c", WAIT],
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
