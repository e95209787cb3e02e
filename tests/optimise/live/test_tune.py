"""`joulewise tune` in real time on simulated GPUs: it settles, and whoever dies, all goes back."""

import json
import os
import signal
import subprocess
import sys

import pytest

from joulewise.data.tuning import TuningState
from joulewise.formatting import seconds
from joulewise.store.tuning_file import read_tuning
from tests.helpers.processes import DEADLINE_S, JOULEWISE, eventually, gone
from tests.helpers.run_processes import environ_of, runs
from tests.optimise.live.tuned_jobs import BEFORE_W, STATUS, tuning


def tune(*words, store, **how):
    """Run a tuning to its end."""
    return tune_by(*JOULEWISE, "--store", str(store), "tune", *words, **how)


def tune_by(*words, sim=("--gpu", "v100", "--as-root"), **environ):
    return subprocess.run(
        [*JOULEWISE, "sim", *sim, "--", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
        env={**os.environ, "COLUMNS": "120", **environ},
    )


def test_it_settles_holds_and_puts_back(tmp_path):
    report = tmp_path / "tuned.json"
    store = tmp_path / "store"
    with tuning(store, "--axis", "power-limit", "--by", "energy", "--json", report) as job:
        held = job.held()
        assert job.limit_w() == held.chosen["power_limit_w"] < BEFORE_W
        out, said, status = job.finish()
        assert (out, status) == ("trained\n", STATUS)
        assert job.limit_w() == BEFORE_W
    tuned = json.loads(report.read_text())["tune"]
    assert tuned["settled"]
    assert tuned["chosen"] == held.chosen.as_json()
    assert tuned["reference"] == {"power_limit_w": BEFORE_W}
    assert tuned["saving"]["energy"]["value"] > tuned["saving"]["energy"]["error"]
    assert tuned["exploration"]["steps"] > 0
    # Logged by joulewise.log(), but not at both settings in turn.
    (loss,) = tuned["program_metrics"]
    assert (loss["name"], loss["differs"], loss["difference"]["low"]) == ("loss", None, None)
    assert loss["reference"]["mean"] == pytest.approx(1.45, abs=0.15)
    page = tmp_path / "report.html"
    told = subprocess.run(
        [*JOULEWISE, "--store", store, "report", "last", "-o", page],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    for text in (said, page.read_text()):
        assert "the program logged loss" in " ".join(text.lower().split())
    assert f"holding {held.chosen}" in said
    shown = subprocess.run(
        [*JOULEWISE, "--store", store, "show", "last"], capture_output=True, text=True, check=True
    )
    assert "(chosen)" in shown.stdout
    assert "(before)" in shown.stdout


MODULES = {
    "tuner": "joulewise.optimise.live.tuner_process",
    "recorder": "joulewise.session.recorder_process",
    "guardian": "joulewise.control.guardian_process",
}


@pytest.mark.parametrize("who", [*MODULES, "front", "command"])
def test_whoever_is_killed_all_goes_back(who, tmp_path):
    with tuning(tmp_path, "--axis", "power-limit") as job:
        eventually(lambda: job.limit_w() != BEFORE_W)
        threads = [environ_of(pid) for pid in (job.pid_of(MODULES["tuner"]), job.command_pid)]
        assert [each.get("OPENBLAS_NUM_THREADS") for each in threads] == ["1", None]
        own = {"front": job.process.pid, "command": job.command_pid}
        os.kill(own.get(who) or job.pid_of(MODULES[who]), signal.SIGKILL)
        eventually(lambda: job.limit_w() == BEFORE_W)
        if who in own:
            eventually(lambda: gone(job.command_pid))
            assert abs(job.process.wait(DEADLINE_S)) in {signal.SIGKILL, 128 + signal.SIGKILL}
        else:
            out, said, status = job.finish()
            assert (out, status) == ("trained\n", STATUS)
            assert said.count("tuning ended: ") == 1
            assert job.limit_w() == BEFORE_W
            tuned = read_tuning(job.run)
            assert tuned.state is TuningState.ENDED
            assert tuned.early_end.at_s > 0
            assert tuned.early_end.is_restored
            assert f"tuning ended after {seconds(tuned.early_end.at_s)}" in " ".join(said.split())
        eventually(lambda: not any(map(job.pid_of, MODULES.values())))


def test_an_interrupt_ends_the_command_and_all_goes_back(tmp_path):
    with tuning(tmp_path, "--axis", "power-limit") as job:
        eventually(lambda: job.limit_w() != BEFORE_W)
        os.kill(job.process.pid, signal.SIGINT)
        assert job.process.wait(DEADLINE_S) in {128 + signal.SIGINT, 1}
        assert job.limit_w() == BEFORE_W


def test_without_the_right_the_command_runs_untouched(tmp_path):
    sim = ("--gpu", "v100", "--fault", "gpu0:limit-refused;gpu0:denied")
    ran = tune("--axis", "power-limit", "--", "echo", "hello", sim=sim, store=tmp_path)
    assert (ran.stdout, ran.returncode) == ("hello\n", 0)
    assert ran.stderr.count("tuning ended: ") == 1


@pytest.mark.parametrize(
    "words",
    [("--by", "joy"), ("--axis", "fan"), ("--json", "-"), ("--keep-checking", "90%")],
)
def test_a_wrong_request_starts_nothing(words, tmp_path):
    ran = tune(*words, "--", "echo", "hello", store=tmp_path)
    assert (ran.stdout, ran.returncode) == ("", 2)
    assert not tmp_path.exists() or not runs(tmp_path)


def test_a_program_that_ends_at_once_is_measured_and_not_tuned(tmp_path):
    report = tmp_path / "tuned.json"
    ran = tune("--json", str(report), "--", "sh", "-c", "exit 3", store=tmp_path / "store")
    assert ran.returncode == 3
    payload = json.loads(report.read_text())
    assert (payload["exit_code"], payload["tune"]["settled"]) == (3, False)
    assert payload["tune"]["reason"] in ran.stderr


def test_where_no_recorder_starts_the_gpus_are_let_go(tmp_path):
    """The command runs all the same; it sees that another may set the GPU, and why is said."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys; sys.modules['joulewise.session.recording'] = None"
    )
    report = tmp_path / "tuned.json"
    words = ("--axis", "power-limit", "--json", str(report), "--")
    lease = (*JOULEWISE, "--store", str(tmp_path / "inner"), "run", "--power-limit", "200")
    ran = tune(*words, *lease, "--", "true", store=tmp_path / "store", PYTHONPATH=str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    assert "is held at" not in ran.stderr
    assert "nothing is tuned: the command is not measured" in ran.stderr
    assert "before there was a step" not in ran.stderr


def test_a_tuning_that_cannot_be_read_is_told(tmp_path):
    code = """
import joulewise.store.tuning_file as file
from joulewise.cli import main
def fail(run):
    raise file.UnreadableTuningError("tuning.json is damaged", "")
file.load_tuning = fail
main()
"""
    words = ("--store", str(tmp_path), "tune", "--axis", "power-limit", "--", "true")
    ran = tune_by(sys.executable, "-c", code, *words)
    assert ran.returncode == 0
    assert "the tuning cannot be shown: tuning.json is damaged" in ran.stderr
    assert "before there was a step" not in ran.stderr


def test_a_program_without_steps_is_left_as_it_is(tmp_path):
    ran = tune("--", "sleep", "4", store=tmp_path)
    assert ran.returncode == 0
    (only,) = runs(tmp_path)
    tuned = read_tuning(only)
    assert (tuned.settled, tuned.chosen) == (False, None)
    assert {phase.state for phase in tuned.phases} <= {TuningState.WARMING_UP, TuningState.ENDED}
    assert "the program marked no steps" in ran.stderr


def test_two_tuners_do_not_share_a_gpu(tmp_path):
    with tuning(tmp_path / "first", "--axis", "power-limit") as job:
        eventually(lambda: job.limit_w() != BEFORE_W)
        second = subprocess.run(
            [*JOULEWISE, "--store", tmp_path / "second", "tune", "--", "echo", "hello"],
            capture_output=True,
            text=True,
            env=job.environ,
            check=False,
            timeout=DEADLINE_S,
        )
        assert (second.stdout, second.returncode) == ("hello\n", 0)
        assert "gpu0's power limit is held at" in second.stderr
        assert job.finish()[2] == STATUS
        assert job.limit_w() == BEFORE_W


def test_a_fault_while_its_result_is_written_leaves_the_exit_status(tmp_path):
    code = """
import joulewise.cli.tune
from joulewise.cli import main
joulewise.cli.tune._tune_json = lambda *_: 1 / 0
main()
"""
    words = ("--store", str(tmp_path), "tune", "--json", str(tmp_path / "out.json"))
    ran = subprocess.run(
        [sys.executable, "-c", code, *words, "--", "sh", "-c", f"exit {STATUS}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert ran.returncode == STATUS, ran.stderr
    assert "the result cannot be shown: ZeroDivisionError" in ran.stderr
    assert "Traceback" not in ran.stderr
