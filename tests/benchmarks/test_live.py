"""The benchmarks of live tuning in real time still run; and what they judge as wrong."""

import subprocess
import sys
import time
from types import SimpleNamespace

import live_kills
import live_realtime
import numpy as np
import pytest

from joulewise.data.sweeps import Setting
from joulewise.data.tuning import Tuning, TuningPhase, TuningRestart, TuningState
from tests.helpers.paths import BENCHMARKS

EXPLORED_S = 50.0


def run(name, *arguments):
    return subprocess.run(
        [sys.executable, BENCHMARKS / name, *arguments], capture_output=True, text=True, check=False
    )


def test_fifty_kills_five_of_them_here():
    killed = run("live_kills.py", "--rounds", "5", "--seed", "3")
    assert "5 of 5 restored" in killed.stdout, killed.stdout + killed.stderr
    assert killed.returncode == 0, killed.stdout


def test_a_knob_that_stays_turned_is_seen():
    gpus = SimpleNamespace(controls=lambda _gpu: "turned")
    with pytest.raises(live_kills.LeftError):
        live_kills.restore_time_s(SimpleNamespace(gpus=gpus), ["as before"], time.monotonic() - 10)


def test_a_training_is_tuned_in_real_time():
    done = run("live_realtime.py", "--boards", "v100", "--networks", "resnet50", "--jobs", "1")
    assert done.returncode in {0, 1}, done.stderr  # 1: missed, as on a busy machine
    assert "cases in which all is met" in done.stdout, done.stderr
    assert "resnet50   eds:2.0" in done.stdout
    assert "are not back" not in done.stdout


def test_a_minute_is_enough_to_find_the_best_within_a_bound():
    bounded = ["--max-slowdown", "1.05", "--metrics", "slowdown:1.1,eds:2.0"]
    done = run("live_blocks.py", *bounded, "--boards", "rtx6000", "--networks", "vgg19,inception3")
    assert done.returncode == 0, done.stdout + done.stderr


def test_trainings_beside_a_peer_are_tuned():
    short = ["--steps", "60", "--short-epochs-steps", "60", "--batch-size", "16"]
    done = run("live_zeus.py", "--without-zeus", *short)
    assert done.returncode in {0, 1}, done.stderr  # 1: too short to settle
    for row in ("nothing", "joulewise, limits only", "killed after"):
        assert row in done.stdout, done.stderr
    assert "met    settings left, joulewise: 0" in done.stdout


# What live_realtime judges

CASE = live_realtime.Case("v100", ("resnet50",), "energy", 1.05, 0)
GOOD = Setting.of({"power_limit_w": 300.0, "sm_clock_mhz": 1410.0})


def choose(chosen=GOOD, case=CASE, explored_s=EXPLORED_S, steps=200, off=0.0):
    """The judgement of a setting that was found so."""
    tuning = Tuning(
        case.metric,
        ("power_limit_w", "sm_clock_mhz"),
        TuningState.HOLDING,
        settled=True,
        reason="",
        reference=GOOD,
        chosen=chosen,
        phases=(TuningPhase(TuningState.EXPLORING, GOOD, 3.0, 3.0 + explored_s, steps),),
    )
    candidate = live_realtime.TuningCandidate(**dict(chosen.values))
    board = live_realtime.load_board(case.board)
    load = live_realtime.load_of(case.board, case.networks[0])
    time_s, energy_j = live_realtime.true_step(board, load, candidate)
    exact = live_realtime.ExactStep(time_s, energy_j * (1 + off), 0.0)
    return live_realtime.judge(case, 0, tuning, exact)


def test_a_choice_near_the_best_is_met():
    choice = choose()
    assert not choice.faults
    assert abs(choice.over_best) < live_realtime.NEAR


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ({"chosen": Setting.of({"power_limit_w": 300.0, "sm_clock_mhz": 1470.0})}, "near the best"),
        ({"chosen": Setting.of({"power_limit_w": 300.0, "sm_clock_mhz": 1300.0})}, "bound broken"),
        ({"explored_s": 62.0}, "explored too long"),
        ({"off": 0.06}, "the truth differs"),
    ],
)
def test_what_is_wrong_is_seen(wrong, fault):
    (found,) = choose(**wrong).faults
    assert fault in found


def test_ninety_long_steps_may_take_longer_than_a_minute():
    assert not choose(explored_s=80.0, steps=90).faults


def test_of_the_steps_those_held_are_judged_and_all_tell_how_busy_the_host_was():
    steps_ns = np.array([[0, 10], [20, 30], [30, 50], [50, 70], [70, 100]]) * 10**9
    truth = np.array([[0, 0, 0.0], [100, 0, 1000.0]]) * [1e9, 1, 1]
    times_ns = (10 * 10**9, 30 * 10**9, 75 * 10**9)
    exact = live_realtime.exact_step(steps_ns, truth, times_ns)
    assert (exact.time_s, exact.energy_j, exact.idle) == pytest.approx((20.0, 200.0, 0.0))
    exact = live_realtime.exact_step(steps_ns, truth, (0, *times_ns[1:]))
    assert exact.idle == pytest.approx(1 / 7)


def test_each_exploration_has_its_own_time():
    tuning = Tuning(
        "energy",
        ("power_limit_w",),
        TuningState.HOLDING,
        settled=True,
        reason="",
        reference=GOOD,
        changes=(TuningRestart(20.0, "the time of a step has changed"),),
        phases=tuple(
            TuningPhase(state, GOOD, start_s, start_s + 10.0, 7)
            for start_s, state in (
                (0.0, TuningState.EXPLORING),
                (10.0, TuningState.HOLDING),
                (20.0, TuningState.EXPLORING),
                (30.0, TuningState.EXPLORING),
            )
        ),
    )
    assert live_realtime.explored(tuning, 1) == (20.0, 14)
