"""Runs as they are really recorded, on simulated GPUs: against the truth, and with faults."""

import csv
import json
import os
import subprocess
import sys

import numpy as np
import pytest

JOULEWISE = [sys.executable, "-m", "joulewise"]
TRAIN = "from joulewise.simulate import gpu\nfor _ in range(6): gpu(0).step('resnet50', 64, 4)"


def measured(tmp_path, *, gpus="v100x2", faults=()):
    """The result of training on the first GPU, and what the physics say."""
    truth = tmp_path / "truth.csv"
    options = [arg for fault in faults for arg in ("--fault", fault)]
    simulated = [*JOULEWISE, "sim", "--gpu", gpus, "--truth", str(truth), *options, "--"]
    command = ["run", "--json", str(tmp_path / "r.json"), "--", sys.executable, "-c", TRAIN]
    subprocess.run(
        [*simulated, *JOULEWISE, *command],
        cwd=tmp_path,
        env={**os.environ, "JOULEWISE_POWERCAP": "/nonexistent"},
        check=True,
        capture_output=True,
    )
    return json.loads((tmp_path / "r.json").read_text()), truth


def sensed_j(truth, gpu, start_ns, end_ns):
    rows = [row for row in csv.DictReader(truth.read_text().splitlines()) if row["gpu"] == str(gpu)]
    t_ns = np.array([int(row["monotonic_ns"]) for row in rows], float)
    joules = np.array([float(row["sensed_j"]) for row in rows])
    before, after = np.interp([start_ns, end_ns], t_ns, joules)
    return after - before


def test_the_total_is_what_the_sensor_of_the_used_gpu_saw(tmp_path):
    result, truth = measured(tmp_path)
    assert result["counted"] == ["gpu0", "cpu0", "dram0"]
    assert [out["device"] for out in result["excluded"]] == ["gpu1"]
    start_ns = result["start_monotonic_ns"]
    end_ns = start_ns + result["time_s"] * 1e9
    for gpu in (0, 1):
        energy = result["energy_j"][f"gpu{gpu}"]
        sensed = sensed_j(truth, gpu, start_ns, end_ns)
        # Twice a 95 % half-width: not a test of coverage, and never a coincidence.
        assert energy["value"] == pytest.approx(sensed, abs=2 * energy["error_sampling"])
        assert energy["error_sampling"] < 0.03 * sensed


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("gpu0:lost@2.5s-4s", "gap"),
        ("gpu0:counter-reset@3s", "counter_reset"),
        ("gpu0:stuck@2s-5.5s", "sensor_stuck"),
    ],
)
def test_a_fault_is_a_warning(tmp_path, fault, code):
    result, _ = measured(tmp_path, gpus="v100", faults=[fault])
    assert result["exit_code"] == 0
    assert code in [warning["code"] for warning in result["warnings"]]
    assert result["energy_j"]["gpu0"]["value"] > 0
