"""What earlier tunings of the same command on the same board taught, from the store."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from joulewise.data.sweeps import Setting
from joulewise.data.tuning import StepSource, TuningState
from joulewise.optimise.live import TuningPolicy
from joulewise.optimise.live.earlier_runs import find_earlier_means
from joulewise.optimise.live.tuning_options import TuningOptions
from joulewise.optimise.live.tuning_record import TuningRecord, TuningStatus
from joulewise.store.manifest import CommandRecord
from joulewise.store.tuning_file import read_tuning, write_tuning
from tests.helpers.run_directories import START, MadeRun, device
from tests.optimise.live.policy.training_curves import TRAININGS, Job, limits

KEYS = ("gpu0",)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "store"


def make(store, number, *, script="train.py", **changed):
    """A run of a command on gpu0, as it is while it is recorded."""
    run = store / f"20270101-00000{number}-aaaa"
    made = MadeRun(run)
    made.fast(device("gpu0"), lambda _: 200.0)
    made.write(commands=(CommandRecord(1, ("python", script), START, START + 10**9),), **changed)
    return run


def policy_after(training, seed=0, earlier=()):
    policy = TuningPolicy(limits(), len(limits()) - 1, "edp", seed=seed, earlier=earlier)
    return policy, Job(training, policy, seed).play().steps


def tuned(run, policy, devices=KEYS):
    record = TuningRecord(policy, TuningOptions(devices=devices), 0, None)
    status = TuningStatus(TuningState.ENDED, "", policy.chosen, None, {}, None, None)
    write_tuning(run, record.make(status))
    return run


def test_a_second_run_explores_less_and_a_contradicting_one_does_no_harm(store):
    plain, known, misled, over = [], [], [], []
    for seed, training in enumerate(TRAININGS * 4):
        plain.append(policy_after(training, 50 + seed)[1])
        for at, (teacher, steps) in enumerate(
            ((training, known), (TRAININGS[(seed + 1) % 4], misled))
        ):
            own = store / f"{seed}{at}"
            policy, _ = policy_after(teacher, seed)
            tuned(make(own, 1), policy)
            earlier = find_earlier_means(make(own, 2), KEYS)
            assert {mean.candidate for mean in earlier} == {one.candidate for one in policy.tried}
            policy, count = policy_after(training, 50 + seed, earlier)
            steps.append(count)
            over.append(training.over_best(limits(), policy.reference, "edp", policy.chosen))
    assert np.mean(known) <= 0.8 * np.mean(plain)
    assert np.mean(misled) <= 1.3 * np.mean(plain)
    assert np.mean(np.array(over) <= 0.01) >= 0.8


def test_only_runs_of_the_same_command_folder_and_board_teach(store):
    policy, _ = policy_after(TRAININGS[0])
    tuned(make(store, 1, script="other.py"), policy)
    tuned(make(store, 2, cwd="/elsewhere"), policy)
    tuned(make(store, 3), policy, devices=("gpu0", "gpu1"))
    make(store, 4)  # not tuned
    now = make(store, 9)
    assert find_earlier_means(now, KEYS) == ()
    tuned(make(store, 5), policy)
    means = find_earlier_means(now, KEYS)
    assert {mean.run for mean in means} == {"20270101-000005-aaaa"}
    assert all(math.isfinite(mean.log_time + mean.log_energy) for mean in means)


@pytest.mark.parametrize("source", [None, *StepSource])
def test_steps_by_what_the_gpu_shows_teach_nothing(store, source):
    """A wave of the power is no step that the program marks."""
    run = tuned(make(store, 1), policy_after(TRAININGS[0])[0])
    write_tuning(run, replace(read_tuning(run), step_source=source))
    is_shown = source in {StepSource.POWER, StepSource.ACTIVITY}
    assert (find_earlier_means(make(store, 9), KEYS) == ()) == is_shown


def test_settings_of_an_axis_that_is_not_known_teach_nothing(store):
    policy, _ = policy_after(TRAININGS[0])
    run = tuned(make(store, 1), policy)
    tuning = read_tuning(run)
    strange, *known = tuning.known
    strange = replace(strange, settings=Setting.of({"fan_percent": 40.0}))
    write_tuning(run, replace(tuning, known=(strange, *known)))
    assert len(find_earlier_means(make(store, 9), KEYS)) == len(known)


def test_the_newest_three_are_enough(store):
    policy, _ = policy_after(TRAININGS[0])
    for number in range(1, 6):
        tuned(make(store, number), policy)
    means = find_earlier_means(make(store, 9), KEYS)
    assert {mean.run[14] for mean in means} == {"3", "4", "5"}


def test_a_store_that_cannot_be_read_teaches_nothing(store):
    assert find_earlier_means(store / "none", KEYS) == ()
