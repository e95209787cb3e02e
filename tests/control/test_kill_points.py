import os
import subprocess
import sys

from tests.helpers.paths import BENCHMARKS


def test_two_hundred_kills_ten_of_them_here():
    script = BENCHMARKS / "setting_kills.py"
    services = 4 if os.geteuid() == 0 else 0  # which only root can start
    rounds = ["--rounds", "10", "--harder", "6", "--runs", "2", "--service", str(services)]
    command = [sys.executable, str(script), *rounds, "--seed", "1"]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert killed.returncode == 0, killed.stdout + killed.stderr
    assert f"{18 + services} of {18 + services} restored" in killed.stdout
