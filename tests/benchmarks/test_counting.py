"""The benchmarks of which devices count, in their short form: what they find must be right."""

import subprocess
import sys

import pytest

from tests.helpers.paths import ROOT

BENCHMARKS = ROOT / "benchmarks"


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        (["counted.py", "--rounds", "4", "--beside", "2"], ["used    laptop", "others  v100"]),
        (["drivers.py", "--rounds", "4", "--beside", "2"], ["slow: the second, 400 ms a call"]),
    ],
    ids=lambda it: it[0],
)
def test_it_is_right_in_all_cases(arguments, rows):
    done = subprocess.run(
        [sys.executable, BENCHMARKS / arguments[0], *arguments[1:]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for row in rows:
        assert row in done.stdout
