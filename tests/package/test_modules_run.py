"""script/modules-run sees the functions that are called, in every process of a journey."""

import subprocess
import sys

import pytest

from tests.helpers.paths import ROOT


@pytest.fixture(scope="module")
def kinds():
    command = [sys.executable, ROOT / "script" / "modules-run", "--list", "run"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {module: kind for kind, module in map(str.split, done.stdout.splitlines())}


@pytest.mark.parametrize(
    "module",
    ["cli/run.py", "session/recorder_process.py", "devices/host/ram.py", "session/spans.py"],
    ids=["front process", "recorder", "a thread", "the command"],
)
def test_counts_what_is_called(kinds, module):
    assert kinds[module] == "called"


def test_tells_what_is_only_defined(kinds):
    assert kinds["devices/nvidia/gpu.py"] == "defining"


def test_leaves_out_what_is_not_imported(kinds):
    assert "sweep/execute.py" not in kinds
