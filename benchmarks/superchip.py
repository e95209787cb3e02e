"""Superchips: whether the total of a run on simulated GH200 modules is what they truly drew.

    python benchmarks/superchip.py [--seeds 3]

Each program runs on simulated modules in real time, measured by ``joulewise run``. The CPU of a
module draws with the load of this machine. *off* is the total less the truth, *twice* the same
where the CPU (modelled) and the memory (assumed) are added to a counter that contains them. It
exits with 1 unless, for every program, the total is within its error (95 %) of the truth in all
but one of ten runs or fewer, and the sum that counts twice is not.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

JOULEWISE: Final = (sys.executable, "-m", "joulewise")
# No counter of this machine's own CPUs, and the model of a Grace: 12 W for each of 72 cores of a
# CPU that is not in the table (devices/cpu_model.py).
_NODE: Final = {
    "JOULEWISE_POWERCAP": "/nonexistent",
    "JOULEWISE_HWMON": "/nonexistent",
    "JOULEWISE_CPU_TDP": "864",
}
_HEAD: Final = """
import multiprocessing, sys, time
from joulewise.simulate import gpu
def compute(for_s):
    end_s = time.monotonic() + for_s
    while time.monotonic() < end_s:
        sum(range(1000))
"""


@dataclass(frozen=True)
class Program:
    """A program, the modules it runs on, and those that it uses."""

    name: str
    gpus: str
    used: tuple[int, ...]
    code: str


PROGRAMS: Final = (
    Program("GPU alone", "gh200", (0,), "gpu(0).step('resnet50', steps=25)"),
    Program(
        "GPU and CPU",
        "gh200",
        (0,),
        "busy = multiprocessing.Process(target=compute, args=(4,))\n"
        "busy.start()\ngpu(0).step('resnet50', steps=25)\nbusy.join()",
    ),
    Program(
        "in turns",
        "gh200",
        (0,),
        "for _ in range(4):\n    gpu(0).step('vgg19', steps=3)\n    compute(0.7)",
    ),
    Program(
        "two modules",
        "gh200x2",
        (0, 1),
        "import threading\n"
        "threads = [threading.Thread(target=gpu(i).step, args=('resnet50', None, 20 + 10 * i))\n"
        "           for i in range(2)]\n"
        "[thread.start() for thread in threads]\n[thread.join() for thread in threads]",
    ),
    Program("one of two", "gh200x2", (1,), "gpu(1).step('resnet50', steps=25)"),
)


@dataclass(frozen=True)
class Outcome:
    """What a run came to, in J. ``twice_j`` has what is inside the modules added once more."""

    result: dict[str, Any]
    total_j: float
    error_j: float
    truth_j: float
    gpu_truth_j: float
    twice_j: float

    @property
    def holds(self) -> bool:
        """Whether the truth is within the error of the total."""
        return abs(self.total_j - self.truth_j) <= self.error_j

    @property
    def twice_holds(self) -> bool:
        """Whether it would be, were the CPU and the memory counted twice."""
        return abs(self.twice_j - self.truth_j) <= self.error_j


def measure(program: Program, seed: int, folder: Path) -> Outcome:
    """Run the program once, on the boards of this seed."""
    truth, payload = folder / "truth.csv", folder / "result.json"
    simulated = ["sim", "--gpu", program.gpus, "--seed", str(seed), "--truth", str(truth), "--"]
    command = ["run", "--json", str(payload), "--", sys.executable, "-c", _HEAD + program.code]
    subprocess.run(
        [*JOULEWISE, *simulated, *JOULEWISE, *command],
        cwd=folder,
        env={**os.environ, **_NODE},
        check=True,
        capture_output=True,
    )
    result = json.loads(payload.read_text())
    total, inside = result["energy_j"]["total"], [out["device"] for out in result["excluded"]]
    beside = [key for key in inside if not key.startswith("gpu")]
    start_ns = result["start_monotonic_ns"]
    window_ns = (start_ns, start_ns + result["time_s"] * 1e9)
    return Outcome(
        result,
        total["value"],
        total["error"],
        sum(drawn_j(truth, gpu, window_ns, "energy_j") for gpu in program.used),
        sum(drawn_j(truth, gpu, window_ns, "gpu_only_j") for gpu in program.used),
        total["value"] + sum(result["energy_j"][key]["value"] for key in beside),
    )


def drawn_j(truth: Path, gpu: int, window_ns: tuple[float, float], column: str) -> float:
    """What the truth file says of one module."""
    with truth.open() as file:
        rows = [row for row in csv.DictReader(file) if row["gpu"] == str(gpu)]
    t_ns = np.array([int(row["monotonic_ns"]) for row in rows], float)
    joules = np.array([float(row[column]) for row in rows])
    before, after = np.interp(window_ns, t_ns, joules)
    return float(after - before)


def main(seeds: int) -> int:
    heads = ("truth J", "total J", "error", "off", "twice")
    print(f"{'program':12} seed  " + " ".join(f"{head:>8}" for head in heads))
    failed = 0
    for program in PROGRAMS:
        outcomes = []
        for seed in range(seeds):
            with tempfile.TemporaryDirectory() as folder:
                one = measure(program, seed, Path(folder))
            outcomes.append(one)
            off, twice = ((each - one.truth_j) / one.truth_j for each in (one.total_j, one.twice_j))
            print(
                f"{program.name:12} {seed:4} {one.truth_j:9.1f} {one.total_j:9.1f} "
                f"{one.error_j / one.truth_j:7.1%} {off:+7.1%} {twice:+7.1%}"
            )
        missed = sum(not one.holds for one in outcomes)
        failed += missed > seeds // 10 or any(one.twice_holds for one in outcomes)
    print("FAILED" if failed else "all totals hold, and none would with a CPU counted twice")
    return int(bool(failed))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    sys.exit(main(parser.parse_args().seeds))
