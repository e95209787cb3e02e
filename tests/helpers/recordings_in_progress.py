"""A recording on simulated GPUs that goes on until it is told to end."""

import subprocess
import sys
from contextlib import contextmanager

from joulewise.store.runs import runs
from tests.helpers.processes import DEADLINE_S, JOULEWISE, eventually, first_line
from tests.helpers.run_processes import environment

TRAIN = """
import select, sys, joulewise
from joulewise.simulate import gpu
print("started", flush=True)
epoch = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    with joulewise.span("epoch", epoch, total=1000):
        gpu(0).step("resnet50", batch_size=128)
    epoch += 1
"""


@contextmanager
def recorded(store, *options, code=TRAIN, gpus="v100"):
    """Its process and its run; it ends when its stdin is closed, or the block does."""
    process = subprocess.Popen(
        [*JOULEWISE, "sim", "--gpu", gpus, "--latency", "none", "--",
         *JOULEWISE, "--store", str(store), "run", *options, "--", sys.executable, "-c", code],
        env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert first_line(process.stdout) == "started\n"
        (run,) = runs(store)
        eventually((run / "live.json").exists)
        yield process, run
    finally:
        process.stdin.close()
        process.stdout.read()
        process.stdout.close()
        try:
            process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
