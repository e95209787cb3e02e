"""A job on a simulated GPU under `joulewise run`, for tests that follow it while it runs."""

import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np

from joulewise.store.runs import runs
from tests.helpers.processes import DEADLINE_S, JOULEWISE, first_line
from tests.helpers.run_processes import environment

TRAIN = """
import select, sys, joulewise
from joulewise.simulate import gpu
print("started", flush=True)
step = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    with joulewise.span("step", step):
        gpu(0).step("resnet50", batch_size=64)
    step += 1
"""


@contextmanager
def live_job(folder, *options, board="v100", code=TRAIN):
    """The run of a job that trains until ``end()``, which waits for the result."""
    process = subprocess.Popen(
        [*JOULEWISE, "sim", "--gpu", board, "--latency", "none", "--truth",
         str(folder / "truth.csv"), *options, "--", *JOULEWISE, "--store", str(folder), "run",
         "--", sys.executable, "-c", code],
        env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip

    def end():
        process.stdin.close()
        process.stdout.read()
        process.wait(DEADLINE_S)

    try:
        assert first_line(process.stdout) == "started\n"
        (run,) = runs(folder)
        yield run, end
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def true_energy_j(folder, windows_ns):
    """What the GPU's sensor would have shown of these windows if it missed nothing."""
    rows = np.genfromtxt(folder / "truth.csv", delimiter=",", skip_header=1)
    sensed_j = [np.interp(times_ns, rows[:, 0], rows[:, 3]) for times_ns in windows_ns.T]
    return sensed_j[1] - sensed_j[0]


def poll_until(condition, poll, period_s=0.1):
    """Poll ten times a second until the condition holds."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, "it never came true"
        poll()
        time.sleep(period_s)
