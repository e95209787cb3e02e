"""What a CPU-bound training loses to what watches it.

Inside one training, blocks of about 50 ms with the tool's processes running and stopped (SIGSTOP)
take turns in pairs, in random order. The slowdown is the mean of the pairs' differences over the
median block without, after 1 % of the pairs is cut off at either end: a median would not see what
happens in one block of ten, which is how a recorder works, while a plain mean is at the mercy of
the few blocks that something else on the machine has held up. Nothing of ours happens less often
than once a second (one block of twenty). A recorder that was stopped catches up in the next
block, so this tells rather too much than too little; so does stopping it at all, since it
records every deadline that it misses. With `--slow-down 3` every step of the watched blocks is
followed by idle work of 3 % of its time: a sound estimate is 3 higher by that, and misses.

What is spent rather than lost is in the accounts: CPU time of the tool's processes through some
seconds of the same training without stops, and what marking a step adds to one that does next to
nothing. zeus and codecarbon mark nothing by themselves; beside our marks stands what they need to
open and close a window (zeus) and a task (codecarbon) by hand.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from helpers.peers import JOULEWISE, OURS, Figure, Table, interval, program

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

TRAINING = str(Path(__file__).parents[1] / "training.py")
OFFLINE = ["monitor", "--offline", "--country-iso-code", "GBR", "--"]
BY_HAND = {
    "codecarbon": """
import json, time
from codecarbon import OfflineEmissionsTracker
tracker = OfflineEmissionsTracker(country_iso_code="GBR", log_level="critical")
took_s = []
for index in range(50):
    start_s = time.perf_counter()
    tracker.start_task(str(index))
    tracker.stop_task(str(index))
    took_s.append(time.perf_counter() - start_s)
print(json.dumps(took_s))
""",
    "zeus": """
import json, time
from zeus.monitor import ZeusMonitor
monitor = ZeusMonitor(approx_instant_energy=True)
took_s = []
for index in range(200):
    start_s = time.perf_counter()
    monitor.begin_window("window", sync_execution=False)
    monitor.end_window("window", sync_execution=False)
    took_s.append(time.perf_counter() - start_s)
print(json.dumps(took_s))
""",
}
TRIM = 0.01


def judge_training(
    table: Table, pairs: dict[str, int], seconds: float, rounds: int, slowed: float
) -> None:
    """``pairs`` of blocks for each tool, ``rounds`` of trainings with marks and without."""
    runs = {tool: trained(tool, number, seconds, slowed) for tool, number in pairs.items()}
    slowdowns = {tool: slowdown(np.array(it["pairs_s"])) for tool, it in runs.items()}
    accounts = {tool: Account(np.array(it["slices"])) for tool, it in runs.items()}
    marking = marking_us(runs[OURS]["bare_step_s"], rounds)
    by_hand = {tool: by_hand_us(tool) for tool in pairs if tool in BY_HAND}

    counts = ", ".join(map(str, pairs.values()))
    table.add(f"training: slowdown ({counts} pairs)", "%", ".2f", slowdowns, limit=1.5)
    shares = {tool: it.share for tool, it in accounts.items()}
    table.add("training: CPU time of the tool", "% of a core", ".2f", shares)
    table.add("marking one step; one window or task", "us", ".1f", {OURS: marking, **by_hand})
    own = accounts[OURS].with_marks(marking)
    table.add("training: CPU time and marks", "%", ".2f", {OURS: own}, limit=1.0)


def trained(tool: str, pairs: int, seconds: float, slowed: float, *options: str) -> dict[str, Any]:
    arguments = [TRAINING, tool, *map(str, (pairs, seconds, slowed))]
    command = {
        OURS: [JOULEWISE, "run", *options, "--", sys.executable],
        "codecarbon": [program("codecarbon", "codecarbon"), *OFFLINE, program("codecarbon")],
        "zeus": [program("zeus")],
    }[tool]
    return run_json([*command, *arguments])


def slowdown(pairs_s: Array) -> Figure:
    def trimmed(pairs_s: Array) -> Array:
        lost = np.sort(pairs_s[..., 0] - pairs_s[..., 1], axis=-1)
        cut = int(TRIM * lost.shape[-1])
        kept = lost[..., cut : lost.shape[-1] - cut]
        return 100 * kept.mean(axis=-1) / np.median(pairs_s[..., 1], axis=-1)

    return Figure(float(trimmed(pairs_s)), *interval(pairs_s, trimmed))


@dataclass(frozen=True)
class Account:
    """Rows: CPU time of what watches, wall time, steps."""

    slices: Array

    @property
    def share(self) -> Figure:
        def of(slices: Array) -> Array:
            spent_s, wall_s, _ = np.moveaxis(slices.sum(axis=-2), -1, 0)
            return 100 * spent_s / wall_s

        return Figure(float(of(self.slices)), *interval(self.slices, of))

    def with_marks(self, marking_us: Figure) -> Figure:
        """The ends of both intervals added up: wider than need be."""
        _, wall_s, steps = self.slices.sum(axis=0)
        percent = 100 * steps / wall_s / 1e6
        return Figure(
            self.share.value + percent * marking_us.value,
            self.share.low + percent * marking_us.low,
            self.share.high + percent * marking_us.high,
        )


def marking_us(marked_s: list[float], rounds: int) -> Figure:
    unmarked_s: list[float] = []
    for index in range(rounds):
        if index:  # one was marked already
            marked_s = marked_s + trained(OURS, 0, 0, 0)["bare_step_s"]
        unmarked_s += trained(OURS, 0, 0, 0, "--no-hooks")["bare_step_s"]
    samples = 1e6 * np.array([marked_s, unmarked_s]).T

    def added(samples: Array) -> Array:
        return np.diff(-np.median(samples, axis=-2), axis=-1)[..., 0]

    return Figure(float(added(samples)), *interval(samples, added))


def by_hand_us(tool: str) -> Figure:
    took = 1e6 * np.array(run_json([program(tool), "-c", BY_HAND[tool]]))[:, None]
    return Figure(float(np.median(took)), *interval(took, lambda it: np.median(it, axis=(1, 2))))


def run_json(command: list[str]) -> Any:
    """The last line of JSON that a command prints: wrappers print more."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("{", "["))]
    if done.returncode or not lines:
        sys.exit(f"{' '.join(command)} exited with {done.returncode}:\n{done.stderr}")
    return json.loads(lines[-1])
