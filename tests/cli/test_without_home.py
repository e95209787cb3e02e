"""Verbs that draw, for a user who has no home folder, as a container may run them."""

import os
import subprocess
import sys

import pytest

# The user is in no passwd, whoever runs the tests.
MAIN = """
import pwd, sys

def unknown(_uid):
    raise KeyError("no such user")

pwd.getpwuid = unknown
from joulewise.cli import main
main()
"""


@pytest.fixture
def joulewise(tmp_path):
    environ = {k: v for k, v in os.environ.items() if k != "HOME" and not k.startswith("XDG_")}
    environ["JOULEWISE_STATE"] = str(tmp_path / "state")

    def call(*arguments):
        done = subprocess.run(
            [sys.executable, "-c", MAIN, *arguments],
            env=environ, cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done

    return call


def test_a_user_without_a_home_gets_reports_and_figures(joulewise, tmp_path):
    sweep = ("sweep", "--sim", "v100", "--workload", "resnet50", "--power-limit", "150,200")
    joulewise(*sweep, "--repeat", "2", "--name", "mine")
    joulewise(*sweep, "--repeat", "2", "--name", "other", "--seed", "1")
    joulewise("report", "mine", "--figures", "figures", "--format", "pdf", "-o", "mine.html")
    drawn = list((tmp_path / "figures").iterdir())
    assert drawn
    assert all(path.read_bytes().startswith(b"%PDF-") for path in drawn)
    page = (tmp_path / "mine.html").read_text("utf-8")
    assert "home directory" not in page
    assert "vegaEmbed" in page
    joulewise("compare", "mine", "other", "--html", "compare.html")
    assert "home directory" not in (tmp_path / "compare.html").read_text("utf-8")
