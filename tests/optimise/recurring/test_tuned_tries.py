"""Recurrences on simulated GPUs: tuned by the job's cost, and what fits in their memory."""

import json
import subprocess
import sys

import pytest

from joulewise.data.jobs import TryStatus, training_cost
from joulewise.optimise.recurring.job_saving import recurrence_costs
from joulewise.optimise.recurring.store.job_store import JobStore
from joulewise.store.manifest import read_manifest
from joulewise.store.tuning_file import read_tuning
from tests.helpers.processes import DEADLINE_S, JOULEWISE
from tests.helpers.run_processes import runs
from tests.optimise.recurring.plugged_policies import plugged_environ

MAXIMUM_W = 300.0  # of a simulated V100
# A batch above 32 does not fit. Epochs of sixty steps; the target is reached in epoch 4.
TRAINING = """
import sys
import joulewise
from joulewise.simulate import gpu
board, batch, steps = gpu(0), int(sys.argv[1]), 0
if batch > 32:
    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
with joulewise.span("training"):
    for number in range(4):
        with joulewise.span("epoch", number):
            for _ in range(60):
                with joulewise.span("step", steps):
                    board.step("resnet50", batch_size=batch)
                steps += 1
        joulewise.log(val_acc=(number + 1) / 4)
"""


@pytest.fixture(scope="module")
def recurred(tmp_path_factory):
    """One recurrence of a job whose values have no end: its store, its JSON, and what was said."""
    folder = tmp_path_factory.mktemp("tuned")
    store, report = folder / "store", folder / "report.json"
    job = [
        *("--set", "batch_size=16:max", "--default", "batch_size=16", "--policy", "in-turn"),
        *("--target", "val_acc>=1", "--max-epochs", "10", "--axis", "power-limit"),
    ]
    ran = subprocess.run(
        [
            *(*JOULEWISE, "sim", "--gpu", "v100", "--as-root", "--"),
            *(*JOULEWISE, "--store", str(store), "job", "run", "nightly", *job),
            *("--json", str(report), "--", sys.executable, "-c", TRAINING, "{batch_size}"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
        env=plugged_environ(folder / "plugged"),
    )
    assert ran.returncode == 0, ran.stderr
    return store, json.loads(report.read_text()), ran.stderr


def history(store):
    return JobStore.open(store / "jobs.sqlite", for_writing=False).history("nightly")


def test_what_fits_is_found_and_remembered(recurred):
    store, told, said = recurred
    looks = [run for run in runs(store) if "memory-search" in read_manifest(run).tags]
    assert [read_manifest(run).commands[0].arguments[-1] for run in looks] == ["16", "32", "64"]
    assert "64 does not fit" in said
    crashed, _ = history(store).tries
    assert (crashed.status, crashed.settings["batch_size"]) == (TryStatus.CRASHED, 64)
    first, trained = told["tries"]
    assert (first["status"], trained["status"]) == ("crashed", "reached")
    assert first["cost"] == crashed.cost > 0  # what all looks took
    assert told["cost"] == pytest.approx(first["cost"] + trained["cost"])
    (recurrence,) = recurrence_costs(history(store), crashed.gpu_type)
    assert recurrence.cost == pytest.approx(told["cost"])
    assert recurrence.counts
    (state,) = history(store).policy_states
    assert state.gpu_type == "Tesla V100-SXM2-16GB (simulated)"
    assert min(state.state["crashed"]) == 64


def test_the_limit_is_tuned_by_the_cost_of_the_job(recurred):
    store, told, _ = recurred
    _, one = told["tries"]
    tuning = read_tuning(store / one["run"])
    assert tuning.metric == "cost:0.5"
    if tuning.chosen is not None:  # on a machine that was busy, too few steps were clean
        assert one["settings"] == {"batch_size": 16, **tuning.chosen.as_json()}


def test_the_cost_is_that_of_the_gpu_and_its_highest_limit(recurred):
    store, told, _ = recurred
    _, one = told["tries"]
    expected = training_cost(0.5, one["energy_j"], one["time_s"], MAXIMUM_W)
    assert one["cost"] == pytest.approx(expected)
    shown = [*JOULEWISE, "--store", store, "show", one["run"], "--json", "-"]
    run = json.loads(subprocess.run(shown, capture_output=True, check=True).stdout)
    # The target is reached with the last epoch: what is left out is the start of the program.
    epochs_j = sum(span["energy_j"]["gpu0"]["value"] for span in run["spans"]
                   if span["name"] == "epoch")  # fmt: skip
    assert one["energy_j"] == pytest.approx(epochs_j, rel=0.05)
    assert one["energy_j"] <= run["energy_j"]["gpu0"]["value"]
    assert one["epoch_cost"] * 4 == pytest.approx(one["cost"], rel=0.25)


# It prints a value without end, and marks nothing.
PRINTING = """
import sys, time
if int(sys.argv[1]) > 32:
    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
while True:
    print("val_acc=0.1", flush=True)
    time.sleep(0.05)
"""


def look_for_memory(folder, program, *options):
    """The batch sizes of the looks in a recurrence of one try, and what was said."""
    store = folder / "store"
    job = [
        *("--set", "batch_size=16:max", "--default", "batch_size=16", "--policy", "in-turn"),
        *("--target", "val_acc>=1", "--max-epochs", "2", "--max-tries", "1", "--no-tune"),
    ]
    ran = subprocess.run(
        [
            *(*JOULEWISE, "sim", "--gpu", "v100", "--"),
            *(*JOULEWISE, "--store", str(store), "job", "run", "nightly", *job, *options),
            *("--", sys.executable, "-c", program, "{batch_size}"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
        env=plugged_environ(folder / f"plugged{len(list(folder.iterdir()))}"),
    )
    manifests = [read_manifest(run) for run in runs(store)]
    looks = [one for one in manifests if "memory-search" in one.tags]
    return [one.commands[0].arguments[-1] for one in looks], ran


def test_a_look_ends_by_what_is_printed(tmp_path):
    looks, ran = look_for_memory(tmp_path, PRINTING, "--metric-regex", "val_acc=(?P<value>.*)")
    assert looks == ["16", "32", "64"], ran.stderr


def test_a_command_of_which_nothing_is_seen_is_not_run_at_each_value(tmp_path):
    looks, ran = look_for_memory(tmp_path, "print('trained')")
    assert looks == ["16"]
    assert "the search ends here" in ran.stderr


def test_a_command_that_fails_at_once_is_not_trained(tmp_path):
    looks, ran = look_for_memory(tmp_path, "print('trained'); raise SystemExit(3)")
    assert looks == ["16"]
    assert (ran.stdout, ran.returncode) == ("trained\n", 3)
    assert not history(tmp_path / "store").tries


# A batch of 32 is all of the data.
WHOLE = """
import sys
import joulewise
with joulewise.span("epoch", 0):
    for step in range(max(1, 32 // int(sys.argv[1]))):
        with joulewise.span("step", step):
            pass
joulewise.log(val_acc=1)
"""


def test_a_search_in_which_nothing_crashes_is_remembered_too(tmp_path):
    looks, ran = look_for_memory(tmp_path, WHOLE)
    assert looks == ["16", "32"], ran.stderr
    (state,) = history(tmp_path / "store").policy_states
    assert state.largest_value == 32
    again, ran = look_for_memory(tmp_path, WHOLE)
    assert again == looks, ran.stderr  # those of the first recurrence
    (state,) = history(tmp_path / "store").policy_states
    assert state.state["order"] == [16, 32]
