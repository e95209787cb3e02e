"""A power limit of the CPU packages for the time of a run."""

import os
import subprocess

import pytest

from tests.helpers.powercap_tree import XEON, PowercapTree
from tests.helpers.processes import JOULEWISE

UNRULED = {"SLURM_JOB_ID": "", "KUBERNETES_SERVICE_HOST": ""}  # as in an ordinary login


@pytest.fixture
def packages(tmp_path):
    tree = PowercapTree(tmp_path / "machine", XEON)
    limits = sorted(tree.path.glob("intel-rapl:?/constraint_0_power_limit_uw"))

    def run(*words):
        return subprocess.run(
            [*JOULEWISE, "run", *words],
            cwd=tmp_path,
            env={**os.environ, **UNRULED, **tree.environ, "JOULEWISE_STATE": str(tmp_path / "s")},
            capture_output=True,
            text=True,
            check=False,
        )

    run.limits = limits
    return run


def test_each_package_has_the_limit_meanwhile_and_its_own_after(packages):
    before = [int(path.read_text()) for path in packages.limits]
    ran = packages("--cpu-limit", "60", "--", "cat", *map(str, packages.limits))
    assert ran.stdout == 2 * "60000000"
    assert ran.returncode == 0
    assert [int(path.read_text()) for path in packages.limits] == before
    assert "cpu0, cpu1: power limit" in ran.stderr


def test_no_package_that_takes_one(monkeypatch, tmp_path):
    monkeypatch.setenv("JOULEWISE_POWERCAP", str(tmp_path))
    ran = subprocess.run(
        [*JOULEWISE, "run", "--cpu-limit", "60", "--", "true"],
        cwd=tmp_path,
        env={**os.environ, **UNRULED},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 125
    assert ran.stderr.startswith(
        "joulewise: no CPU package here has a power limit that can be set\n"
    )
