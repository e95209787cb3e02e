import subprocess
import sys
from pathlib import Path


def test_two_hundred_kills_ten_of_them_here():
    script = Path(__file__).parents[2] / "benchmarks" / "knob_kills.py"
    rounds = ["--rounds", "10", "--harder", "6", "--runs", "2", "--service", "4", "--seed", "1"]
    command = [sys.executable, str(script), *rounds]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert killed.returncode == 0, killed.stdout + killed.stderr
    assert "22 of 22 restored" in killed.stdout
