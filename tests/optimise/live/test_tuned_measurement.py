"""``joulewise.tune()``: a block of one's own program, measured and tuned while it runs."""

import json
import os
import signal
import subprocess
import sys

import pytest

import joulewise
from joulewise.errors import UsageError
from joulewise.session import spans
from tests.helpers.processes import DEADLINE_S, JOULEWISE
from tests.helpers.run_processes import environment

BEFORE_W = 300
START = """
import json, os, signal, subprocess, sys, time, warnings
from pathlib import Path
import joulewise
from joulewise.simulate import gpu

def limit_w():
    query = ["nvidia-smi", "--query-gpu=power.limit", "--format=csv,noheader,nounits"]
    return float(subprocess.run(query, capture_output=True, text=True, check=True).stdout)

def eventually(condition):
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s, "it never came true"
        time.sleep(0.05)

def train(until):
    number = 0
    while not until(number):
        with joulewise.span("step", number):
            gpu(0).step("resnet50", batch_size=16)
        number += 1

def tuner_pid():
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\\0")
            ours = os.environ["JOULEWISE_SIM"].encode() in (path / "environ").read_bytes()
        except (OSError, ProcessLookupError):
            continue
        if b"joulewise.optimise.live.tuner_process" in words and ours:
            return int(path.name)
    return 0
"""
SETTLES = """
states, limits = set(), set()
def until(number):
    state = t.tuning and t.tuning.state.value
    if state not in states:
        states.add(state)
        limits.add(limit_w())
    return state == "holding"
with joulewise.tune("energy", axes=["power-limit"], name="mine") as t:
    train(until)
    held = limit_w()
print(json.dumps({
    "states": sorted(filter(None, states)), "held": held, "after": limit_w(), "id": t.id,
    "settled": t.tuning.settled, "chosen": t.tuning.chosen.as_json(), "state": t.tuning.state.value,
    "reason": t.tuning.reason,
    "energy_j": t.energy_j["gpu0"].value, "steps": len(t.spans), "warnings": len(t.warnings),
}))
"""


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch):
    monkeypatch.delenv(spans.RUN_MARKS, raising=False)
    monkeypatch.delenv(spans.MEASURE_MARKS, raising=False)
    monkeypatch.setattr(spans, "_outer_marks", None)


def program(folder, code, *sim, expected_status=0):
    """A program on a simulated V100, to its end: its standard output and error."""
    options = ("--gpu", "v100", "--latency", "none", *(sim or ("--as-root",)))
    ran = subprocess.run(
        [*JOULEWISE, "sim", *options, "--", sys.executable, "-c", START + code],
        env=environment(JOULEWISE_STORE=str(folder)),
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * DEADLINE_S,
    )
    assert ran.returncode == expected_status, ran.stderr
    return ran.stdout, ran.stderr


def test_a_block_is_tuned_measured_and_put_back(tmp_path):
    out, err = program(tmp_path, SETTLES)
    payload = json.loads(out)
    assert payload["held"] == payload["chosen"]["power_limit_w"] < BEFORE_W == payload["after"]
    assert {"exploring", "holding"} <= set(payload["states"])
    assert (payload["settled"], payload["state"]) == (True, "ended")
    assert "recorder" not in payload["reason"]  # the tuning ended first, and by itself
    assert payload["energy_j"] > 0
    assert payload["steps"] > 0
    assert "RuntimeWarning" not in err
    assert (tmp_path / payload["id"] / "tuning.json").exists()


@pytest.mark.parametrize(
    "end", ["raise ValueError('mine')", "os._exit(1)", "os.kill(os.getpid(), 9)"]
)
def test_however_the_block_ends_all_goes_back(end, tmp_path):
    code = f"""
if os.fork():
    os.wait()
    eventually(lambda: limit_w() == {BEFORE_W})
    eventually(lambda: not tuner_pid())
    sys.exit()
with joulewise.tune(axes=["power-limit"]):
    train(lambda number: number % 10 == 9 and limit_w() != {BEFORE_W})
    {end}
"""
    _, err = program(tmp_path, code)
    assert ("ValueError: mine" in err) == ("ValueError" in end)


def test_a_tuner_that_is_killed_is_a_warning_and_all_goes_back(tmp_path):
    code = f"""
with joulewise.tune(axes=["power-limit"]) as t:
    train(lambda number: number % 10 == 9 and limit_w() != {BEFORE_W})
    os.kill(tuner_pid(), signal.SIGKILL)
    eventually(lambda: limit_w() == {BEFORE_W})
    train(lambda number: number == 3)
print(t.energy_j["gpu0"].value > 0)
"""
    out, err = program(tmp_path, code)
    assert out == "True\n"
    assert err.count("RuntimeWarning: joulewise: tuning ended: the tuner was killed") == 1


def test_without_the_right_the_block_is_measured_and_a_warning_says_why(tmp_path):
    code = """
with joulewise.tune(axes=["power-limit"]) as t:
    train(lambda number: number == 3)
print(t.tuning, t.energy_j["gpu0"].value > 0)
"""
    out, err = program(tmp_path, code, "--fault", "gpu0:limit-refused;gpu0:denied")
    assert out == "None True\n"
    assert err.count("RuntimeWarning: joulewise: ") == 1
    assert "tuning ended: " in err


def test_a_block_without_steps_says_so(tmp_path):
    code = """
@joulewise.tune()
def train():
    eventually(lambda: train.measured.tuning)
train()
print(train.measured.tuning.settled)
"""
    out, err = program(tmp_path, code)
    assert out == "False\n"
    assert "nothing was tuned: the program marked no steps" in err


def test_a_child_of_the_block_neither_ends_nor_outlives_the_tuning(tmp_path):
    code = f"""
with joulewise.tune(axes=["power-limit"]) as t:
    if not os.fork():
        os._exit(0)
    assert os.wait()[1] == 0
    try:
        os.waitpid(-1, os.WNOHANG)  # neither recorder nor tuner is a child of the program
    except ChildProcessError:
        print("no child")
    train(lambda number: number % 10 == 9 and limit_w() != {BEFORE_W})
"""
    assert program(tmp_path, code)[0] == "no child\n"


def test_a_callback_tunes_the_training(tmp_path):
    code = f"""
os.environ["KERAS_BACKEND"] = "torch"
import keras, numpy as np

class Load(keras.layers.Layer):
    def call(self, inputs, training=False):
        if training:
            gpu(0).step("resnet50", batch_size=16)
        return inputs

class End(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = limit_w() != {BEFORE_W}

model = keras.Sequential([Load(), keras.layers.Dense(1)])
model.compile("sgd", "mse", run_eagerly=True)
data = np.ones((64, 8), "float32")
t = joulewise.tune(axes=["power-limit"])
callbacks = [joulewise.callbacks.keras(t), End()]
model.fit(data, data[:, :1], batch_size=8, epochs=1000, verbose=0, callbacks=callbacks)
print(limit_w(), len(t.tuning.phases) > 1, t.tuning.step_source.value, t.has_ended)
"""
    out, _ = program(tmp_path, code)
    assert out == f"{BEFORE_W:.1f} True marks of the program True\n"


@pytest.mark.parametrize(
    "given",
    [
        {"by": "joy"},
        {"by": print},
        {"axes": ["fan"]},
        {"axes": "sm-clock"},
        {"max_slowdown": 0.9},
        {"boundary": "moon"},
        {"overhead_w": -1.0},
        {"keep_checking": 0.9},
        {"name": 7},
        {"tags": "one"},
    ],
)
def test_a_wrong_request_is_refused_at_once(given, tmp_path):
    with pytest.raises(UsageError) as refused:
        joulewise.tune(**given, store=tmp_path)
    assert refused.value.hint
    assert not list(tmp_path.iterdir())


def test_no_tuner_at_all_is_a_warning(tmp_path, monkeypatch):
    def no_process(*_, **__):
        raise OSError(11, os.strerror(11))

    monkeypatch.setattr("joulewise.optimise.live.tuner_client.start_process", no_process)
    with pytest.warns(RuntimeWarning, match="no tuner can be started"):
        t = joulewise.tune(store=tmp_path).start()
    assert t.stop().energy_j is not None
    assert t.tuning is None
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
