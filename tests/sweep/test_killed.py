"""A sweep whose process is killed or told to end, at every moment that matters, and goes on."""

import os
import signal
import subprocess
import sys
from collections import Counter

import pytest

from joulewise.data.sweeps import Setting, Sweep, Trial, TrialState
from joulewise.sweep.lock import CutOffError
from joulewise.sweep.space import Planned
from joulewise.sweep.stored_sweeps import find_sweeps_to_continue, load_sweep, sweeps
from joulewise.sweep.trial import tags
from tests.helpers import fake_runner
from tests.helpers.fake_runner import StoredRunner, Watched, asked, go_on, space
from tests.helpers.processes import JOULEWISE, first_line

RUNS = [Planned(setting, block) for setting in space().settings for block in range(2)]
ALL = Counter((planned.setting, planned.block) for planned in RUNS)
POINTS = {
    "before-rename-sweep.json": 8,  # once as it is made, once a run, once as it ends
    "after-rename-sweep.json": 8,
    "between-runs": 6,
}
PROGRAM = [sys.executable, fake_runner.__file__]


def killed_at(store, point):
    environ = {**os.environ, "JOULEWISE_TEST_KILL_AT": point}
    done = subprocess.run([*PROGRAM, str(store)], env=environ, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize(
    "point", [f"{name}:{number}" for name, most in POINTS.items() for number in range(1, most + 1)]
)
def test_none_is_lost_and_none_is_made_twice(tmp_path, point):
    killed_at(tmp_path, point)
    again = subprocess.run([*PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    (folder, sweep), *more = sorted(sweeps(tmp_path), key=lambda each: len(each[1].trials))[::-1]
    assert sweep.state == "finished"
    assert Counter((each.setting, each.block) for each in sweep.trials) == ALL
    made = Counter(StoredRunner(folder).notes())
    assert made == Counter(tags("", planned)[1] for planned in RUNS)
    assert not list(folder.glob(".*"))
    # Killed after the end, there is nothing to go on with: a sweep of its own.
    assert len(more) == (point == "after-rename-sweep.json:8")


def begun(store, *more):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([*PROGRAM, str(store), "--wait", *more], **pipes, text=True)


def next_run(process):
    process.stdin.write("\n")
    process.stdin.flush()
    return first_line(process.stdout)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_as_that_signal_does(tmp_path, number):
    with begun(tmp_path) as process:
        next_run(process)
        next_run(process)
        process.send_signal(number)
        _, said = process.communicate(timeout=180)  # the run under way ends as its pipe does
    assert process.returncode == 128 + number
    folder = find_sweeps_to_continue(tmp_path, [asked()])[0]
    kept = len(load_sweep(folder).trials)
    assert kept in {2, 3}  # the third, where its pipe was faster than the signal
    assert f"interrupted by {number.name}; its {kept} finished runs are kept" in said
    assert "repeat the command" in said
    watch = Watched()
    sweep = go_on(folder, StoredRunner(folder), watch)
    assert Counter((each.setting, each.block) for each in sweep.trials) == ALL


@pytest.mark.parametrize(
    ("done", "said"),
    [
        (0, "no run was finished"),
        (1, "its finished run is kept"),
        (2, "its 2 finished runs are kept"),
    ],
)
def test_what_is_kept_is_told_by_its_number(done, said):
    setting = Setting.of({"lr": "1"})
    trials = tuple(Trial(setting, block, TrialState.DONE) for block in range(done))
    sweep = Sweep("made", {}, 0, setting, (setting,), trials)
    assert CutOffError(signal.SIGINT, sweep).message.endswith(f"; {said}")


def test_second_signal_ends_the_waiting(tmp_path):
    with begun(tmp_path) as process:
        next_run(process)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGINT  # with a run that never ends
        process.communicate()
    assert len(load_sweep(find_sweeps_to_continue(tmp_path, [asked()])[0]).trials) == 1


def test_signals_that_another_thread_receives_end_it_all_the_same(tmp_path):
    """The kernel hands a second signal to any thread, which does not wake the main one."""
    with begun(tmp_path, "--signals-to-runs") as process:
        assert process.wait(60) == 128 + signal.SIGINT
        process.communicate()
    assert load_sweep(find_sweeps_to_continue(tmp_path, [asked()])[0]).trials == ()


def test_ignored_signals_stay_ignored(tmp_path):
    ignoring = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); {RUN_AS_MAIN}"
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    program = [sys.executable, "-c", ignoring, str(tmp_path), "--wait"]
    with subprocess.Popen(program, **pipes, text=True) as process:
        next_run(process)
        process.send_signal(signal.SIGHUP)
        for _ in range(5):
            next_run(process)
        assert process.wait(60) == 0


RUN_AS_MAIN = f"import runpy; runpy.run_path({fake_runner.__file__!r}, run_name='__main__')"


TWO = """
sim = "v100"
workload = "resnet50"
repeat = 1
[[benchmark]]
power_limit = [150, 200]
[[benchmark]]
power_limit = [160, 210]
"""


def test_a_file_of_several_goes_on_as_one(tmp_path):
    """Killed in the second of two, the first is not made again; in the end both are."""
    (tmp_path / "two.toml").write_text(TWO)

    def swept(**environ):
        command = [*JOULEWISE, "sweep", "two.toml"]
        environ = {**os.environ, "JOULEWISE_STORE": "runs", **environ}
        subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, check=False)
        return {
            sweep.name: (sweep.id, sweep.state, len(sweep.trials))
            for _, sweep in sweeps(tmp_path / "runs")
        }

    cut = swept(JOULEWISE_TEST_KILL_AT="between-runs:4")
    assert cut["two-1"][1:] == ("finished", 3)
    assert cut["two-2"][1] == "interrupted"
    done = swept()
    assert done == {"two-1": cut["two-1"], "two-2": (cut["two-2"][0], "finished", 3)}
    afresh = swept()
    assert afresh["two-1"][0] != done["two-1"][0]
