"""Ctrl-C within a run: controls go back, nothing is lost, and the command to go on is told."""

import os
import shlex
import subprocess

import pytest

from joulewise.sweep.stored_sweeps import sweeps
from tests.helpers.processes import JOULEWISE
from tests.helpers.simulated_sweeps import LIMITS, run_script

SCRIPT = f"""
import json, signal, subprocess, sys, time
from pathlib import Path
from joulewise.sweep.stored_sweeps import find_sweep, load_sweep

sweep = [sys.executable, "-m", "joulewise", "--store", "my runs", "sweep", "--power-limit=150,200"]
rest = ["--repeat=1", "--", sys.executable, "train.py"]

def limits():
    return subprocess.run({LIMITS}, capture_output=True, check=True).stdout

subprocess.run(["nvidia-smi", "-i", "0", "-pl", "277"], check=True, stdout=subprocess.DEVNULL)
before = limits()
first = subprocess.Popen([*sweep, "--new", *rest, "16"], stderr=subprocess.PIPE, text=True)
while limits() == before:
    assert first.poll() is None, first.stderr.read()
    time.sleep(0.05)
first.send_signal(getattr(signal, sys.argv[1]))
_, said = first.communicate()
back = limits() == before
cut = load_sweep(find_sweep(Path("my runs"), "last"))
again = subprocess.run([*sweep, *rest, "16"], capture_output=True, text=True)
done = load_sweep(find_sweep(Path("my runs"), "last"))
print(json.dumps(dict(
    status=first.returncode, said=said, back=back, cut=[cut.id, cut.state, len(cut.trials)],
    again=again.returncode, done=[done.id, done.state, len(done.trials)], errors=again.stderr,
)))
"""


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_to_a_sweep(tmp_path, name, status):
    seen = run_script(tmp_path, SCRIPT, name)
    assert (seen["status"], seen["back"]) == (status, True)
    *_, what, how = seen["said"].splitlines()
    assert f"was interrupted by {name}" in what
    sim = "joulewise sim --gpu v100x2 --as-root --"
    ours = "joulewise --store 'my runs' sweep --power-limit=150,200"
    assert how.startswith(f"  to resume: {sim} {ours}")
    assert "--new" not in how
    sweep_id, *cut = seen["cut"]
    assert cut == ["interrupted", 0]
    assert seen["again"] == 0, seen["errors"]
    assert seen["done"] == [sweep_id, "finished", 3]


WHILE_CONTROLS_ARE_TRIED = """
import json, os, subprocess, sys
from pathlib import Path
from joulewise.sweep.stored_sweeps import find_sweep, load_sweep

sweep = [sys.executable, "-m", "joulewise", "--store", "runs", "sweep", "--power-limit=150,200"]
first = subprocess.run(
    [*sweep, "--repeat=1", "--", sys.executable, "train.py", "16"],
    env={**os.environ, "JOULEWISE_TEST_KILL_AT": f"controls-tried:1:{sys.argv[1]}"},
    stderr=subprocess.PIPE, text=True,
)
cut = load_sweep(find_sweep(Path("runs"), "last"))
print(json.dumps(dict(status=first.returncode, said=first.stderr, trials=len(cut.trials))))
"""


@pytest.mark.parametrize(("name", "status"), [("INT", 130), ("TERM", 143)])
def test_a_signal_before_the_first_run(tmp_path, name, status):
    seen = run_script(tmp_path, WHILE_CONTROLS_ARE_TRIED, name)
    assert (seen["status"], seen["trials"]) == (status, 0)
    *_, what, how = seen["said"].splitlines()
    assert f"was interrupted by SIG{name}" in what
    sim = "joulewise sim --gpu v100x2 --as-root --"
    assert how.startswith(f"  to resume: {sim} joulewise --store runs sweep")


MOMENTS = {
    "sweep-asked:1": (),
    "sweep-prepared:1": (),
    "sweep-created:1": (0,),
    "before-first-run:1": (0,),
    "between-runs:1": (1,),
    "between-runs:3": (3,),
    "between-runs:4": (4,),
    "after-last-run:1": (4,),
    "sweep-made:1": (4,),
    "between-runs:5": (4, 1),
    "sweep-made:2": (4, 4),
}
"""Where the signal comes, and how many runs each sweep of the file has then."""
FILE = """
[[benchmark]]
name = "first"
sim = "v100"
workload = "resnet50"
power_limit = "200,300"
repeat = 2

[[benchmark]]
name = "second"
sim = "v100"
workload = "ecg"
power_limit = "200,300"
repeat = 2
"""


def joulewise(folder, *words, **environ):
    return subprocess.run(
        [*JOULEWISE, *words],
        cwd=folder,
        env={**os.environ, "JOULEWISE_STORE": "my runs", **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def runs_of(folder):
    """How many runs each sweep has, and how it stands."""
    found = [sweep for _, sweep in sweeps(folder / "my runs")]
    return tuple(len(sweep.trials) for sweep in found), [sweep.state for sweep in found]


@pytest.mark.parametrize(
    ("moment", "name", "status"),
    [
        *((moment, "INT", 130) for moment in MOMENTS),
        ("sweep-prepared:1", "TERM", 143),
        ("between-runs:1", "TERM", 143),
        ("sweep-made:2", "HUP", 129),
    ],
)
def test_a_signal_at_any_moment_says_how_to_go_on(tmp_path, moment, name, status):
    """Two lines, the status of that signal, and a command that makes exactly what is missing."""
    (tmp_path / "two.toml").write_text(FILE)
    cut = joulewise(tmp_path, "sweep", "two.toml", JOULEWISE_TEST_KILL_AT=f"{moment}:{name}")
    assert cut.returncode == status, cut.stderr
    *_, what, how = cut.stderr.splitlines()
    assert f"interrupted by SIG{name}" in what
    assert runs_of(tmp_path)[0] == MOMENTS[moment]
    before, _, command = how.partition(": ")
    assert before in {"  to resume", "  to see it"}
    program, *words = shlex.split(command)
    assert program == "joulewise"
    done = joulewise(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert runs_of(tmp_path) == ((4, 4), ["finished", "finished"])
