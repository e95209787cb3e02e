"""`joulewise tune` in real time on a job of two ranks, each with a simulated GPU of its own."""

import json
import os
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean

import pytest

from joulewise.data.tuning import TuningState
from joulewise.store.tuning_file import read_tuning
from tests.helpers.processes import DEADLINE_S, JOULEWISE, eventually, gone
from tests.helpers.run_processes import runs
from tests.optimise.live.tuned_jobs import BEFORE_W, STATUS, tuning

RANKS = str(Path(__file__).parent / "scripts/ranks.py")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", RANKS)
BEFORE = [BEFORE_W, BEFORE_W]


@contextmanager
def ranks(folder, *options, program=(RANKS, "apart"), sim=(), axis="power-limit"):
    until = folder / "until"
    until.touch()
    words = ("--axis", axis, "--by", "energy", *options)
    environ = {"UNTIL": str(until), "OMP_NUM_THREADS": "1"}
    with tuning(
        folder / "store", *words, program=program, boards="v100x2", environ=environ, sim=sim
    ) as job:
        yield job, until.unlink


def ranks_of(job):
    """The processes of the ranks, the first rank first."""
    children = Path(f"/proc/{job.command_pid}/task/{job.command_pid}/children").read_text()
    return [int(pid) for pid in children.split()]


def ended(job):
    tuning = read_tuning(job.run) if runs(job.store) else None
    return tuning is not None and tuning.state is TuningState.ENDED


def test_torchrun_has_one_decision_summed_energy_and_the_slowest_ranks_time(tmp_path):
    report = tmp_path / "tuned.json"
    with ranks(tmp_path, "--json", str(report), program=TORCHRUN) as (job, end):
        eventually(lambda: job.limits_w()[0] != BEFORE_W)
        eventually(lambda: len(set(job.limits_w())) == 1)  # set one after the other
        eventually(lambda: len(read_tuning(job.run).tried) > 1)
        end()
        _, _, status = job.finish()
        assert status == 0
        assert job.limits_w() == BEFORE
    tuned = read_tuning(job.run)
    assert tuned.devices == ("gpu0", "gpu1")
    (before,) = (one for one in tuned.tried if one.settings == tuned.reference)
    # Both ranks wait for the second, whose batch is twice as large: 101 ms on this board.
    assert 0.09 < before.step_time_s.mean < 0.2
    told = json.loads(report.read_text())
    first_s = next(p.start_s for p in tuned.phases if p.settings not in (None, tuned.reference))
    energies = {
        key: fmean(
            span["energy_j"][key]["value"]
            for span in told["spans"]
            if span["name"] == "step" and span["start_s"] > 1 and span["end_s"] < first_s - 0.5
        )
        for key in tuned.devices
    }
    assert energies["gpu0"] < energies["gpu1"]
    assert before.step_energy_j.mean == pytest.approx(sum(energies.values()), rel=0.15)


def test_a_lost_rank_ends_the_tuning_and_the_job_goes_on(tmp_path):
    with ranks(tmp_path) as (job, end):
        eventually(lambda: BEFORE_W not in job.limits_w())
        first, second = ranks_of(job)
        os.kill(second, signal.SIGKILL)
        eventually(lambda: ended(job))
        assert job.limits_w() == BEFORE
        assert not gone(first)
        end()
        out, said, status = job.finish()
        assert (out, status) == ("trained\n", STATUS)
    assert read_tuning(job.run).reason.startswith(("rank 1 has ended", "rank 1 has marked nothing"))
    assert said.count("tuning ended: ") == 1


def test_one_gpu_whose_limit_cannot_be_set_leaves_both_as_they_are(tmp_path):
    with ranks(tmp_path, sim=("--fault", "gpu1:limit-refused")) as (job, end):
        end()
        out, said, status = job.finish()
        assert (out, status) == ("trained\n", STATUS)
        assert job.limits_w() == BEFORE
    assert said.count("tuning ended: ") == 1
    assert "gpu1" in said.partition("tuning ended: ")[2].splitlines()[0]


def test_a_setter_that_refuses_while_it_trains_ends_the_tuning_on_both(tmp_path):
    with ranks(tmp_path, sim=("--fault", "gpu1:limit-refused@20s")) as (job, end):
        eventually(lambda: ended(job))
        eventually(lambda: job.limits_w()[0] == BEFORE_W)
        end()
        out, said, status = job.finish()
        assert (out, status) == ("trained\n", STATUS)
    assert said.count("tuning ended: ") == 1
    assert "gpu1" in read_tuning(job.run).early_end.reason


def test_a_lease_on_one_gpu_leaves_both_as_they_are(tmp_path):
    until = tmp_path / "holding"
    until.touch()
    wait = f"while [ -e {until} ]; do sleep 0.1; done"
    with ranks(tmp_path) as (job, end):
        end()
        job.finish()
        hold = [*JOULEWISE, "run", "--gpu", "1", "--power-limit", "200", "--", "sh", "-c", wait]
        with subprocess.Popen(hold, env=job.environ, cwd=tmp_path, stderr=subprocess.DEVNULL) as it:
            eventually(lambda: job.limits_w() == [BEFORE_W, 200])
            tuned = [*JOULEWISE, "tune", "--axis", "power-limit", "--", "echo", "hello"]
            ran = subprocess.run(
                tuned, env=job.environ, cwd=tmp_path, timeout=DEADLINE_S, check=False,
                capture_output=True, text=True,
            )  # fmt: skip
            assert job.limits_w() == [BEFORE_W, 200]
            until.unlink()
            assert it.wait(DEADLINE_S) == 0
        assert job.limits_w() == BEFORE
    assert (ran.stdout, ran.returncode) == ("hello\n", 0)
    assert "gpu1's power limit is held at" in ran.stderr
    assert ran.stderr.count("tuning ended: ") == 1
