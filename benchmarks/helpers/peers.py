"""joulewise beside its peers: where they are, what their processes cost, one table for all."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
OURS = "joulewise"
PEERS = ("codecarbon", "zeus")
JOULEWISE = str(Path(sys.executable).parent / "joulewise")
RESAMPLES = 4000
PR_SET_CHILD_SUBREAPER = 36
CPUCLOCK_SCHED = 2


def install(*peers: str) -> None:
    if peers:  # without names, the script makes those of the tests
        subprocess.run([ROOT / "script" / "peers", *peers], check=True)


def program(peer: str, name: str = "python") -> str:
    return str(ROOT / ".venv-peers" / peer / "bin" / name)


def simulated(gpus: str, *options: str) -> list[str]:
    """What to put before a command so that it finds GPUs whose calls take no time of their own."""
    return [JOULEWISE, "sim", "--gpu", gpus, "--latency", "none", *options, "--"]


def adopt_orphans() -> None:
    """Makes this process the parent of what its children leave behind, so that it is counted."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def cost_s(command: Sequence[str], cwd: Path) -> tuple[float, float]:
    """CPU and wall time until the last process of a command, detached or not, has ended."""
    before, start_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    process = subprocess.Popen(
        command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    _, said = process.communicate()
    wall_s = time.monotonic() - start_s
    if process.returncode:
        sys.exit(f"{' '.join(command)} exited with {process.returncode}:\n{said}")
    wait_for_all()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu_s, wall_s


def wait_for_all() -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def cpu_s(pid: int) -> float:
    """CPU time of all threads of a process so far, to the nanosecond (/proc counts in 10 ms)."""
    return time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)


def descendants(pid: int) -> list[int]:
    """A process and all that it started and has not lost."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").iterdir():
            with contextlib.suppress(FileNotFoundError):  # a thread that has just ended
                found += map(int, (task / "children").read_text().split())
    return found


def interval(
    samples: NDArray[np.float64], statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]]
) -> tuple[float, float]:
    """95 % by the bootstrap: rows of ``samples`` are drawn, ``statistic`` reduces axis 1."""
    random = np.random.default_rng(0)
    found = [
        statistic(samples[random.integers(len(samples), size=(100, len(samples)))])
        for _ in range(RESAMPLES // 100)
    ]
    low, high = np.quantile(np.concatenate(found), [0.025, 0.975])
    return float(low), float(high)


@dataclass(frozen=True)
class Figure:
    """A value and its 95 % interval, in the unit of its row."""

    value: float
    low: float
    high: float

    def text(self, form: str) -> str:
        return f"{self.value:{form}} ({self.low:{form}} to {self.high:{form}})"


@dataclass
class Table:
    """Rows are figures, columns tools; a row may say what one of its figures is to meet."""

    rows: list[tuple[str, ...]] = field(default_factory=list)
    all_met: bool = True

    def add(
        self,
        what: str,
        unit: str,
        form: str,
        figures: dict[str, Figure],
        *,
        limit: float | None = None,
        judged: str = OURS,
    ) -> None:
        """``limit`` holds for the upper end of the interval of ``judged``."""
        cells = [figures[it].text(form) if it in figures else "-" for it in (OURS, *PEERS)]
        verdict = ""
        if limit is not None:
            met = figures[judged].high <= limit
            verdict = f"<= {limit:{form}}: {'met' if met else 'MISSED'}"
            self.all_met = self.all_met and met
        self.rows.append((what, unit, *cells, verdict))

    def show(self) -> None:
        heads = ("figure (95 % interval)", "unit", OURS, *PEERS, "to meet")
        widths = [max(map(len, column)) for column in zip(heads, *self.rows, strict=True)]
        for row in (heads, *self.rows):
            print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)))
