"""A sweep on a real Ray cluster: two nodes, each with a simulated GPU of its own."""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.helpers.processes import JOULEWISE, eventually
from tests.helpers.ray_nodes import ENVIRON, cluster
from tests.helpers.simulated_sweeps import TRAIN

pytest.importorskip("ray")
SWEEP = ("--power-limit", "150,300", "--repeat", "2", "--json", "told.json")
STUCK = """
import os, pathlib, signal
if os.environ["TEST_NODE"] == "2":
    pathlib.Path(__file__).with_name("under-way").touch()
    signal.pause()
"""
EXPECTED = {(limit_w, block) for limit_w in (150.0, 300.0) for block in (0, 1)}


def command(folder, train=TRAIN):
    (folder / "train.py").write_text(train)
    return ("--", sys.executable, str(folder / "train.py"), "8")


def start(folder, *words, at=""):
    return subprocess.Popen(
        [*JOULEWISE, *words],
        cwd=folder,
        env={**os.environ, **ENVIRON, "RAY_ADDRESS": at},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def trials(folder):
    files = list(folder.glob("joulewise-runs/sweeps/*/sweep.json"))
    return json.loads(files[0].read_text())["trials"] if files else []


def made(folder):
    """(limit, block) of the runs that are done, and how often."""
    return Counter(
        (trial["setting"]["power_limit_w"], trial["block"])
        for trial in trials(folder)
        if trial["state"] == "done"
    )


def points(folder):
    payload = json.loads((folder / "told.json").read_text())
    return {point["settings"]["power_limit_w"]: point for point in payload["points"]}


def test_a_cluster_makes_the_same_table_as_this_machine(tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    with cluster() as (address, _):
        sweep = start(there, "sweep", "--on", "ray", *SWEEP, *command(there), at=address)
        _, said = sweep.communicate()
        assert sweep.returncode == 0, said
    local = start(
        here, "sim", "--gpu", "v100", "--as-root", "--", *JOULEWISE, "sweep", *SWEEP, *command(here)
    )
    _, said = local.communicate()
    assert local.returncode == 0, said
    assert set(made(there)) == set(made(here)) == EXPECTED
    assert set(made(there).values()) == {1}
    assert len({trial["gpu"] for trial in trials(there)}) == 2
    for limit_w, point in points(there).items():
        other = points(here)[limit_w]
        assert point["n"] == other["n"] == 2
        # Each board's sensor has a gain of its own, of a few percent.
        assert point["energy_j"]["mean"] == pytest.approx(other["energy_j"]["mean"], rel=0.2)
    stored = [trial["run"] for trial in trials(there)]
    assert all((there / "joulewise-runs" / run / "result.json").is_file() for run in stored)


def test_a_node_that_is_lost_costs_no_run(tmp_path):
    train = command(tmp_path, STUCK + TRAIN)
    with cluster() as (address, (_, second)):
        sweep = start(tmp_path, "sweep", "--on", "ray", *SWEEP, *train, at=address)
        eventually(lambda: sweep.poll() is not None or (tmp_path / "under-way").exists())
        second.kill()
        _, said = sweep.communicate()
        assert sweep.returncode == 0, said
    assert made(tmp_path) == dict.fromkeys(EXPECTED, 1)
    assert "lost" in said


def test_no_cluster_is_said_in_two_lines(tmp_path):
    nobody = "127.0.0.1:1"
    sweep = start(tmp_path, "sweep", "--on", "ray", *SWEEP, *command(tmp_path), at=nobody)
    _, said = sweep.communicate()
    assert sweep.returncode == 125
    what, todo = said.splitlines()
    assert what.startswith("joulewise: no Ray cluster at ray: ")
    assert "ray start --head" in todo


def test_run_without_controls_is_shown_a_gpu(tmp_path):
    looking = "import os, sys; sys.exit(not os.environ['CUDA_VISIBLE_DEVICES'])"
    words = ("--set", "seed=1,2", "--repeat", "1")
    train = ("--", sys.executable, "-c", looking, "{seed}")
    with cluster(1) as (address, _):
        sweep = start(tmp_path, "sweep", "--on", "ray", *words, *train, at=address)
        _, said = sweep.communicate()
        assert sweep.returncode == 0, said
    assert [trial["state"] for trial in trials(tmp_path)] == ["done", "done"]
