"""Lines to stderr: people have a terminal of some width, programs read lines."""

import os
import subprocess

from tests.helpers.processes import JOULEWISE

LONG = " ".join(["word"] * 30)
FAILS = [*JOULEWISE, "run", "--json", f"{LONG}/file", "--", "true"]


def test_a_pipe_gets_whole_lines():
    ran = subprocess.run(FAILS, capture_output=True, text=True, check=False)
    assert ran.stderr == (
        f"joulewise: cannot write {LONG}/file\n  give --json a file that you can write to\n"
    )


def test_a_terminal_gets_lines_that_fit():
    screen, terminal = os.openpty()
    with open(screen, "rb", buffering=0) as shown:  # noqa: PTH123
        ran = subprocess.run(FAILS, stderr=terminal, check=False)
        os.close(terminal)
        lines = shown.read(10_000).decode().splitlines()
    assert ran.returncode == 2
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("joulewise: cannot write word ")
    assert lines[1].startswith(" " * 11 + "word ")
    assert lines[-1] == "  give --json a file that you can write to"
    assert " ".join(" ".join(lines[:-1]).split()) == f"joulewise: cannot write {LONG}/file"
