"""The engine as NVML clients and training programs meet it, in real time."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest

from joulewise.simulate.boards import load_board
from joulewise.simulate.nvml.shared_memory import SharedGpuMemory
from tests.helpers.processes import eventually
from tests.helpers.sim_processes import SIM, running_sim

IMPORTS = """
import json, os, subprocess, sys, time
from pynvml import *
from joulewise.simulate import client, gpu

def leave():
    client._connections.pop(0).close()

def took():
    done = gpu(0).step("mnist-big", steps=10)
    return done.end_ns - done.start_ns

def look(code):
    'What another NVML client finds, which comes and goes.'
    code = "from pynvml import *; nvmlInit(); h = nvmlDeviceGetHandleByIndex(0); " + code
    return json.loads(subprocess.check_output([sys.executable, "-c", code]))

def settle():
    'The engine has seen all that happened before: one round may have been under way.'
    for _ in range(2):
        client._identities.__wrapped__(client._address())

def limit_mw():
    return look("print(nvmlDeviceGetPowerManagementLimit(h))")

def energy_mj():
    return look("print(nvmlDeviceGetTotalEnergyConsumption(h))")

def cap():
    return look("nvmlDeviceSetPowerManagementLimit(h, 150000); print(0)")
"""


def under(code, *options, gpu="v100"):
    """Run a program under simulation; the JSON that it prints."""
    done = subprocess.run(
        [*SIM, "--gpu", gpu, "--as-root", *options, "--", sys.executable, "-c", IMPORTS + code],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_limit_that_one_client_sets_slows_the_steps_of_another():
    free, capped, limit = under("a = took(); cap(); print(json.dumps([a, took(), limit_mw()]))")
    assert limit == 150_000
    assert capped > 1.05 * free


def test_without_persistence_a_limit_goes_with_the_last_client():
    code = """
cap()
lost = limit_mw()
nvmlInit()
cap()
print(json.dumps([lost, limit_mw()]))
"""
    lost, kept = under(code, "--persistence", "off")
    assert (lost, kept) == (300_000, 150_000)


@pytest.mark.parametrize(("persistence", "restarts"), [("on", False), ("off", True)])
def test_the_counter_restarts_only_without_persistence(persistence, restarts):
    code = "took(); a = energy_mj(); leave(); energy_mj(); print(json.dumps([a, energy_mj()]))"
    before, after = under(code, "--persistence", persistence)
    assert (after < before) is restarts


def test_a_training_program_keeps_the_limit_as_an_nvml_client_does():
    kept = under("took(); cap(); settle(); print(limit_mw())", "--persistence", "off")
    assert kept == 150_000


def test_the_load_from_the_start_is_listed_and_seen():
    code = """
nvmlInit()
h = nvmlDeviceGetHandleByIndex(1)
while nvmlDeviceGetUtilizationRates(h).gpu < 50:
    time.sleep(0.02)
(process,) = nvmlDeviceGetComputeRunningProcesses(h)
print(json.dumps([process.pid, os.getppid(), process.usedGpuMemory]))
"""
    pid, parent, memory_b = under(code, "--workload", "ecg", gpu="v100x2")
    assert pid == parent
    assert memory_b > 1 << 30


def test_the_load_from_the_start_is_a_whole_training():
    with running_sim("--gpu", "v100", "--workload", "mnist-small") as sim:
        shared = SharedGpuMemory.open(sim.shared)
        eventually(lambda: 0.15 < longest_wait_s(shared) < 0.25)
        shared.close()


def test_a_program_alternates_with_the_load_from_the_start():
    code = "took(); print(took())"  # the second time, the other has warmed up
    alone = under(code)
    shared = under(code, "--workload", "mnist-big")
    assert shared / alone == pytest.approx(1.9, rel=0.05)


def test_runs_differ_by_noise_and_seeds_repeat_it():
    code = """
first = took()
leave()
print(json.dumps([first, took()]))
"""
    one, other = under(code, "--seed", "3")
    again, _ = under(code, "--seed", "3")
    assert one == again
    assert one != other
    assert one == pytest.approx(other, rel=0.02)


def test_a_control_takes_effect_even_if_its_client_died_before_saying_so():
    with running_sim("--gpu", "v100", "--workload", "ecg") as sim:
        shared = SharedGpuMemory.open(sim.shared)
        shared._gpus["limit_mw"][0] = 150_000
        eventually(lambda: last_power_w(shared) < 200 and last_throttle(shared))
        shared.close()


def test_the_truth_is_what_was_published(tmp_path):
    path = tmp_path / "truth.csv"
    with running_sim("--gpu", "v100x2", "--workload", "mnist-big", "--truth", str(path)) as sim:
        shared = SharedGpuMemory.open(sim.shared)
        eventually(lambda: int(shared._gpus["end"][1]) > 60)
        pieces = [np.array(shared._gpus["ring"][gpu][: shared._gpus["end"][gpu]]) for gpu in (0, 1)]
        shared.close()
    with path.open() as file:
        rows = list(csv.DictReader(file))
    for gpu in (0, 1):
        own = [row for row in rows if row["gpu"] == str(gpu)]
        t_ns = np.array([int(row["monotonic_ns"]) for row in own])
        energy_j = np.array([float(row["energy_j"]) for row in own])
        happened = pieces[gpu][pieces[gpu]["t_ns"] <= t_ns[-1]]
        assert set(happened["t_ns"].tolist()) <= set(t_ns.tolist())
        at = np.searchsorted(t_ns, happened["t_ns"])
        assert energy_j[at] == pytest.approx(happened["energy_j"], abs=1e-6)
        own_power_w = np.diff(energy_j) / np.diff(t_ns) * 1e9
        assert own_power_w.max() <= load_board("v100").limits.maximum_w * 1.2


def longest_wait_s(shared):
    """Between two kernels of what was published."""
    block = shared._gpus[0]
    pieces = np.sort(block["ring"][: int(block["end"])], order="t_ns")
    busy = np.flatnonzero(pieces["busy"] > 0)
    waits_ns = pieces["t_ns"][busy[1:]] - pieces["t_ns"][busy[:-1] + 1]
    return waits_ns.max(initial=0) * 1e-9


def last_piece(shared):
    block = shared._gpus[0]
    return block["ring"][(int(block["end"]) - 1) % len(block["ring"])]


def last_power_w(shared):
    return float(last_piece(shared)["power_w"])


def last_throttle(shared):
    return int(last_piece(shared)["throttle"])


def test_a_stale_counter_ran_before_the_simulation_did():
    """One that is old by 10 s shows a time before that: it counts on at idle power from there."""
    code = """
import time
from pynvml import *
nvmlInit()
h = nvmlDeviceGetHandleByIndex(0)
def now():
    return time.monotonic(), nvmlDeviceGetTotalEnergyConsumption(h) / 1000
first_s, first_j = now()
time.sleep(1)
last_s, last_j = now()
power_w = (last_j - first_j) / (last_s - first_s)
print(json.dumps([first_j, power_w, nvmlDeviceGetPowerUsage(h) / 1000]))
"""
    first_j, counted_w, power_w = under(code, "--fault", "gpu0:stale=10s")
    assert first_j > 0
    assert counted_w == pytest.approx(power_w, rel=0.1)
