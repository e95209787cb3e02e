"""Workers that share a job and are killed: the short form of ``benchmarks/job_store.py``."""

import subprocess
import sys

import pytest

from tests.helpers.paths import ROOT


@pytest.mark.parametrize(("database", "count"), [("sqlite", "32"), ("postgresql", "64")])
def test_no_outcome_is_lost_or_doubled_when_workers_are_killed(database, count):
    workers = {"sqlite": "0", "postgresql": "0", database: count}
    options = [f"--{name}={count}" for name, count in workers.items()]
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks/job_store.py", "--recurrences=150", *options],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "nothing lost or doubled" in done.stdout
