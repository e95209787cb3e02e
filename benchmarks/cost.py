"""What measuring costs the job, beside what peers cost it, on simulated GPUs.

    .venv/bin/python benchmarks/cost.py recorder|training [--gpu v100x8] [--alone]

`recorder` (3 minutes): CPU time of watching alone. codecarbon and zeus are asked for the same
rates as ours, which does not say that they keep them; zeus, left to choose, polls as fast as it
can. `training` (6 minutes): what a training loses, see helpers/cost_training.py. The recorder has 8
GPUs unless told otherwise, the training, which is bound by its CPU, has one.
Every figure comes with its 95 % interval, whose upper end is what has to meet a limit. The
simulation itself is not counted: its calls take no longer than they need (`--latency none`).
"""

from __future__ import annotations

import argparse
import os
import sys

from helpers.cost_recorder import judge_recorder
from helpers.cost_training import judge_training
from helpers.peers import OURS, PEERS, Table, adopt_orphans, install, simulated

GPUS = {"recorder": "v100x8", "training": "v100"}


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("part", choices=GPUS)
    options.add_argument("--gpu", help="what is simulated")
    options.add_argument("--alone", action="store_true", help="leave the peers out")
    options.add_argument("--seconds", type=float, default=15, help="of each recorder and rate")
    options.add_argument("--pairs", type=int, default=2500, help="of blocks of a training")
    options.add_argument("--peer-pairs", type=int, default=250, help="of blocks, under a peer")
    options.add_argument(
        "--rounds", type=int, default=3, help="of trainings with marks and without"
    )
    options.add_argument(
        "--slow-down",
        type=float,
        default=0,
        metavar="PERCENT",
        help="put this much into the watched blocks of a training, to see whether it is found",
    )
    arguments = options.parse_args()
    tools = [OURS] if arguments.alone else [OURS, *PEERS]
    if "JOULEWISE_SIM" not in os.environ:
        install(*tools[1:])
        gpu = arguments.gpu or GPUS[arguments.part]
        command = [*simulated(gpu, "--workload", "resnet50"), sys.executable, *sys.argv]
        os.execv(command[0], command)

    adopt_orphans()
    table = Table()
    if arguments.part == "recorder":
        judge_recorder(table, tools, arguments.seconds)
    else:
        pairs = {tool: arguments.pairs if tool == OURS else arguments.peer_pairs for tool in tools}
        slowed = arguments.slow_down / 100
        judge_training(table, pairs, arguments.seconds, arguments.rounds, slowed)
    table.show()
    sys.exit(not table.all_met)


if __name__ == "__main__":
    main()
