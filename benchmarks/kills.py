"""Kills the command, the recorder, joulewise itself or all three, and looks at what is left.

Half of the kills come at a random moment. The other half come while the recorder stands still at
a named point of its own (after a batch, in compaction, in a rename). Whatever was killed: the run
opens, at most the last 1.5 s before the recorder's death are missing, nobody is left behind, and
the run says how it ended.

    python benchmarks/kills.py --rounds 100
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from helpers.kill_rounds import DEADLINE_S, LeftError, ended, kill, state, until

from joulewise.simulate.client import available
from joulewise.store.layout import StreamKind
from joulewise.store.manifest import Manifest, read_manifest
from joulewise.store.runs import readable, status
from joulewise.store.trace import open_device_stream

POINTS = (
    "after-batch",
    "before-rename-run.json:4",
    "after-rename-run.json:4",
    "compact-written",
    "compact-renamed",
)
VICTIMS = ("command", "recorder", "joulewise", "all")
ENDS = {"command": "complete", "recorder": "stopped", "joulewise": "stopped", "all": "killed"}
LOST_S = 1.5
RUNS_FOR_S = 2.5
COMMAND = f"""
import os, subprocess, sys, time
nothing = subprocess.DEVNULL
child = subprocess.Popen(["sleep", "600"], stdin=nothing, stdout=nothing, stderr=nothing)
print(os.getpid(), child.pid, os.environ["JOULEWISE_RUN"], flush=True)
time.sleep({RUNS_FOR_S})
child.kill()
sys.exit(3)
"""


@dataclass
class Round:
    """One run that is about to be disturbed."""

    process: subprocess.Popen[str]
    command: int
    grandchild: int
    run: Path
    recorder: int

    @classmethod
    def start(cls, store: Path, point: str | None) -> Round:
        environ = {**os.environ, "JOULEWISE_COMPACT_OVER_ROWS": "0"}
        if point:
            name, _, times = point.partition(":")
            environ["JOULEWISE_TEST_KILL_AT"] = f"{name}:{times or 1}:STOP"
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "joulewise", "--store", str(store), "run", "--"),
                *(sys.executable, "-c", COMMAND),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environ,
        )
        assert process.stdout is not None
        words = process.stdout.readline().split()
        run = store / words[2]
        recorder = read_manifest(run).recorder
        assert recorder is not None
        return cls(process, int(words[0]), int(words[1]), run, recorder.pid)

    def victims(self, who: str) -> list[int]:
        pids = {
            "command": [self.command],
            "recorder": [self.recorder],
            "joulewise": [self.process.pid],
        }
        return pids.get(who) or [self.recorder, self.process.pid, self.command]


def play(store: Path, who: str, point: str | None, wait_s: float) -> str:
    """One round; how the run ended. Raises where something is left, lost or unreadable."""
    playing = Round.start(store, point)
    try:
        if point:
            until(lambda: state(playing.recorder) in "TZ", "the recorder reaches the point")
        else:
            time.sleep(wait_s)
        command_ended = ended(playing.command)
        killed_ns = time.monotonic_ns()
        # Stopped first, so that none of them sees another one's death.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in playing.victims(who):
                kill(pid, number)
        kill(playing.recorder, signal.SIGCONT)
        if who == "recorder" and not command_ended and ended(playing.command):
            raise LeftError("killing the recorder ended the command")
        _, errors = playing.process.communicate(timeout=DEADLINE_S)
        if "Traceback" in errors:
            raise LeftError(errors)
        until(lambda: ended(playing.recorder), "the recorder ends")
        until(lambda: ended(playing.command), "the command ends")
        if who == "joulewise":
            until(lambda: ended(playing.grandchild), "what the command started ends")
        check_status(playing.process.returncode, who, command_ended=command_ended)
        manifest = read_manifest(playing.run)
        check_trace(playing.run, manifest, who, killed_ns)
        how = status(manifest)
        listed = [path for path, _ in filter(lambda r: isinstance(r, tuple), readable(store))]
        if playing.run not in listed:
            raise LeftError("the run is not listed")
        if how != ENDS[who] and not command_ended:
            raise LeftError(f"{how} after the {who} was killed, not {ENDS[who]}")
        return how
    finally:
        kill(playing.grandchild, signal.SIGKILL)  # after all three were killed nobody else does
        kill(playing.recorder, signal.SIGKILL)
        playing.process.kill()
        playing.process.communicate()


def check_status(code: int, who: str, *, command_ended: bool) -> None:
    expected = {"command": 137, "recorder": 3, "joulewise": -9, "all": -9}[who]
    if code not in ({expected, 3} if command_ended else {expected}):
        raise LeftError(f"exit status {code} after the {who} was killed")


def check_trace(run: Path, manifest: Manifest, who: str, killed_ns: int) -> None:
    end_ns = max((command.end_ns or killed_ns for command in manifest.commands), default=killed_ns)
    if who in {"recorder", "all"}:
        end_ns = min(end_ns, killed_ns)
    for device in manifest.devices:
        if not device.sources:
            continue
        lane = open_device_stream(run, device.info.key, StreamKind.FAST)
        if lane is None:
            if end_ns - manifest.monotonic_start_ns > LOST_S * 1e9:
                raise LeftError(f"no rows of {device.info.key}")
            continue
        last_ns = [int(chunk["t_ns"][-1]) for chunk in lane.chunks(["t_ns"])][-1]
        if end_ns - last_ns > LOST_S * 1e9:
            raise LeftError(f"{(end_ns - last_ns) / 1e9:.2f} s of {device.info.key} are missing")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if not available():  # simulated GPUs, so that there are counters and buffers to lose
        sim = ["-m", "joulewise", "sim", "--gpu", "v100x2", "--workload", "resnet50"]
        os.execv(sys.executable, [sys.executable, *sim, "--", sys.executable, *sys.argv])
    chance = random.Random(arguments.seed)
    ends: Counter[tuple[str, str]] = Counter()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.rounds):
            who = VICTIMS[number // 2 % len(VICTIMS)]
            point = POINTS[number // 8 % len(POINTS)] if number % 2 else None
            wait_s = chance.uniform(0, RUNS_FOR_S + 0.5)
            where = point or f"after {wait_s:.2f} s"
            try:
                how = play(Path(folder), who, point, wait_s)
            except (LeftError, subprocess.TimeoutExpired) as error:
                failed += 1
                how = f"FAILED: {error}"
            ends[who, how] += 1
            print(f"{number:4} {who:10} {where:26} {how}", flush=True)
    for (who, how), count in sorted(ends.items()):
        print(f"{count:4} x {who} killed: {how}")
    print(f"{failed} of {arguments.rounds} rounds failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
