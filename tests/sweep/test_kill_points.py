import subprocess
import sys

from tests.helpers.paths import BENCHMARKS


def test_fifty_kills_ten_of_them_here():
    script = BENCHMARKS / "sweep_kills.py"
    command = [sys.executable, str(script), "--rounds", "10", "--seed", "1"]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert killed.returncode == 0, killed.stdout + killed.stderr
    assert "the same runs each time, none lost, none twice" in killed.stdout
