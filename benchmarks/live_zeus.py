"""`joulewise tune` beside Zeus' GlobalPowerLimitOptimizer, in the same simulated training.

    python benchmarks/live_zeus.py [--steps 600] [--board v100] [--network resnet50] [--jobs 2]

Both choose by the same cost (Zeus' default: `cost:0.5`), each with its own defaults, through NVML
in real time. Time and energy are those of the whole training, from the exact energy (`--truth`).
The limit before is not the board's default, as where an administrator has set one. In a second part
epochs have 5 steps; in a third the tuner is killed (SIGKILL) while it explores. Zeus runs in an
environment of its own, which `script/peers zeus` makes. It waits for no CUDA, since there is none.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from helpers.peers import JOULEWISE, ROOT, install, program
from helpers.tuned_trainings import Simulation, simulation
from helpers.verdict import Verdicts

from joulewise.data.tuning import Tuning, TuningState
from joulewise.simulate.boards import load_board
from joulewise.simulate.workloads import load_workload
from joulewise.store.runs import runs
from joulewise.store.tuning_file import read_tuning
from joulewise.units import NS_PER_S

TRAINING = str(ROOT / "benchmarks" / "zeus_training.py")
METRIC = "cost:0.5"
NOTHING, ZEUS, LIMITS, BOTH = "nothing", "zeus", "joulewise, limits only", "joulewise"
TUNERS = (NOTHING, ZEUS, LIMITS, BOTH)
BEFORE_SHARE = 0.95  # of the default limit
SHORT_EPOCH = 5
KILLED_AFTER_S = 20.0  # of steps; both explore for longer
RESTORED_S = 5.0


@dataclass(frozen=True)
class Job:
    tuner: str
    board: str
    network: str
    batch_size: int
    steps: int
    epoch_steps: int
    is_killed: bool = False


@dataclass(frozen=True)
class Outcome:
    """``settled`` are the steps until a setting was chosen; None: none was.

    ``again`` is how often it explored again, as where other programs slow the steps down.
    """

    job: Job
    before_w: float
    left: str
    settled: int | None = None
    chosen: str = "-"
    time_s: float = float("nan")
    energy_j: float = float("nan")
    again: int = 0

    def cost(self, power_w: float) -> float:
        """Zeus' cost with equal weights, in joules."""
        return (self.energy_j + power_w * self.time_s) / 2


def command(job: Job, folder: Path) -> list[str]:
    numbers = map(str, (job.batch_size, job.steps, job.epoch_steps))
    words = [TRAINING, "", job.network, *numbers, str(folder / "told.json")]
    words[1] = {NOTHING: "none", ZEUS: "zeus"}.get(job.tuner, "joulewise")
    if job.tuner == ZEUS:
        return [program("zeus"), *words]
    if job.tuner == NOTHING:
        return [sys.executable, *words]
    axes = ["--axis", "power-limit"] if job.tuner == LIMITS else []
    tune = [JOULEWISE, "--store", str(folder / "store"), "tune", "--by", METRIC, *axes, "--"]
    return [*tune, sys.executable, *words]


def play(job: Job) -> Outcome:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with simulation(job.board, "--truth", str(folder / "truth.csv")) as where:
            before_w = set_limit(where, round(BEFORE_SHARE * where.gpus.controls(0).limit_w))
            process = subprocess.Popen(
                command(job, folder),
                env=where.environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            assert process.stdout is not None
            if process.stdout.readline() != "started\n":
                raise RuntimeError(f"{job.tuner} did not start")
            if job.is_killed:
                time.sleep(KILLED_AFTER_S)
                os.kill(process.pid, signal.SIGKILL)
            process.communicate()
            if not job.is_killed and process.returncode:
                raise RuntimeError(f"the training with {job.tuner} failed")
            left = describe_left(where, before_w)
        if job.is_killed:
            return Outcome(job, before_w, left)
        told = json.loads((folder / "told.json").read_text())
        settled, chosen, again = choice(job, folder, told)
        window_ns = told["begin_ns"], told["end_ns"]
        rows = np.genfromtxt(folder / "truth.csv", delimiter=",", skip_header=1)
        energy_j = float(np.diff(np.interp(window_ns, rows[:, 0], rows[:, 2]))[0])
        time_s = (window_ns[1] - window_ns[0]) / NS_PER_S
        return Outcome(job, before_w, left, settled, chosen, time_s, energy_j, again)


def set_limit(where: Simulation, limit_w: int) -> float:
    """As an administrator does, and with the driver kept loaded."""
    for words in (["-pm", "1"], ["-pl", str(limit_w)]):
        subprocess.run(
            ["nvidia-smi", *words], env=where.environ, check=True, stdout=subprocess.DEVNULL
        )
    return float(limit_w)


def describe_left(where: Simulation, before_w: float) -> str:
    """What is set some seconds after the end, or as soon as all is as it was."""
    deadline_s = time.monotonic() + RESTORED_S
    while time.monotonic() < deadline_s:
        now = where.gpus.controls(0)
        if now.limit_w == before_w and now.sm_lock_mhz is None:
            return "as before"
        time.sleep(0.05)
    lock = f", SM {now.sm_lock_mhz[1]:g} MHz" if now.sm_lock_mhz else ""
    return f"{now.limit_w:g} W{lock}"


def choice(job: Job, folder: Path, told: dict[str, Any]) -> tuple[int | None, str, int]:
    """Steps until it settled, what on, and how often it explored again."""
    if job.tuner in {NOTHING, ZEUS}:
        limit_w = told["chosen_w"]
        return told["settled_steps"], "-" if limit_w is None else f"{limit_w:g} W", 0
    (run,) = runs(folder / "store")
    tuning = read_tuning(run)
    if tuning is None or tuning.chosen is None:
        return None, "-", 0
    return steps_until_held(tuning), str(tuning.chosen), len(tuning.changes)


def steps_until_held(tuning: Tuning) -> int:
    """All steps before a setting was first held."""
    states = [phase.state for phase in tuning.phases]
    at = states.index(TuningState.HOLDING)
    return sum(phase.steps for phase in tuning.phases[:at])


def show(title: str, outcomes: Sequence[Outcome], power_w: float) -> None:
    print(f"\n{title}")
    print(
        f"{'tuned by':24} {'settled after':>13} {'again':>5}  {'on':18} {'time':>8} {'energy':>9} "
        f"{'cost':>8}  left at the end"
    )
    for each in outcomes:
        settled = "-" if each.settled is None else f"{each.settled} steps"
        cost_j = each.cost(power_w)
        print(
            f"{each.job.tuner:24} {settled:>13} {each.again:5}  {each.chosen:18} "
            f"{each.time_s:6.1f} s {each.energy_j / 1000:6.2f} kJ "
            f"{cost_j / 1000:5.2f} kJ  {each.left}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--short-epochs-steps", type=int, default=400)
    parser.add_argument("--board", default="v100")
    parser.add_argument("--network", default="resnet50")
    parser.add_argument("--batch-size", type=int, help="default: the network's own")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at the same time")
    parser.add_argument("--without-zeus", action="store_true", help="do not install or run it")
    arguments = parser.parse_args()
    tuners = [each for each in TUNERS if each != ZEUS or not arguments.without_zeus]
    if ZEUS in tuners:
        install("zeus")
    board = load_board(arguments.board)
    batch_size = arguments.batch_size or load_workload(arguments.network, board).batch_size
    training = arguments.board, arguments.network, batch_size
    rest = [each for each in tuners if each in {ZEUS, BOTH}]
    steps, few = arguments.steps, arguments.short_epochs_steps
    jobs = [
        *(Job(each, *training, steps, steps) for each in tuners),
        *(Job(each, *training, few, SHORT_EPOCH) for each in rest),
        *(Job(each, *training, 10 * steps, steps, is_killed=True) for each in rest),
    ]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        outcomes = list(pool.map(play, jobs))
    power_w = board.limits.maximum_w
    whole, short = outcomes[: len(tuners)], outcomes[len(tuners) : len(tuners) + len(rest)]
    killed = outcomes[len(tuners) + len(rest) :]
    name = f"{arguments.network}, batch size {batch_size}, {board.name}, by {METRIC}"
    show(f"{steps} steps of {name}; {whole[0].before_w:g} W before", whole, power_w)
    show(f"{few} steps in epochs of {SHORT_EPOCH}", short, power_w)
    print(f"\nkilled after {KILLED_AFTER_S:g} s of steps")
    for each in killed:
        print(f"{each.job.tuner:24} left at {each.left}")
    return judge(whole, short, killed, power_w)


def judge(
    whole: Sequence[Outcome], short: Sequence[Outcome], killed: Sequence[Outcome], power_w: float
) -> int:
    """What joulewise is to meet; the figures of Zeus are shown, and judged nowhere."""
    of = {each.job.tuner: each for each in whole}
    mine = [each for each in (*whole, *short, *killed) if each.job.tuner in {LIMITS, BOTH}]
    unsettled = sum(each.settled is None for each in mine if not each.job.is_killed)
    verdicts = Verdicts()
    verdicts.at_most(
        "settings left, joulewise", sum(it.left != "as before" for it in mine), 0, percent=False
    )
    verdicts.at_most("trainings not settled, joulewise", unsettled, 0, percent=False)
    for tuner in (LIMITS, BOTH):
        share = of[tuner].cost(power_w) / of[NOTHING].cost(power_w)
        verdicts.at_most(f"cost of the whole training, {tuner}, over that untuned", share, 1.0)
    if ZEUS in of:  # which knows limits only
        share = of[LIMITS].cost(power_w) / of[ZEUS].cost(power_w)
        verdicts.at_most(
            "cost of the whole training, joulewise, limits only, over zeus", share, 1.0
        )
    verdicts.show()
    return int(not verdicts.all_met)


if __name__ == "__main__":
    sys.exit(main())
