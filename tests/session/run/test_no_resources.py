"""Without descriptors, processes or a working folder: the command's status, or two lines."""

import os
import resource
import subprocess
import sys

import pytest

from tests.helpers.processes import DEADLINE_S, JOULEWISE

# What a command inherits: which signals are blocked and which are ignored.
SIGNALS = "grep -E 'SigBlk|SigIgn' /proc/self/status; exit 9"
# As `ulimit -u 1` does for anybody but root, for whom that limit does not hold.
NO_PROCESS = """
import errno, subprocess, sys
def refuse(*_, **__):
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
subprocess.Popen.__init__ = refuse
from joulewise.cli import main
main()
"""


def ran(words, **options):
    return subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=DEADLINE_S, **options
    )


def limit_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (6, 6))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("scarce", ["descriptors", "processes"])
def test_the_command_runs_unmeasured_and_as_if_alone(tmp_path, scarce):
    command = ["run", "--", "sh", "-c", SIGNALS]
    if scarce == "descriptors":
        done = ran(
            [*JOULEWISE, "--store", str(tmp_path), *command],
            preexec_fn=limit_descriptors,
        )
    else:
        done = ran([sys.executable, "-c", NO_PROCESS, "--store", str(tmp_path), *command])
    alone = ran(["sh", "-c", SIGNALS])
    assert (done.returncode, done.stdout) == (9, alone.stdout), done.stderr
    assert "the command is not measured" in done.stderr
    assert "ulimit" in done.stderr
    assert "unexpected" not in done.stderr


@pytest.mark.parametrize("words", [["--", "sh", "-c", "exit 9"], ["--pid", str(os.getpid())]])
def test_a_deleted_working_folder_is_an_unusable_store(tmp_path, words):
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    environ = {name: value for name, value in os.environ.items() if name != "JOULEWISE_STORE"}
    done = ran(["sh", "-c", script, "sh", str(gone), *JOULEWISE, "run", *words], env=environ)
    assert done.returncode == 125
    lines = [line for line in done.stderr.splitlines() if "getcwd" not in line]
    assert lines[0] == "joulewise: cannot make a run in joulewise-runs: No such file or directory"
    assert lines[1] == "  name another with --store DIR or $JOULEWISE_STORE"
