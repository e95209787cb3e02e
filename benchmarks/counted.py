"""Which GPUs count: those that a command uses late or briefly, and not those that others load.

    python benchmarks/counted.py [--rounds 60] [--beside 4] [--seed 1]

Each program runs on a simulated GPU in real time, measured by ``joulewise run`` or by
``joulewise.measure()``. *used*: it sleeps for 0 to 8 s, loads the GPU for 50 ms to 2 s and ends at
once, so that its process may come and go between two looks. *others*: it keeps to the CPU while
another process loads the GPU, from before or in the midst of it. *after*: it keeps to the CPU right
after a training has ended, while the clocks of the GPU are still up. It exits with 1 unless the GPU
counts in all of the first, and in none of the others.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

BOARDS: Final = ("v100", "rtx6000", "a100", "laptop")
WAYS: Final = ("run", "measure")
LONGEST_DELAY_S: Final = 8.0
LOADS_S: Final = (0.05, 2.0)
JOULEWISE: Final = (sys.executable, "-m", "joulewise")
# A step of this takes some 20 ms, so that a load of 50 ms is a few of them.
_LOAD: Final = """
import sys, time
def load(for_s):
    from joulewise.simulate import gpu
    end_s = time.monotonic() + for_s
    while time.monotonic() < end_s:
        gpu(0).step("resnet50", batch_size=4)
def compute(for_s):
    end_s = time.monotonic() + for_s
    while time.monotonic() < end_s:
        time.sleep(0.02)
"""
_RUN: Final = """
time.sleep(float(sys.argv[1]))
if float(sys.argv[2]):
    load(float(sys.argv[2]))
else:
    compute(float(sys.argv[3]))
"""
_MEASURE: Final = """
import json, joulewise
from joulewise.data.run_result_json import as_json
with joulewise.measure(store=sys.argv[4]) as measured:
    time.sleep(float(sys.argv[1]))
    if float(sys.argv[2]):
        load(float(sys.argv[2]))
    else:
        compute(float(sys.argv[3]))
open(sys.argv[5], "w").write(json.dumps(as_json(measured.result)))
"""
_OTHER: Final = """
time.sleep(float(sys.argv[1]))
load(float(sys.argv[2]))
"""


@dataclass(frozen=True)
class Program:
    """``other_s`` is when another process begins to load the GPU, and for how long, if one does.

    ``trains_s`` is how long the GPU was loaded by a process that ended right before.
    """

    board: str
    way: str
    seed: int
    delay_s: float
    load_s: float
    cpu_s: float = 0.0
    other_s: tuple[float, float] | None = None
    trains_s: float = 0.0

    def __str__(self) -> str:
        what = f"loads it for {self.load_s:.2f} s after {self.delay_s:.2f} s"
        if self.other_s:
            start_s, time_s = self.other_s
            what = f"computes for {self.cpu_s:.1f} s; another loads it at {start_s:.1f} s"
            what += f" for {time_s:.1f} s"
        if self.trains_s:
            what = f"computes for {self.cpu_s:.1f} s after a training of {self.trains_s:.1f} s"
        return f"{self.board}, {self.way}, seed {self.seed}: {what}"


def used(rounds: int, draw: random.Random) -> Iterator[Program]:
    for number in range(rounds):
        yield Program(
            BOARDS[number % len(BOARDS)],
            WAYS[number // len(BOARDS) % len(WAYS)],
            draw.randrange(1 << 30),
            draw.uniform(0.0, LONGEST_DELAY_S),
            # As many below 0.3 s as above: it is the short ones that no look catches.
            LOADS_S[0] * (LOADS_S[1] / LOADS_S[0]) ** draw.random(),
        )


def others(rounds: int, draw: random.Random) -> Iterator[Program]:
    for number in range(rounds):
        cpu_s = draw.uniform(1.0, 8.0)
        # All the time, from the midst of it on, or up to there.
        start_s, end_s = (
            (0.0, cpu_s + 6.0),
            (draw.uniform(1.0, 1.0 + cpu_s), cpu_s + 6.0),
            (0.0, 1.5 + draw.uniform(0.0, cpu_s)),
        )[number // 8 % 3]
        yield Program(
            BOARDS[number % len(BOARDS)],
            WAYS[number // len(BOARDS) % len(WAYS)],
            draw.randrange(1 << 30),
            0.0,
            0.0,
            cpu_s,
            (start_s, end_s - start_s),
        )


def after(rounds: int, draw: random.Random) -> Iterator[Program]:
    for number in range(rounds):
        yield Program(
            BOARDS[number % len(BOARDS)],
            WAYS[number // len(BOARDS) % len(WAYS)],
            draw.randrange(1 << 30),
            0.0,
            0.0,
            cpu_s=draw.uniform(0.5, 5.0),
            trains_s=draw.uniform(0.3, 2.0),
        )


def result_of(program: Program) -> dict[str, Any]:
    """What joulewise tells of the program, run on a simulation of its own."""
    with tempfile.TemporaryDirectory() as folder:
        payload = Path(folder) / "result.json"
        figures = [f"{program.delay_s}", f"{program.load_s}", f"{program.cpu_s}"]
        store = str(Path(folder) / "runs")
        if program.way == "run":
            command = [*JOULEWISE, "--store", store, "run", "--json", str(payload), "--"]
            command += [sys.executable, "-c", _LOAD + _RUN, *figures]
        else:
            command = [sys.executable, "-c", _LOAD + _MEASURE, *figures, store, str(payload)]
        inside = [program.other_s, program.trains_s, command]
        subprocess.run(
            [
                *(*JOULEWISE, "sim", "--gpu", program.board, "--seed", str(program.seed), "--"),
                *(sys.executable, __file__, "--inside", json.dumps(inside)),
            ],
            check=True,
            env=os.environ | {"JOULEWISE_STATE": str(Path(folder) / "state")},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        result: dict[str, Any] = json.loads(payload.read_text())
        return result


def run_inside(other_s: list[float] | None, trains_s: float, command: list[str]) -> None:
    """Within the simulation: the program, before it a training, and beside it another process."""
    other = None
    if trains_s:
        training = [sys.executable, "-c", _LOAD + _OTHER, "0", str(trains_s)]
        subprocess.run(training, check=True)
        wait_until_shown()
    if other_s:
        figures = [str(each) for each in other_s]
        other = subprocess.Popen([sys.executable, "-c", _LOAD + _OTHER, *figures])
    try:
        subprocess.run(command, check=True)
    finally:
        if other:
            other.kill()
            other.wait()


def wait_until_shown() -> None:
    """Until the GPU shows that it was used: a simulation that gets no CPU time shows it late.

    A driver does not; the program that follows would see the activity rise.
    """
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    end_s = time.monotonic() + LONGEST_DELAY_S
    while time.monotonic() < end_s:
        if pynvml.nvmlDeviceGetUtilizationRates(handle).gpu:
            break
        time.sleep(0.01)
    pynvml.nvmlShutdown()


def judge(name: str, programs: list[Program], beside: int, *, counts: bool) -> bool:
    """Whether the GPU counts in all of them, or in none."""
    with ThreadPoolExecutor(beside) as pool:
        results = list(pool.map(result_of, programs))
    wrong = 0
    for board in BOARDS:
        mine = [(p, r) for p, r in zip(programs, results, strict=True) if p.board == board]
        right = [(p, r) for p, r in mine if ("gpu0" in r["counted"]) is counts]
        by_process = sum(
            all(w["code"] != "unseen_use" for w in result["warnings"]) for _, result in right
        )
        wrong += len(mine) - len(right)
        how = f", {by_process} of them by processes alone" if counts else ""
        what = "counts" if counts else "left out"
        print(f"{name:7} {board:8} {what} in {len(right)} of {len(mine)}{how}", flush=True)
        for program, result in mine:
            if ("gpu0" in result["counted"]) is not counts:
                print(f"        wrong: {program}")
                print(f"               {result['excluded']} {result['warnings']}")
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=60, help="programs of each kind")
    parser.add_argument("--beside", type=int, default=4, help="how many run at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=["used", "others", "after"])
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        run_inside(*json.loads(given.inside))
        return 0
    draw = random.Random(given.seed)
    kinds = {kind.__name__: list(kind(given.rounds, draw)) for kind in (used, others, after)}
    right = [
        judge(name, programs, given.beside, counts=name == "used")
        for name, programs in kinds.items()
        if given.only in {None, name}
    ]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
