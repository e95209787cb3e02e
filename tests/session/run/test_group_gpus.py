"""The GPUs of commands that share a recorder: all that any of them sees, and no others."""

import csv
import json
import subprocess
import sys

import pytest

from joulewise.session.group import GpuVisibility
from tests.helpers.processes import DEADLINE_S, JOULEWISE
from tests.helpers.run_processes import environment, manifest, runs

# Each task waits until both are recorded, and then loads the first GPU that it sees.
TASK = """
import os, pathlib, sys, time
from joulewise.simulate import gpu
meet = pathlib.Path(sys.argv[1])
(meet / str(os.getpid())).touch()
while len(list(meet.iterdir())) < 2:
    time.sleep(0.01)
end_s = time.monotonic() + 1.0
while time.monotonic() < end_s:
    gpu(0).step("resnet50", batch_size=32)
"""
# Two tasks of a job, as a scheduler starts them: their variables are in the first arguments.
JOB = """
import json, os, subprocess, sys
tasks = [
    subprocess.Popen(sys.argv[3:], env={**os.environ, **json.loads(variables)})
    for variables in sys.argv[1:3]
]
sys.exit(max(task.wait() for task in tasks))
"""


def run_job(tmp_path, *tasks, gpus="v100x3", group=("--group", "g")):
    """The result of a group, and what the simulated GPUs have drawn in all, by key."""
    meet, truth = tmp_path / "meet", tmp_path / "truth.csv"
    meet.mkdir()
    task = [*JOULEWISE, "--store", str(tmp_path / "store"), "run", *group, "--"]
    done = subprocess.run(
        [
            *(*JOULEWISE, "sim", "--gpu", gpus, "--truth", str(truth), "--"),
            *(sys.executable, "-c", JOB, *map(json.dumps, tasks), *task),
            *(sys.executable, "-c", TASK, str(meet)),
        ],
        capture_output=True, text=True, check=False, env=environment(), timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (folder,) = runs(tmp_path / "store")
    result = json.loads((folder / "result.json").read_text())
    return result, truth_of(truth, result), done.stderr


def truth_of(path, result):
    start_ns = result["start_monotonic_ns"]
    end_ns = start_ns + result["time_s"] * 1e9
    drawn = {}
    with path.open() as file:
        for row in csv.DictReader(file):
            if start_ns <= int(row["monotonic_ns"]) <= end_ns:
                drawn.setdefault(f"gpu{row['gpu']}", []).append(float(row["energy_j"]))
    return {key: energies[-1] - energies[0] for key, energies in drawn.items()}


@pytest.mark.parametrize(
    ("group", "variables"),
    [(("--group", "g"), {}), ((), {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"})],
)
def test_the_gpus_of_all_tasks_count_and_those_of_none_do_not(tmp_path, group, variables):
    tasks = [{**variables, "CUDA_VISIBLE_DEVICES": number} for number in "01"]
    result, truth_j, said = run_job(tmp_path, *tasks, group=group)
    assert {"gpu0", "gpu1"} <= set(result["counted"])
    assert not result["energy_j"]["total"]["at_least"]
    for key in ("gpu0", "gpu1"):
        energy = result["energy_j"][key]
        assert energy["value"] == pytest.approx(truth_j[key], abs=2 * energy["error"])
    assert not {"gpu2"} & {*result["counted"], *result["energy_j"]}
    assert result["excluded"] == []
    assert "gpu2" not in json.dumps(manifest(tmp_path / "store")["devices"])
    (folder,) = runs(tmp_path / "store")
    assert not list((folder / "trace").glob("gpu2*"))
    assert "gpu2" not in said


def test_a_gpu_that_the_recorder_may_not_open_is_missing(tmp_path):
    """As where a cgroup gives each task a GPU of its own: whoever is first starts the recorder."""
    tasks = []
    for number in "01":
        folder = tmp_path / f"dev{number}"
        folder.mkdir()
        (folder / f"nvidia{number}").touch()
        (folder / "nvidiactl").touch()
        tasks.append({"JOULEWISE_DEV": str(folder), "CUDA_VISIBLE_DEVICES": "0"})
    result, _, _ = run_job(tmp_path, *tasks, gpus="v100")
    (missing,) = {"nvidia0", "nvidia1"} & set(result["counted"])
    assert "gpu0" in result["counted"]
    assert result["energy_j"][missing] is None
    assert result["energy_j"]["total"]["at_least"]
    (warning,) = [w for w in result["warnings"] if w["device"] == missing]
    assert warning["code"] == "device_unavailable"
    assert f"/dev/{missing}" in warning["message"]


def test_who_hides_all_gpus_misses_none(tmp_path):
    (tmp_path / "nvidia1").touch()
    environ = {"JOULEWISE_DEV": str(tmp_path)}
    none = {"JOULEWISE_DEV": str(tmp_path / "none")}
    assert GpuVisibility.of({**environ, "CUDA_VISIBLE_DEVICES": ""}).missing(none) == ()
    (missing,) = GpuVisibility.of(environ).missing(none)
    assert missing.info.key == "nvidia1"
    assert GpuVisibility.of(environ).missing(environ) == ()
