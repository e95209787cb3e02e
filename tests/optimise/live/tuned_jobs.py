"""A training under `joulewise tune` on a simulated V100, which ends when its test says so."""

import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from joulewise.data.tuning import TuningState
from joulewise.store.tuning_file import read_tuning
from tests.helpers.processes import DEADLINE_S, JOULEWISE, gone
from tests.helpers.run_processes import environ_of, runs
from tests.helpers.sim_processes import running_sim

BEFORE_W = 300
STATUS = 7
# Trains until its standard input ends.
TRAINING = f"""
import os, select, sys
import joulewise
from joulewise.simulate import gpu
print(os.getpid(), flush=True)
board, number = gpu(0), 0
with joulewise.span("training"):
    while not select.select([sys.stdin], [], [], 0)[0]:
        with joulewise.span("step", number):
            board.step("resnet50", batch_size=16)
        joulewise.log(loss=1 + 0.1 * (number * 7 % 10))
        number += 1
print("trained", flush=True)
sys.exit({STATUS})
"""


@dataclass
class Tuned:
    """A tuning under way, and the environment in which its GPUs are seen."""

    process: subprocess.Popen
    command_pid: int
    store: Path
    environ: dict

    @property
    def run(self):
        (only,) = runs(self.store)
        return only

    def limit_w(self):
        """The power limit of the only GPU."""
        (limit_w,) = self.limits_w()
        return limit_w

    def limits_w(self):
        query = ["nvidia-smi", "--query-gpu=power.limit", "--format=csv,noheader,nounits"]
        shown = subprocess.run(query, env=self.environ, capture_output=True, text=True, check=False)
        assert shown.returncode == 0, shown.stdout + shown.stderr
        return [float(line) for line in shown.stdout.splitlines()]

    def pid_of(self, module):
        """The process of ours that runs this module, on these GPUs."""
        for path in Path("/proc").glob("[0-9]*"):
            try:
                words = (path / "cmdline").read_bytes().split(b"\0")
                ours = environ_of(path.name).get("JOULEWISE_SIM") == self.environ["JOULEWISE_SIM"]
            except (OSError, ProcessLookupError):
                continue
            if module.encode() in words and ours and not gone(path.name):
                return int(path.name)
        return 0

    def held(self):
        """The tuning, once a setting was chosen; 25 s on an idle machine."""
        deadline_s = time.monotonic() + 5 * DEADLINE_S
        while True:
            assert time.monotonic() < deadline_s, "nothing was chosen"
            found = read_tuning(self.run) if runs(self.store) else None
            if found and found.state is TuningState.HOLDING:
                return found
            if found and found.state is TuningState.ENDED:
                raise AssertionError(found.reason)
            assert self.process.poll() is None, self.process.stderr.read()
            time.sleep(0.5)

    def finish(self):
        """Let the training end; its output, what was said, and the exit status."""
        out, said = self.process.communicate("", timeout=DEADLINE_S)
        return out, said, self.process.returncode


@contextmanager
def tuning(
    store,
    *options,
    program=("-c", TRAINING),
    boards="v100",
    environ=None,
    sim=(),
    joulewise=JOULEWISE,
):
    with running_sim("--gpu", boards, "--as-root", *sim) as simulated:
        environ = {**environ_of(simulated.command_pid), **(environ or {})}
        process = subprocess.Popen(
            [*joulewise, "--store", str(store), "tune", *options, "--", sys.executable, *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environ,
        )
        try:
            pid = int(process.stdout.readline().split()[0])
            yield Tuned(process, pid, store, environ)
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                pipe.close()
