"""What it costs to measure a command that does nothing: `true`, under joulewise and its peers.

    .venv/bin/python benchmarks/start_up.py [--rounds 21] [--alone]

CPU time of every process that a tool starts, the detached ones too, until the last has ended.
The tools take turns in random order, and a round counts only as a whole. codecarbon wraps the
command as ours does; zeus has no such verb, so a script of five lines opens a window around it.
To be met: at most half of codecarbon's CPU time, by the upper end of the ratio's interval.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from helpers.peers import (
    JOULEWISE,
    OURS,
    Figure,
    Table,
    adopt_orphans,
    cost_s,
    install,
    interval,
    program,
    simulated,
)

ZEUS = """
import subprocess
from zeus.monitor import ZeusMonitor
monitor = ZeusMonitor(approx_instant_energy=True)
monitor.begin_window("run", sync_execution=False)
subprocess.run(["true"], check=True)
print(monitor.end_window("run", sync_execution=False))
"""
COMMANDS = {
    OURS: [JOULEWISE, "run", "--", "true"],
    "codecarbon": [
        *[program("codecarbon", "codecarbon"), "monitor", "--offline"],
        *["--country-iso-code", "GBR", "--", "true"],
    ],
    "zeus": [program("zeus"), "-c", ZEUS],
}
MACHINES = {"no simulated GPU": [], "1 simulated GPU": simulated("v100")}
AIM_S = 0.6


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=21)
    options.add_argument("--alone", action="store_true", help="leave the peers out")
    options.add_argument("--take-turns", action="store_true", help=argparse.SUPPRESS)
    arguments = options.parse_args()
    tools = [OURS] if arguments.alone else list(COMMANDS)
    if arguments.take_turns:
        print(json.dumps(take_turns(tools, arguments.rounds)))
        return

    install(*tools[1:])
    table = Table()
    itself = [sys.executable, *sys.argv, "--take-turns"]
    for machine, before in MACHINES.items():
        printed = subprocess.run([*before, *itself], check=True, stdout=subprocess.PIPE).stdout
        costs = {tool: np.array(them) for tool, them in json.loads(printed).items()}
        add_rows(table, machine, costs)
    table.show()
    print(f"aim: {AIM_S} s of CPU time")
    sys.exit(not table.all_met)


def take_turns(tools: list[str], rounds: int) -> dict[str, list[tuple[float, float]]]:
    adopt_orphans()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed: the peers have theirs
    costs: dict[str, list[tuple[float, float]]] = {tool: [] for tool in tools}
    with tempfile.TemporaryDirectory() as folder:
        for index in range(rounds + 1):
            for tool in random.sample(tools, len(tools)):
                cost = cost_s(COMMANDS[tool], Path(folder))
                if index:  # the first one warms the caches
                    costs[tool].append(cost)
    return costs


def add_rows(table: Table, machine: str, costs: dict[str, np.ndarray]) -> None:
    for column, what in enumerate(("CPU time", "wall time")):
        figures = {tool: median(them[:, [column]]) for tool, them in costs.items()}
        table.add(f"run -- true, {machine}: {what}", "s", ".2f", figures)
    ours = costs.pop(OURS)[:, 0]
    if not costs:
        return
    ratios = {tool: ratio(np.stack([ours, it[:, 0]], axis=1)) for tool, it in costs.items()}
    table.add(
        f"run -- true, {machine}: CPU time, ours over theirs",
        "",
        ".2f",
        ratios,
        limit=0.5,
        judged="codecarbon",
    )


def median(samples: np.ndarray) -> Figure:
    return Figure(float(np.median(samples)), *interval(samples, lambda it: np.median(it, axis=1)))


def ratio(pairs: np.ndarray) -> Figure:
    def of(pairs: np.ndarray) -> np.ndarray:
        ours, theirs = np.moveaxis(np.median(pairs, axis=-2), -1, 0)
        return ours / theirs

    return Figure(float(of(pairs)), *interval(pairs, of))


if __name__ == "__main__":
    main()
