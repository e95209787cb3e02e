"""Lists of a store while the wall clock jumps, faked by libfaketime in processes of their own.

A whole run cannot be recorded under libfaketime 0.9.10, which Debian 12 has: it fails the sleeps of
Python 3.11 and later, also with FAKETIME_DONT_FAKE_MONOTONIC (wolfcw/libfaketime issue 426). The
test of a run has a library of its own: tests/session/run/wall_clock.c.
"""

import glob
import json
import os
import subprocess
import sys

import pytest

from tests.store.test_index import make, plain, write_result

LIBRARIES = sorted(glob.glob("/usr/lib/*/faketime/libfaketime.so.1"))  # noqa: PTH207
YEAR_S = 365 * 86400
COMMAND = """
import sys
from joulewise.store.index import folder_index
folder_index.SMALL_STORE = 0  # so that these few runs have an index file
from joulewise.cli import main
sys.exit(main())
"""
NOW = "import time; print(time.time())"

pytestmark = pytest.mark.skipif(not LIBRARIES, reason="script/system-packages installs libfaketime")


def python(code, *arguments, offset_s):
    # NO_FAKE_STAT: the times of files stay as the kernel has them, as when a clock was set.
    environ = {
        **os.environ,
        "LD_PRELOAD": LIBRARIES[0],
        "FAKETIME": f"{offset_s:+d}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True, text=True, check=False, timeout=180, env=environ,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def listed(store, offset_s):
    """Id and joules of every run, oldest first."""
    said = python(COMMAND, "--store", str(store), "ls", "--json", "-", offset_s=offset_s)
    return [(run["id"], run["energy_j"]["total"]["value"]) for run in json.loads(said)["runs"]]


def expected(store):
    runs, _ = plain(store)
    return [(run.path.name, run.energy["value"]) for run in runs]


@pytest.mark.parametrize("jumps_s", [(20 * YEAR_S, -20 * YEAR_S), (-3600, 3600), (-60, 0)])
def test_a_list_is_right_whatever_the_clock_says(tmp_path, jumps_s):
    store = tmp_path / "store"
    runs = [make(store, number, joules=100.0 * number) for number in range(1, 8)]
    assert listed(store, 0) == expected(store)
    for number, offset_s in enumerate(jumps_s, start=20):
        make(store, number, joules=1.0)
        assert listed(store, offset_s) == expected(store)
        write_result(runs.pop(), 7000.0 + number)
        assert listed(store, offset_s) == expected(store)
        runs.pop().rename(tmp_path / f"moved away {number}")
        assert listed(store, offset_s) == expected(store)
    assert listed(store, 0) == expected(store)


def test_the_clock_is_faked():
    real_s, ahead_s = (float(python(NOW, offset_s=offset_s)) for offset_s in (0, YEAR_S))
    assert ahead_s - real_s == pytest.approx(YEAR_S, abs=60)
