"""A plain sweep loads nothing that takes long to import and that it does not use."""

import subprocess
import sys

SWEEP = """
import sys, tempfile
from joulewise.cli import joulewise
with tempfile.TemporaryDirectory() as store:
    words = "sweep --sim v100 --workload ecg --power-limit 200,300 --repeat 1"
    joulewise.main(["--store", store, *words.split()], standalone_mode=False)
print(*sys.modules, file=sys.stderr)
"""


def test_a_grid_needs_no_search_and_no_cluster():
    ran = subprocess.run([sys.executable, "-c", SWEEP], capture_output=True, text=True, check=True)
    loaded = set(ran.stderr.splitlines()[-1].split())
    assert "joulewise.sweep.runners.virtual" in loaded
    heavy = {
        "scipy.stats",
        "scipy.optimize",
        "optuna",
        "ray",
        "torch",
        "joulewise.search.one_axis.adaptive",
    }
    assert not loaded & heavy


def test_sweep_without_controls_loads_no_guardian():
    ran = subprocess.run([sys.executable, "-c", SWEEP], capture_output=True, text=True, check=True)
    assert not {it for it in ran.stderr.splitlines()[-1].split() if "joulewise.control" in it}
