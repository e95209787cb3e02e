"""What a sweep in virtual time costs: 31 power limits five times, each run stored and analysed.

    python benchmarks/virtual_sweep.py [--rounds 5] [--gpu v100] [--workload resnet50]

CPU time of the verb and of all it starts, imports included. The least of several rounds counts,
since other work on the machine only adds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from helpers.peers import JOULEWISE, adopt_orphans, cost_s
from helpers.verdict import Verdicts

from joulewise.store.runs import read_summary, runs

MOST_S = 4.0
REPEAT = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gpu", default="v100")
    parser.add_argument("--workload", default="resnet50")
    options = parser.parse_args()

    adopt_orphans()
    what = ["--sim", options.gpu, "--workload", options.workload]
    costs = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            store = Path(folder) / "runs"
            sweep = ["sweep", *what, "--power-limit", "full", "--repeat", str(REPEAT)]
            cpu_s, wall_s = cost_s([JOULEWISE, "--store", str(store), *sweep], Path(folder))
            made = [read_summary(run) for run in runs(store)]
        analysed = sum(each is not None for each in made)
        costs.append(cpu_s)
        print(
            f"{analysed} runs: {cpu_s:5.2f} s of CPU ({1e3 * cpu_s / analysed:4.1f} ms a run)",
            end="",
        )
        print(f", {wall_s:5.2f} s on the wall")
    verdicts = Verdicts()
    verdicts.at_most(f"{analysed} runs in virtual time, CPU s", min(costs), MOST_S, percent=False)
    verdicts.show()
    return 0 if verdicts.all_met else 1


if __name__ == "__main__":
    sys.exit(main())
