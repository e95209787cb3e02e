"""A search along several axes from end to end: in virtual time, and on simulated GPUs."""

import json
import sys

import pytest

from joulewise.data.sweeps import CONFIRMING, TrialState
from joulewise.metrics.evaluate import evaluate
from joulewise.metrics.metric import parse
from joulewise.sweep.lifecycle import prepare, run_sweep, strategy
from joulewise.sweep.spec import SimulationSpec, SweepSpec
from tests.helpers.fake_runner import Watched
from tests.helpers.simulated_sweeps import JOULEWISE, simulated

AXES = {"power_limit_w": "150:300:50", "sm_clock_mhz": "1080:1530:150", "batch_size": "32,64,128"}
SIMULATED = SimulationSpec("v100", "resnet50")

SWEEP = """
import subprocess, sys
sys.exit(subprocess.run(sys.argv[1:]).returncode)
"""
TRAIN = """
import sys
from joulewise.simulate.client import gpu
for step in range(int(sys.argv[1])):
    gpu(0).step("resnet50", batch_size=32)
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    asked = SweepSpec((), AXES, adaptive=True, by=("edp",), simulated=SIMULATED)
    watch = Watched()
    return run_sweep(prepare(asked), tmp_path_factory.mktemp("store"), watch), watch


def test_probes_and_whole_runs_in_virtual_time(swept):
    sweep, watch = swept
    looks = [it for it in sweep.trials if it.look_s is not None]
    assert len(looks) > 15
    assert all(10 <= it.time_s < 15 for it in looks)
    explored = [it for it in sweep.trials if it.look_s is None and it.block < CONFIRMING]
    assert len(explored) <= 3
    assert sweep.sure["metrics"]["edp"]["settings"]["batch_size"] == "128"
    assert watch.lines == []


def test_stopped_runs_enter_no_statistics(swept):
    sweep, _ = swept
    stopped = [it for it in sweep.trials if it.state is TrialState.STOPPED]
    whole = {it.setting: it.time_s for it in sweep.trials if it.state is TrialState.DONE}
    assert all(it.time_s > min(whole.values()) for it in stopped)
    result = evaluate(sweep, [parse("edp")])
    counted = {point.setting: point.n for point in result.points}
    assert not any(counted.get(it.setting, 0) for it in stopped if it.setting not in whole)
    choice = result.choices["gpu"]["edp"]
    assert choice.setting.as_json() == sweep.sure["metrics"]["edp"]["settings"]


def test_one_control_uses_the_one_axis_search():
    asked = SweepSpec(
        (), {"power_limit_w": "full"}, adaptive=True, by=("edp",), simulated=SIMULATED
    )
    prepared = prepare(asked)
    assert type(strategy(asked, prepared.space)).__name__ == "OneAxisSearch"


def test_dominated_training_is_stopped(tmp_path):
    """More steps take more of both, from the moment on that the reference was at its end."""
    (tmp_path / "several.py").write_text(TRAIN)
    ran = simulated(
        tmp_path,
        SWEEP,
        *(*JOULEWISE, "--store", "runs", "sweep", "--adaptive", "--by", "energy"),
        *("--set", "steps=20,400,800", "--json", "out.json"),
        *("--", sys.executable, "several.py", "{steps}"),
        gpu="v100",
    )
    assert ran.returncode == 0, ran.stderr
    payload = json.loads((tmp_path / "out.json").read_text())
    (file,) = (tmp_path / "runs" / "sweeps").glob("*/sweep.json")
    trials = json.loads(file.read_text())["trials"]
    stopped = [it for it in trials if it["state"] == "stopped"]
    assert {it["setting"]["steps"] for it in stopped} == {"400", "800"}
    whole_s = min(it["time_s"] for it in trials if it["state"] == "done")
    assert all(it["time_s"] > whole_s for it in stopped)
    assert payload["best"]["energy"]["settings"]["steps"] == "20"
    assert {it["settings"]["steps"] for it in payload["points"] if it["n"]} == {"20"}
