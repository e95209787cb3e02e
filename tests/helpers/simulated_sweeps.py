"""``joulewise sweep`` and its parts on GPUs of a ``joulewise sim`` that a test starts."""

import json
import os
import subprocess
import sys

from tests.helpers.processes import JOULEWISE

UNRULED = {"SLURM_JOB_ID": "", "KUBERNETES_SERVICE_HOST": ""}  # as in an ordinary login
TRAIN = """
import sys
import joulewise
from joulewise.simulate.client import gpu
for epoch in range(2):
    with joulewise.span("epoch", epoch):
        for step in range(int(sys.argv[1])):
            with joulewise.span("step", step):
                gpu(0).step("resnet50", batch_size=32)
"""
LIMITS = ("nvidia-smi", "--query-gpu=power.limit", "--format=csv,noheader,nounits")


def simulated(folder, script, *arguments, gpu="v100x2", options=()):
    """Run a Python script on simulated GPUs, and what it said."""
    (folder / "train.py").write_text(TRAIN)
    (folder / "script.py").write_text(script)
    sim = [*JOULEWISE, "sim", "--gpu", gpu, "--as-root", *options, "--"]
    return subprocess.run(
        [*sim, sys.executable, "script.py", *arguments],
        cwd=folder,
        env={**os.environ, **UNRULED},
        capture_output=True,
        text=True,
        check=False,
    )


def run_script(folder, script, *arguments, gpu="v100x2"):
    """What such a script printed last, as JSON."""
    ran = simulated(folder, script, *arguments, gpu=gpu)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])
