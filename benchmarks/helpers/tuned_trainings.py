"""A training under ``joulewise tune`` on simulated GPUs in real time, which its caller ends."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from helpers.kill_rounds import MARK, kill_all
from joulewise.data.tuning import Tuning
from joulewise.simulate.nvml.shared_memory import SharedGpuMemory
from joulewise.store.runs import runs
from joulewise.store.tuning_file import read_tuning

STATUS = 7  # how the training exits
TRAINING = str(Path(__file__).parents[1] / "told_training.py")
# Tells its environment, and stays until its input ends: what is started with that environment
# finds the GPUs.
_STAY = "import json, os, sys; print(json.dumps(dict(os.environ)), flush=True); sys.stdin.read()"
_START_S = 120.0  # chosen: a busy machine takes ten seconds
_POLL_S = 0.2


@dataclass(frozen=True)
class Simulation:
    """Simulated GPUs, and the environment in which programs see them."""

    environ: dict[str, str]
    gpus: SharedGpuMemory


@contextmanager
def simulation(gpus: str, *options: str) -> Iterator[Simulation]:
    """GPUs that live until the block ends, with all that was started there."""
    mark = secrets.token_hex(8)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "joulewise", "sim", "--gpu", gpus, "--as-root", *options),
            *("--", sys.executable, "-c", _STAY),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, MARK: mark},
    )
    assert process.stdout is not None
    try:
        environ = json.loads(process.stdout.readline())
        yield Simulation(environ, SharedGpuMemory.open(environ["JOULEWISE_SIM"]))
        process.communicate("")  # the truth is complete when it has ended
    finally:
        kill_all(mark)
        process.kill()
        process.communicate()


@dataclass(frozen=True)
class TunedTraining:
    """``joulewise tune`` with its training, and the store of its run."""

    front: subprocess.Popen[str]
    pids: tuple[int, ...]  # of the command, and of its ranks where it has told them
    store: Path
    mark: str  # in the environment of all its processes

    @property
    def run(self) -> Path:
        (only,) = runs(self.store)
        return only

    @property
    def tuning(self) -> Tuning | None:
        return read_tuning(self.run) if runs(self.store) else None

    def train(self, network: str, batch_size: int) -> None:
        """Train this from now on."""
        assert self.front.stdin is not None
        self.front.stdin.write(f"{network} {batch_size}\n")
        self.front.stdin.flush()

    def wait_until(self, condition: Callable[[Tuning], bool], patience_s: float) -> Tuning | None:
        """The tuning when this became true of it; None where it did not in that time."""
        deadline_s = time.monotonic() + patience_s
        while time.monotonic() < deadline_s and self.front.poll() is None:
            tuning = self.tuning
            if tuning is not None and condition(tuning):
                return tuning
            time.sleep(_POLL_S)
        return None

    def finish(self) -> tuple[str, str, int]:
        """Let the training end; its output, what was said, and the exit status."""
        out, said = self.front.communicate("", timeout=_START_S)
        return out, said, self.front.returncode


@contextmanager
def tuned_training(
    where: Simulation,
    store: Path,
    load: Sequence[str],
    options: Sequence[str] = (),
    *,
    program: Sequence[str] = (TRAINING,),
) -> Iterator[TunedTraining]:
    """``load`` are the words after the training's ``program``, all that Python is given."""
    mark = secrets.token_hex(8)
    front = subprocess.Popen(
        [
            *(sys.executable, "-m", "joulewise", "--store", str(store), "tune", *options),
            *("--", sys.executable, *program, *load),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**where.environ, MARK: mark},
    )
    assert front.stdout is not None
    try:
        line = front.stdout.readline()
        if not line:
            raise RuntimeError(front.communicate()[1])
        yield TunedTraining(front, tuple(map(int, line.split())), store, mark)
    finally:
        kill_all(mark)
        front.kill()
        front.communicate()
