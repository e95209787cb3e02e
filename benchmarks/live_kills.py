"""Kills one process of a tuning at a random moment, and looks at every knob and everyone after.

    python benchmarks/live_kills.py [--rounds 50] [--seed 0] [--jobs 1]

Each round is `joulewise tune` on two simulated V100s whose limits before are nobody's default, and
a command of two ranks, one on each. Then SIGKILL meets `joulewise tune`, the tuner, the recorder,
the guardian, the command, or a rank. Within 2 s every limit and clock is what it was, and stays so.
The job goes on where only a helper or a rank was killed, and ends with its own status; after the
end nobody is left. A kill before anything was turned shows little, so most must have met something
turned.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from helpers.kill_rounds import GUARDIAN, LeftError, ended, kill, marked, until, words
from helpers.lease_sessions import RESTORED_S
from helpers.tuned_trainings import (
    STATUS,
    TRAINING,
    Simulation,
    TunedTraining,
    simulation,
    tuned_training,
)

from joulewise.simulate.model import ControlSettings

MODULES = {
    "the tuner": "joulewise.optimise.live.tuner_process",
    "the recorder": "joulewise.session.recorder_process",
    "the guardian": GUARDIAN,
}
VICTIMS = ("joulewise tune", *MODULES, "the command", "a rank")
ENDS_JOB = {"joulewise tune": -signal.SIGKILL, "the command": 128 + signal.SIGKILL}
MOMENTS_S = (0.0, 20.0)  # after the first step; exploring takes 20 s or more
LEAST_TURNED = 0.6  # of all rounds
CALM_S = 1.0  # for which all stays as it was, once it is
RANKS = 2
# As torchrun does, but goes on with what is left of its ranks.
LAUNCHER = f"""
import os, subprocess, sys
def start(rank):
    told = dict(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="{RANKS}", MASTER_PORT="29500")
    training = [sys.executable, {TRAINING!r}, *sys.argv[1:]]
    return subprocess.Popen(training, env={{**os.environ, **told}}, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
ranks = [start(rank) for rank in range({RANKS})]
for rank in ranks:
    rank.stdout.readline()
print(os.getpid(), *(rank.pid for rank in ranks), flush=True)
sys.stdin.read()
for rank in ranks:
    rank.communicate()
print("trained", flush=True)
sys.exit({STATUS})
"""


@dataclass(frozen=True)
class Round:
    """What happened: after how long all was back (None: not), and what else is wrong."""

    victim: str
    was_turned: bool
    restored_s: float | None
    fault: str = ""


def play(victim: str, moment_s: float, seed: int) -> Round:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as store, simulation(f"v100x{RANKS}") as where:
        before = prepare(where, chance)
        with tuned_training(
            where, Path(store), ["resnet50", "16"], program=("-c", LAUNCHER)
        ) as job:
            time.sleep(moment_s)
            was_turned = False
            try:
                pid = victim_pid(victim, job, chance)
                was_turned = controls(where) != before
                kill(pid, signal.SIGKILL)
                restored_s = restore_time_s(where, before, time.monotonic())
                check_end(victim, pid, job)
                check(controls(where) == before, "what was back did not stay so")
            except LeftError as error:
                return Round(victim, was_turned, None, str(error))
    return Round(victim, was_turned, restored_s)


def prepare(where: Simulation, chance: random.Random) -> list[ControlSettings]:
    """Give each GPU a limit that is not its default, as root had before."""
    for gpu, limit_w in enumerate(chance.sample(range(240, 299), RANKS)):
        subprocess.run(
            ["nvidia-smi", "-i", str(gpu), "-pl", str(limit_w)],
            env=where.environ,
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return controls(where)


def controls(where: Simulation) -> list[ControlSettings]:
    return [where.gpus.controls(gpu) for gpu in range(RANKS)]


def check_end(victim: str, pid: int, job: TunedTraining) -> None:
    """Wait for what must come of the job, which ends by itself or is told to."""
    if victim not in ENDS_JOB:
        alive = [each for each in job.pids if each != pid and not ended(each)]
        check(len(alive) == len({*job.pids} - {pid}), "the job did not go on")
    out, said, status = job.finish()
    wanted, output = (ENDS_JOB[victim], "") if victim in ENDS_JOB else (STATUS, "trained\n")
    check((out, status) == (output, wanted), f"exit status {status}, not {wanted}: {out}{said}")
    check("Traceback" not in said, said)
    until(lambda: not marked(job.mark), "nobody is left")


def check(is_so: bool, fault: str) -> None:
    if not is_so:
        raise LeftError(fault)


def victim_pid(victim: str, job: TunedTraining, chance: random.Random) -> int:
    if victim == "joulewise tune":
        return job.front.pid
    if victim in MODULES:
        needle = MODULES[victim]
        found: list[int] = []

        def is_there() -> bool:
            found[:] = [pid for pid in marked(job.mark) if needle in words(pid)]
            return bool(found)

        until(is_there, f"{victim} is there")
        return found[0]
    return job.pids[0] if victim == "the command" else chance.choice(job.pids[1:])


def restore_time_s(where: Simulation, before: list[ControlSettings], killed_s: float) -> float:
    """When a knob was last seen that is not as it was: seconds after the kill."""
    last_s = killed_s
    while True:
        is_back, now_s = controls(where) == before, time.monotonic()
        if is_back and now_s - last_s >= CALM_S:
            return last_s - killed_s
        if not is_back:
            last_s = now_s
        if last_s - killed_s > RESTORED_S:
            raise LeftError(f"{controls(where)} after {RESTORED_S:g} s, was {before}")
        time.sleep(0.005)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="rounds at the same time")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    # The victims in turn, so that few rounds meet most of them.
    order = chance.sample(VICTIMS, len(VICTIMS))
    plan = [
        (order[number % len(order)], chance.uniform(*MOMENTS_S), chance.randrange(2**31))
        for number in range(arguments.rounds)
    ]
    everything: list[Round] = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for (victim, moment_s, _), one in zip(
            plan, pool.map(lambda each: play(*each), plan), strict=True
        ):
            everything.append(one)
            back = "FAILED" if one.restored_s is None else f"{1000 * one.restored_s:.0f} ms"
            what = "turned" if one.was_turned else "as before"
            print(f"{victim:16} after {moment_s:5.1f} s  {what:9}  {back} {one.fault}", flush=True)
    report(everything)


def report(everything: list[Round]) -> None:
    print(f"\n{'killed':16} {'rounds':>6} {'turned':>6} {'restored':>8} {'worst':>8}")
    well = [one for one in everything if one.restored_s is not None]
    for victim in VICTIMS:
        mine = [one for one in everything if one.victim == victim]
        times_s = [one.restored_s for one in mine if one.restored_s is not None]
        worst = f"{1000 * max(times_s):.0f} ms" if times_s else "-"
        turned = sum(one.was_turned for one in mine)
        print(f"{victim:16} {len(mine):6} {turned:6} {len(times_s):8} {worst:>8}")
    print(f"{len(well)} of {len(everything)} restored")
    turned = sum(one.was_turned for one in everything)
    if turned < LEAST_TURNED * len(everything):
        print(f"only {turned} kills met anything turned: that shows too little")
        sys.exit(1)
    sys.exit(len(well) < len(everything))


if __name__ == "__main__":
    main()
