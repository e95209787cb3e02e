"""What watching 8 GPUs takes of one core, at each tool's default rate and at equal ones."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence

import numpy as np

from helpers.peers import JOULEWISE, OURS, Figure, Table, cpu_s, descendants, interval, program

# Beyond what is loaded once, five seconds after the start, for a first look at how far a run is:
# what starting costs is told by start_up.py.
WARM_UP_S = 7.0
WAIT = ["sh", "-c", "echo ready; exec cat"]
CODECARBON = """
import sys
from codecarbon import OfflineEmissionsTracker
tracker = OfflineEmissionsTracker(
    country_iso_code="GBR", log_level="critical", measure_power_secs=float(sys.argv[1])
)
tracker.start()
print("ready", flush=True)
sys.stdin.read()
tracker.stop()
"""
ZEUS = """
import sys
from zeus.monitor import PowerMonitor
monitor = PowerMonitor(update_period=float(sys.argv[1]) if sys.argv[1:] else None)
print("ready", flush=True)
sys.stdin.read()
monitor.stop()
"""
OFFLINE = ["monitor", "--offline", "--country-iso-code", "GBR", "--"]
DEFAULTS = {
    OURS: [JOULEWISE, "run", "--", *WAIT],
    "codecarbon": [program("codecarbon", "codecarbon"), *OFFLINE, *WAIT],
    "zeus": [program("zeus"), "-c", ZEUS],
}
LIMITS = {"default rate": 1.0, "asked for 100 Hz": 5.0}


def judge_recorder(table: Table, tools: Sequence[str], seconds: float) -> None:
    cases = {"default rate": DEFAULTS, "asked for 10 Hz": at(10), "asked for 100 Hz": at(100)}
    for case, commands in cases.items():
        figures = {tool: share(commands[tool], seconds) for tool in tools}
        what = f"watching 8 GPUs, {case}"
        table.add(what, "% of a core", ".2f", figures, limit=LIMITS.get(case))


def at(rate_hz: int) -> dict[str, list[str]]:
    period_s = str(1 / rate_hz)
    return {
        OURS: [JOULEWISE, "run", "--rate", str(rate_hz), "--", *WAIT],
        "codecarbon": [program("codecarbon"), "-c", CODECARBON, period_s],
        "zeus": [program("zeus"), "-c", ZEUS, period_s],
    }


def share(command: list[str], seconds: float) -> Figure:
    """CPU time of all processes of a tool that only watches, second by second."""
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as tool,
    ):
        assert tool.stdin
        assert tool.stdout
        for line in tool.stdout:
            if line == "ready\n":
                break
        time.sleep(WARM_UP_S)
        marks = [now()]
        while len(marks) <= seconds:
            time.sleep(1)
            marks.append(now())
        tool.stdin.close()
        tool.stdout.read()
    slices = np.diff(np.array(marks), axis=0)
    return Figure(float(rate(slices[None])[0]), *interval(slices, rate))


def rate(slices: np.ndarray) -> np.ndarray:
    spent_s, wall_s = np.moveaxis(slices.sum(axis=-2), -1, 0)
    return 100 * spent_s / wall_s


def now() -> tuple[float, float]:
    """CPU time so far of all that this process started, and the time."""
    return sum(map(cpu_s, descendants(os.getpid())[1:])), time.monotonic()
