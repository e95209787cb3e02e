"""Kills sweeps, by SIGKILL and at all moments, has them go on, and looks at what they came to.

A sweep of power limits runs on two simulated GPUs whose limits are not the defaults. It is killed
several times over, half of the time at a random moment, half at a named point: while a run's
guardian stands still in its lease, between two runs, around the rename of the sweep's file. Now it
is killed alone, now with all that it has started but the guardian. Within 2 s every control is as
before, nobody is left, and what was on disk remains. In the end the same command finishes it:
the same set of runs as a sweep that nobody disturbed, none lost, none twice, in the sweep or in the
store.

    python benchmarks/sweep_kills.py --rounds 50
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pynvml
from helpers.kill_rounds import (
    DEADLINE_S,
    GUARDIAN,
    MARK,
    LeftError,
    is_stopped,
    kill,
    kill_all,
    marked,
    until,
    words,
)
from helpers.lease_sessions import RESTORED_S

from joulewise.data.sweeps import Setting, Sweep, TrialState
from joulewise.simulate.client import available
from joulewise.simulate.model import ControlSettings
from joulewise.simulate.nvml.shared_memory import SharedGpuMemory
from joulewise.store.runs import Skipped, readable, status
from joulewise.sweep.stored_sweeps import FINISHED, sweeps

BOARDS, GPUS = "v100x2", 2
MOST_S = 4.0  # after its start, or after it has changed a control
FROM_TURN = 0.75
LOOKS = 20  # at the controls for one at the processes, which takes much longer
KILLS_A_SWEEP = 10
LEAST_CHANGED = 0.3  # of all rounds
IN_LEASE = {"after-journal": 1, "before-set": GPUS, "in-restore": GPUS}
OF_SWEEP = ("between-runs", "before-rename-sweep.json", "after-rename-sweep.json")
STEP = "SWEEP_KILLS_STEP_S"
STEPS = f"import os, time\nfor step in range(20):\n    time.sleep(float(os.environ['{STEP}']))\n"
OPTIONS = ["sweep", "--power-limit", "150,200,250", "--repeat", "2", "--json", os.devnull]

Made = Counter[tuple[Setting, int]]


@dataclass(frozen=True)
class Result:
    """What a round met: whether a control was changed, and after how long all were as they were."""

    was_changed: bool
    restored_s: float


class Bench:
    """A store with one sweep in it, and the GPUs that it turns."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.store = folder / "runs"
        self._folder = folder
        self._chance = chance
        self._shared = SharedGpuMemory.open(os.environ["JOULEWISE_SIM"])
        (folder / "steps.py").write_text(STEPS)
        for gpu, limit_w in enumerate(chance.sample(range(225, 299), GPUS)):
            handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)
            pynvml.nvmlDeviceSetPowerManagementLimit(handle, limit_w * 1000)
        self._begin = self.controls()

    def controls(self) -> list[ControlSettings]:
        return [self._shared.controls(gpu) for gpu in range(GPUS)]

    def finish(self) -> Made:
        """Let the sweep come to its end; which runs it has then."""
        with self._log().open("w") as log:
            ended = subprocess.run(
                self._command(), env=self._environ(), stdout=log, stderr=log, check=False
            )
        sweep = self.sweep()
        if ended.returncode or sweep is None or sweep.state != FINISHED:
            raise LeftError(f"it ends with {ended.returncode}: {self._log().read_text()}")
        if any(trial.state is not TrialState.DONE for trial in sweep.trials):
            raise LeftError(f"not all is done: {sweep.trials}")
        self._check_runs(sweep)
        return made(sweep)

    def sweep(self) -> Sweep | None:
        found = list(sweeps(self.store))
        if any(isinstance(each, Skipped) for each in found) or len(found) > 1:
            raise LeftError(f"there is more than one whole sweep: {found}")
        return next((each[1] for each in found if not isinstance(each, Skipped)), None)

    def play(self, point: str | None, *, alone: bool) -> Result | None:
        """Kill it; None where it had come to its end before that."""
        before = made(self.sweep())
        environ = {**self._environ(step_s=0.15), **self._kill_at(point)}
        with self._log().open("w") as log:
            process = subprocess.Popen(self._command(), env=environ, stdout=log, stderr=log)
        try:
            self._await(process, point, environ[MARK])
            was_changed = self.controls() != self._begin
            if process.poll() == 0:
                return None
            guardian = self._guardian(environ[MARK])
            everyone = set(marked(environ[MARK])) - {guardian}
            killed_s = time.monotonic()
            for pid in [process.pid] if alone else everyone:
                kill(pid, signal.SIGKILL)
            kill(guardian, signal.SIGCONT)
            restored_s = self._settled_s(environ[MARK], killed_s)
        finally:
            kill_all(environ[MARK])
            process.wait()
        after = made(self.sweep())
        if before - after:
            raise LeftError(f"{before - after} are lost")
        if max(after.values(), default=1) > 1:
            raise LeftError(f"some are there twice: {after}")
        return Result(was_changed, restored_s)

    def _await(self, process: subprocess.Popen[bytes], point: str | None, token: str) -> None:
        def reached() -> bool:
            if process.poll() is not None:
                return True
            if point is None:
                return self.controls() != self._begin
            return point in IN_LEASE and is_stopped(self._guardian(token))

        if point is not None or self._chance.random() < FROM_TURN:
            until(reached, f"it is at {point or 'a control'}")
        if point is None:
            time.sleep(self._chance.uniform(0.0, MOST_S))

    def _kill_at(self, point: str | None) -> dict[str, str]:
        if point is None:
            return {}
        often = self._chance.randint(1, IN_LEASE.get(point, 2))
        how = "STOP" if point in IN_LEASE else "KILL"
        return {"JOULEWISE_TEST_KILL_AT": f"{point}:{often}:{how}"}

    def _settled_s(self, token: str, killed_s: float) -> float:
        """When a control was last seen to differ from before, until nobody is left."""
        last_s, left = killed_s, [0]
        while left:
            for _ in range(LOOKS):
                now_s = time.monotonic()
                if self.controls() != self._begin:
                    last_s = now_s
                time.sleep(0.002)
            left = marked(token)
            if last_s - killed_s > RESTORED_S or now_s - killed_s > DEADLINE_S:
                named = [words(pid) for pid in left]
                raise LeftError(f"{self.controls()} was {self._begin}; there are {named}")
        if self.controls() != self._begin:
            raise LeftError(f"{self.controls()} was {self._begin}, and nobody is left")
        return last_s - killed_s

    def _check_runs(self, sweep: Sweep) -> None:
        """Every trial is one run, and no other run of the sweep came to its end."""
        whole = set()
        for each in readable(self.store):
            if isinstance(each, Skipped):
                raise LeftError(f"{each.path}: {each.reason}")
            path, manifest = each
            if status(manifest) == "complete" and manifest.exit_code == 0:
                whole.add(path.name)
        if whole != {trial.run for trial in sweep.trials}:
            raise LeftError(f"of {whole} the sweep has {[trial.run for trial in sweep.trials]}")

    def _command(self) -> list[str]:
        ours = [sys.executable, "-m", "joulewise", "--store", str(self.store)]
        return [*ours, *OPTIONS, "--", sys.executable, str(self._folder / "steps.py")]

    def _environ(self, step_s: float = 0.01) -> dict[str, str]:
        state = str(self._folder / "state")
        mine = {MARK: secrets.token_hex(8), STEP: str(step_s), "JOULEWISE_STATE": state}
        return {**os.environ, **mine}

    def _log(self) -> Path:
        return self._folder / "log"

    @staticmethod
    def _guardian(token: str) -> int:
        return next((pid for pid in marked(token) if GUARDIAN in words(pid)), 0)


def made(sweep: Sweep | None) -> Made:
    trials = sweep.trials if sweep else ()
    return Counter((trial.setting, trial.block) for trial in trials)


def play_all(rounds: int, chance: random.Random) -> list[Result]:
    """So many kills, several to a sweep, which then comes to its end."""
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = Bench(Path(folder), chance).finish()
    print(f"undisturbed: {sum(undisturbed.values())} runs", flush=True)
    points = [*IN_LEASE, *OF_SWEEP]
    results: list[Result] = []
    while len(results) < rounds:
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(Path(folder), chance)
            for _ in range(min(KILLS_A_SWEEP, rounds - len(results))):
                number = len(results)
                point = points[number // 2 % len(points)] if number % 2 else None
                alone = bool(number // 4 % 2)
                result = bench.play(point, alone=alone)
                if result is None:
                    break
                results.append(result)
                changed = "changed" if result.was_changed else ""
                where = f"{point or 'at random':26} {'alone' if alone else 'with all':8}"
                restored = f"{1000 * result.restored_s:4.0f} ms"
                has = sum(made(bench.sweep()).values())
                print(f"{number:4} {where} {changed:6} {restored}, has {has} runs", flush=True)
            finished = bench.finish()
            if finished != undisturbed:
                raise LeftError(f"{finished} is not {undisturbed}")
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if not available():
        sim = ["-m", "joulewise", "sim", "--gpu", BOARDS, "--as-root"]
        os.execv(sys.executable, [sys.executable, *sim, "--", sys.executable, *sys.argv])
    pynvml.nvmlInit()
    try:
        results = play_all(arguments.rounds, random.Random(arguments.seed))
    except LeftError as error:
        print(f"FAILED: {error}")
        sys.exit(1)
    changed = sum(each.was_changed for each in results)
    worst_s = max(each.restored_s for each in results)
    print(f"{len(results)} kills, {changed} with settings changed; restored within {worst_s:.2f} s")
    print("the same runs each time, none lost, none twice")
    if changed < LEAST_CHANGED * len(results):
        print("too few met anything changed: that shows too little")
        sys.exit(1)


if __name__ == "__main__":
    main()
