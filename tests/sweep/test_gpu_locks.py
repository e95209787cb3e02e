"""A sweep has its GPUs for its whole time: another one is told so before its first run."""

import os

import pytest

from joulewise.errors import HeldError
from joulewise.sweep.boards import TargetBoard
from joulewise.sweep.lock import reserve_gpus
from tests.helpers.simulated_sweeps import simulated

GPUS = [TargetBoard("gpu0", "GPU-0/1", "V100"), TargetBoard("gpu1", "GPU-2", "V100")]

TWO = """
import os, subprocess, sys
from joulewise.sweep.spec import SweepSpec
from joulewise.sweep.lifecycle import gpus_of, prepare
from joulewise.sweep.lock import reserve_gpus

def sweep(*more):
    command = [sys.executable, "-m", "joulewise", "--store", "runs", "sweep", "--repeat=1", *more]
    return subprocess.run(command, capture_output=True, text=True)

train = "--", sys.executable, "train.py", "1"
if os.fork() == 0:
    asked = SweepSpec(train[1:], {"power_limit_w": "200,300"}, gpus=(0,))
    with reserve_gpus(gpus_of([prepare(asked)])):
        refused = sweep("--power-limit=200,300", *train)
        assert refused.returncode == 125, refused.stderr
        assert f"gpu0 is used by a sweep that is run by process {os.getpid()} on" in refused.stderr
        assert " since 20" in refused.stderr
        assert not os.path.exists("runs")
        assert sweep("--gpu=1", "--power-limit=200,300", *train).returncode == 0
        virtual = sweep("--sim=v100", "--workload=resnet50", "--power-limit=200,300")
        assert virtual.returncode == 0, virtual.stderr
        os.kill(os.getpid(), 9)
assert os.WTERMSIG(os.wait()[1]) == 9
sys.exit(sweep("--power-limit=200,300", *train).returncode)
"""


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("JOULEWISE_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.mark.usefixtures("state")
def test_gpus_are_reserved_by_one_sweep_at_a_time():
    with reserve_gpus(GPUS[1:]):
        with (
            pytest.raises(HeldError, match=rf"gpu1 .* by process {os.getpid()} on "),
            reserve_gpus(GPUS),
        ):
            pass
        with reserve_gpus(GPUS[:1]):
            pass
    with reserve_gpus(GPUS):
        pass


def test_where_nothing_can_be_written_a_sweep_goes_on(state):
    state.write_text("in the way")
    with reserve_gpus(GPUS):
        pass


def test_a_second_sweep_is_refused_between_two_runs_of_the_first(tmp_path):
    """Its holder is killed at last, and what it had is free."""
    ran = simulated(tmp_path, TWO)
    assert ran.returncode == 0, ran.stderr
