"""Sweeps in real time from end to end: of a torch script, and of one on simulated GPUs."""

import json
import os
import subprocess
import sys

from tests.helpers.processes import JOULEWISE
from tests.helpers.simulated_sweeps import LIMITS, UNRULED, run_script

TORCH = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(256, 8)), batch_size=int(sys.argv[1]))
for _ in range(3):
    for (batch,) in loader:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
"""


def joulewise(folder, *arguments):
    ran = subprocess.run(
        [*JOULEWISE, "--store", "runs", *arguments],
        cwd=folder,
        env={**os.environ, **UNRULED, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert ran.returncode == 0, ran.stderr
    return ran


def test_batch_sizes_of_a_torch_script(tmp_path):
    (tmp_path / "train.py").write_text(TORCH)
    options = ("--set", "batch_size=8,64", "--repeat", "2", "--by", "time", "--json", "swept.json")
    joulewise(tmp_path, "sweep", *options, "--", sys.executable, "train.py", "{batch_size}")
    swept = json.loads((tmp_path / "swept.json").read_text())
    assert swept["boundary"] == "node"
    assert swept["reference"]["settings"] == {"batch_size": "8"}
    assert [point["n"] for point in swept["points"]] == [2, 2]
    sweep = json.loads(next(tmp_path.glob("runs/sweeps/*/sweep.json")).read_text())
    for trial in sweep["trials"]:
        batch_size = int(trial["setting"]["batch_size"])
        assert trial["state"] == "done"
        assert trial["spans"]["epoch"]["count"] == 3
        assert trial["spans"]["step"]["count"] == 3 * 256 // batch_size
        assert trial["energy"]["rest"]["value"] > 0
    whole = joulewise(tmp_path, "choose", "last", "--epochs", "30", "--samples=512", "--json", "-")
    epochs = json.loads(whole.stdout)
    assert epochs["per"] == "training"
    assert epochs["reference"]["time_s"]["mean"] > swept["reference"]["time_s"]["mean"]


SWEEP = """
import json, subprocess, sys
sweep = [
    *%r, "--store", "runs", "sweep", "--power-limit", "150,300", "--repeat", "2", "--by", "energy",
    "--json", "swept.json", "--", sys.executable, "train.py", "24",
]
ran = subprocess.run(sweep, stdin=subprocess.DEVNULL, capture_output=True, text=True)
limits = subprocess.check_output(%r, text=True).split()
print(json.dumps([ran.returncode, ran.stderr, limits]))
"""


def test_power_limits_of_a_script_on_simulated_gpus(tmp_path):
    status, said, limits = run_script(tmp_path, SWEEP % (JOULEWISE, LIMITS))
    assert status == 0, said
    assert limits == ["300.00", "300.00"]
    swept = json.loads((tmp_path / "swept.json").read_text())
    low, default = swept["points"]
    assert swept["boundary"] == "gpu"
    assert swept["reference"] == default
    assert [point["n"] for point in swept["points"]] == [2, 2]
    assert low["settings"] == {"power_limit_w": 150}
    assert low["energy_ratio"]["mean"] < 0.95
    assert low["metrics"]["energy"]["mean"] == low["energy_j"]["mean"]
    assert swept["best"]["energy"]["settings"] == {"power_limit_w": 150}
    assert (swept["state"], swept["failed"]) == ("finished", [])
    shown = joulewise(tmp_path, "choose", "last").stdout
    # On a busy machine the runs may scatter by more than the limits differ: nothing is chosen then.
    differs = low["energy_ratio"]["high"] < 1
    assert ("energy: 150 W takes " in shown) is differs
    assert (f"run --power-limit=150 -- {sys.executable} train.py 24" in shown) is differs
