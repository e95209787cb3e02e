"""The benchmark of the adaptive search, on a few of its cases."""

import re
import subprocess
import sys

from tests.helpers.paths import BENCHMARKS

BENCHMARK = BENCHMARKS / "adaptive.py"


def run(*arguments):
    return subprocess.run(
        [sys.executable, BENCHMARK, *arguments], capture_output=True, text=True, check=False
    )


def test_it_chooses_well_where_luck_does_not():
    done = run("--seeds", "1", "--every", "6", "--jobs", "1")
    assert done.returncode in {0, 1}, done.stderr  # 1: so few cases may miss a limit
    within = {
        name.strip(): float(share)
        for name, share in re.findall(r"^(.{34}) *(\d+\.\d)%", done.stdout, re.MULTILINE)
    }
    assert within["all"] >= 90
    assert within["limits at random, as many runs"] < within["all"]
    assert len(re.findall(r"^met +right, when sure", done.stdout, re.MULTILINE)) == 2


def test_it_says_which_table_of_the_measured_curves_is_missing(tmp_path):
    done = run("--traces", str(tmp_path))
    assert done.returncode == 2
    assert "no summary_power_v100.csv in" in done.stderr
