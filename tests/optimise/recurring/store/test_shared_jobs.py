"""Workers that share a job and are killed: the short form of ``benchmarks/job_store.py``."""

import subprocess
import sys

import pytest

from tests.helpers.paths import ROOT
from tests.helpers.postgresql import missing


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_no_outcome_is_lost_or_doubled_when_workers_are_killed(database):
    if database == "postgresql" and missing():
        pytest.skip(missing())
    workers = {"sqlite": "0", "postgresql": "0", database: "8"}
    options = [f"--{name}={count}" for name, count in workers.items()]
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks/job_store.py", "--recurrences=60", *options],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "nothing lost or doubled" in done.stdout
