"""Runs on this machine: each a measured run of its own, ended early where it may be."""

from joulewise.data.sweeps import TrialState
from tests.helpers.simulated_sweeps import run_script

RUN = """
import json, os, sys, threading
from pathlib import Path
from joulewise.data.sweeps import Planned, Setting
from joulewise.sweep.spec import SweepSpec
from joulewise.sweep.stored_sweeps import as_line
from joulewise.sweep.runners.local import LocalRunner
from joulewise.sweep.runners.runner import GpuSlot
from joulewise.store.manifest import read_manifest

def runner_of(*command, slot=GpuSlot(), **spec):
    return LocalRunner(
        SweepSpec(command=(sys.executable, *command), **spec), Path("runs"), Path("sweeps/one"),
        environ=os.environ, slots=[slot], say=print,
    )

def planned(look_s=None, block=0, **values):
    return Planned(Setting.of(values), block, look_s=look_s)
"""


def run(folder, script):
    return run_script(folder, RUN + script)


def test_a_run_has_its_setting_its_tags_and_its_figures(tmp_path):
    trial, other = run(
        tmp_path,
        """
runner = runner_of("train.py", "{steps}")
one = planned(power_limit_w=150.0, steps="8")
trial = runner.run(one)
manifest = read_manifest(Path("runs") / trial.run)
print(json.dumps([json.loads(as_line(trial)), [manifest.options["settings"], manifest.tags]]))
""",
    )
    assert trial["state"] == TrialState.DONE.value
    assert trial["spans"]["epoch"]["count"] == 2
    assert trial["spans"]["step"]["count"] == 16
    assert 50 < trial["energy"]["gpu"]["value"] / trial["time_s"] < 160
    assert trial["energy"]["rest"]["value"] > 0
    settings, tags = other
    assert settings == {"gpu0": {"power_limit_w": 150}, "gpu1": {"power_limit_w": 150}}
    assert "sweep:one" in tags


def test_a_failed_run_has_the_end_of_its_log(tmp_path):
    trial = run(
        tmp_path,
        """
failing = "import sys; print('said before'); sys.exit('no such data')"
print(as_line(runner_of("-c", failing).run(planned(power_limit_w=200.0))))
""",
    )
    assert trial["state"] == "failed"
    assert trial["reason"] == "the command ended with status 1"
    assert "said before" in trial["log_tail"]
    assert "no such data" in trial["log_tail"]


def test_a_run_that_takes_too_long_is_ended(tmp_path):
    trial = run(
        tmp_path,
        """
sleeping = "import time; time.sleep(600)"
print(as_line(runner_of("-c", sleeping, timeout_s=2.0).run(planned())))
""",
    )
    assert trial["state"] == "failed"
    assert trial["reason"] == "it exceeded the time limit: 2 s"
    assert trial["time_s"] >= 2  # of its own: what it takes us to start it is not counted


def test_a_hopeless_run_is_stopped_with_what_it_took(tmp_path):
    trial = run(
        tmp_path,
        """
runner = runner_of("train.py", "100000")
hopeless = lambda time_s, joules: time_s > 3 and joules["gpu"] > 100
print(as_line(runner.run(planned(power_limit_w=200.0), hopeless)))
""",
    )
    assert trial["state"] == "stopped"
    assert trial["time_s"] > 3
    assert trial["energy"]["gpu"]["value"] > 100


def test_probe_ends_after_enough_steps(tmp_path):
    trial = run(
        tmp_path,
        """
runner = runner_of("train.py", "100000")
print(as_line(runner.run(planned(look_s=2.0, power_limit_w=150.0))))
""",
    )
    assert trial["state"] == "done"
    assert trial["look_s"] == 2.0
    assert trial["spans"]["step"]["count"] > 5
    assert trial["time_s"] == trial["spans"]["step"]["time_s"] >= 2.0
    assert 100 < trial["energy"]["gpu"]["value"] / trial["time_s"] < 155


def test_probe_follows_its_own_run_not_an_earlier_one(tmp_path):
    trials = run(
        tmp_path,
        """
one = planned(look_s=1.0, power_limit_w=150.0)
trials = [runner_of("train.py", "100000").run(one) for _ in range(2)]
print(json.dumps([json.loads(as_line(trial)) for trial in trials]))
""",
    )
    assert [trial["state"] for trial in trials] == ["done", "done"]
    assert trials[0]["run"] != trials[1]["run"]
    assert trials[1]["time_s"] >= 1.0


def test_a_run_that_was_ended_and_says_it_succeeded_is_not_adopted(tmp_path):
    payload = run(
        tmp_path,
        """
saving = (
    "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); "
    "open('ready', 'w'); time.sleep(600)"
)
runner, one = runner_of("-c", saving), planned()
thread = threading.Thread(target=runner.run, args=(one,))
thread.start()
while not Path("ready").exists():
    pass
runner.stop()
thread.join()
(stored,) = (json.loads(path.read_text()) for path in Path("runs").glob("*/run.json"))
adopted = runner_of("-c", saving).adopt(one)
print(json.dumps([stored["state"], stored["exit_code"], adopted and adopted.run]))
""",
    )
    assert payload == ["complete", 0, None]


def test_stopping_ends_the_run_and_restores_the_limit(tmp_path):
    limits = run(
        tmp_path,
        """
import subprocess
runner = runner_of("train.py", "100000")
thread = threading.Thread(target=runner.run, args=(planned(power_limit_w=150.0),))
thread.start()
while not any(Path("runs").glob("*/live.json")):
    pass
runner.stop()
thread.join()
query = ["nvidia-smi", "--query-gpu=power.limit", "--format=csv,noheader,nounits"]
print(json.dumps(subprocess.check_output(query, text=True).split()))
""",
    )
    assert limits == ["300.00", "300.00"]


def test_slot_shows_only_its_gpu(tmp_path):
    trial, shown = run(
        tmp_path,
        """
from joulewise.sweep.boards import find_boards
from joulewise.sweep.runners.runner import make_slots
from joulewise.sweep.space import Space
asked = SweepSpec(each_gpu=True)
space = Space((), Setting(()), find_boards((), os.environ))
second = make_slots(asked, space)[1]
trial = runner_of("train.py", "4", slot=second).run(planned(power_limit_w=170.0))
print(json.dumps([json.loads(as_line(trial)), space.boards[1].uid]))
""",
    )
    assert trial["state"] == "done"
    assert trial["gpu"] == shown


def test_finished_run_that_was_not_written_down_is_adopted(tmp_path):
    adopted = run(
        tmp_path,
        """
runner, one = runner_of("train.py", "4"), planned(power_limit_w=150.0)
assert runner.adopt(one) is None
made = runner.run(one)
runner.run(planned(power_limit_w=200.0))
(Path("runs") / made.run / "result.json").unlink()  # killed before it was computed
later = runner_of("train.py", "4")
print(json.dumps([made.run, later.adopt(one).run, later.adopt(planned(power_limit_w=1.0))]))
""",
    )
    assert adopted[0] == adopted[1]
    assert adopted[2] is None
