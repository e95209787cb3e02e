"""The benchmarks of what measuring costs still run. What they find is judged where it is quiet."""

import subprocess
import sys

import pytest

from tests.helpers.paths import ROOT

BENCHMARKS = ROOT / "benchmarks"


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        (["start_up.py", "--rounds", "1"], ["1 simulated GPU: CPU time"]),
        (["cost.py", "recorder", "--seconds", "1"], ["default rate", "asked for 100 Hz"]),
        (
            ["cost.py", "training", "--pairs", "20", "--seconds", "1", "--rounds", "1"],
            ["slowdown", "marking one step", "CPU time and marks"],
        ),
    ],
    ids=lambda it: " ".join(it[:2]),
)
def test_it_prints_its_table(arguments, rows):
    done = subprocess.run(
        [sys.executable, BENCHMARKS / arguments[0], *arguments[1:], "--alone"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr  # 1: printed, and missed a limit
    for row in rows:
        assert row in done.stdout, done.stderr
