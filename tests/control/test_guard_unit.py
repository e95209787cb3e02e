"""The unit for systemd is the one that is shipped, for the joulewise that prints it."""

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from processes import JOULEWISE

PROGRAM = Path(sysconfig.get_path("scripts")) / "joulewise"


@pytest.fixture
def unit(tmp_path):
    done = subprocess.run([*JOULEWISE, "guard", "--unit"], capture_output=True, check=True)
    path = tmp_path / "joulewise-guard.service"
    path.write_bytes(done.stdout)
    return path


def test_it_starts_this_installation(unit):
    assert f"ExecStart={PROGRAM} guard --config" in unit.read_text()
    assert "@" not in unit.read_text().split("ExecStart=")[1].splitlines()[0]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not here")
def test_systemd_understands_it(unit):
    checked = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")
