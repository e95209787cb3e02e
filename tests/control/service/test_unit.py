"""The unit for systemd is the one that is shipped, for the joulewise that prints it."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from joulewise.cli import main
from joulewise.control.service.server import changeable_by_others
from tests.helpers.processes import JOULEWISE

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


@pytest.fixture
def installation(tmp_path):
    """A program in folders that belong to whoever runs the tests."""
    program = tmp_path / "opt" / "bin" / "joulewise"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    return program


@pytest.mark.skipif(not Path("/bin/sh").exists(), reason="there is no /bin/sh")
def test_a_program_that_only_root_can_change_is_safe():
    assert changeable_by_others([Path("/bin/sh")]) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root owns what it makes as root")
def test_a_program_of_root_in_folders_of_root_is_safe(installation):
    assert changeable_by_others([installation]) is None


@pytest.mark.parametrize("which", ["program", "bin", "opt"])
def test_what_others_may_write_is_named(installation, which):
    path = {it.name: it for it in (installation.parent, installation.parent.parent)}.get(
        which, installation
    )
    path.chmod(0o777)
    found = changeable_by_others([installation])
    assert found == path if os.geteuid() == 0 else found is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_what_another_user_owns_is_named_also_behind_a_link(installation, tmp_path):
    os.chown(installation, 12345, -1)
    link = tmp_path / "joulewise"
    link.symlink_to(installation)
    assert changeable_by_others([link]) == installation


def test_the_unit_of_an_installation_that_others_can_change_comes_with_a_warning(
    monkeypatch, tmp_path, capsys
):
    tmp_path.chmod(0o777)
    (tmp_path / "joulewise").touch()
    monkeypatch.setattr("joulewise.control.service.server._program", lambda: tmp_path / "joulewise")
    monkeypatch.setattr(sys, "argv", ["joulewise", "guard", "--unit"])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr()
    assert f"ExecStart={tmp_path}/joulewise" in said.out
    assert "users other than root can change" in said.err
    assert "warning" not in said.out
