"""Whoever cannot turn the controls of a sweep is told before its first run."""

from tests.helpers.simulated_sweeps import LIMITS, simulated

SWEEP = """
import subprocess, sys
from joulewise import control
sweep = [sys.executable, "-m", "joulewise", "sweep", "--power-limit", "150,200", "--repeat", "1"]
train = ["--", sys.executable, "train.py", "2"]
"""


def test_leased_control_ends_the_sweep_before_it_begins(tmp_path):
    ran = simulated(
        tmp_path,
        SWEEP + 'with control.lease("gpu0", power_limit_w=250):\n'
        "    sys.exit(subprocess.run([*sweep, *train]).returncode)",
    )
    assert ran.returncode == 125
    assert "gpu0's power limit is held at 250 W by pid" in ran.stderr.splitlines()[0]
    assert not (tmp_path / "joulewise-runs").exists()


def test_a_right_that_is_missing_is_told_before_the_first_run(tmp_path):
    """The simulated driver refuses, as a real one does to others than root."""
    ran = simulated(
        tmp_path,
        SWEEP + "sys.exit(subprocess.run([*sweep, *train]).returncode)",
        options=("--fault", "gpu*:denied"),
    )
    assert ran.returncode == 125, ran.stderr
    assert len(ran.stderr.splitlines()) == 2
    assert not (tmp_path / "joulewise-runs").exists()


def test_trying_controls_restores_them(tmp_path):
    ran = simulated(
        tmp_path,
        SWEEP + f"subprocess.run({LIMITS!r})\nsubprocess.run([*sweep, *train])\n"
        f"subprocess.run({LIMITS!r})",
        gpu="v100",
    )
    first, *_, last = ran.stdout.splitlines()
    assert first == last == "300.00"
