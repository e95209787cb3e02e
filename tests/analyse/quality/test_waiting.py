"""A GPU that idles or waits for data is pointed out; one that works, or ran briefly, is not."""

import random
import subprocess

import pytest

from joulewise.analyse.run_result import analyse
from joulewise.data import WarningCode
from joulewise.data.run_result_json import as_json, from_json
from joulewise.store.runs import runs as stored_runs
from tests.helpers.processes import JOULEWISE
from tests.helpers.run_directories import PID, MadeRun, device

STEP_S = 0.5
IDLE_W, BUSY_W = 60.0, 250.0


def sawtooth(waits):
    """In each step it waits for that part of it, then works."""
    noise = random.Random(0)

    def power_w(t_s):
        works = t_s >= 0 and t_s % STEP_S >= waits * STEP_S
        return (BUSY_W if works else IDLE_W) + noise.gauss(0, 0.3)

    return power_w


def training(path, keys=("gpu0",), seconds=40.0, spans=True):
    made = MadeRun(path, seconds=seconds, lead_s=4.0)
    for key in keys:
        made.processes(key, (-4, []), (0.1, [(PID, "python", True)]))
    if spans:
        steps = [("step", i, i * STEP_S, (i + 1) * STEP_S) for i in range(int(seconds / STEP_S))]
        made.spans(("training", None, 0, seconds), *steps)
    return made


def gpu(made, key, waits, used_pct):
    def level(t_s):
        return used_pct if t_s > 0 else 0

    made.fast(device(key), sawtooth(waits))
    made.slow(key, gpu_utilisation_pct=level, performance_state=lambda t_s: 0 if t_s > 0 else 8)
    return made


def waiting_warnings(made):
    return [w for w in analyse(made.write()).warnings if w.code is WarningCode.GPU_WAITED]


def test_a_gpu_that_waits_for_data_has_a_warning_with_advice(tmp_path):
    (warning,) = waiting_warnings(gpu(training(tmp_path / "run"), "gpu0", 0.6, 40))
    assert warning.device == "gpu0"
    assert warning.message.startswith(
        "it was busy 40 % of the training's time, and its power falls"
    )
    share = float(warning.message.split(" for ")[1].split(" %")[0])
    assert share == pytest.approx(60, abs=10)
    assert "more workers" in warning.hint
    assert "larger batch" in warning.hint


def test_the_warning_is_part_of_the_stored_result(tmp_path):
    result = analyse(gpu(training(tmp_path / "run"), "gpu0", 0.6, 40).write())
    assert from_json(as_json(result)).warnings == result.warnings


def test_a_sawtooth_is_found_although_utilisation_is_in_between(tmp_path):
    assert len(waiting_warnings(gpu(training(tmp_path / "run"), "gpu0", 0.4, 75))) == 1


def test_utilisation_in_between_without_a_sawtooth_has_no_warning(tmp_path):
    made = training(tmp_path / "run")
    noise = random.Random(1)
    made.fast(device("gpu0"), lambda t_s: (180 if t_s > 0 else 60) + noise.gauss(0, 25))
    made.slow("gpu0", gpu_utilisation_pct=lambda t_s: 75 if t_s > 0 else 0)
    assert waiting_warnings(made) == []


def test_one_that_works_is_not_told(tmp_path):
    assert waiting_warnings(gpu(training(tmp_path / "run"), "gpu0", 0.0, 97)) == []


def test_power_that_is_high_all_along_outweighs_what_the_driver_says(tmp_path):
    assert waiting_warnings(gpu(training(tmp_path / "run"), "gpu0", 0.0, 30)) == []


def test_a_short_run_is_not_told(tmp_path):
    assert waiting_warnings(gpu(training(tmp_path / "run", seconds=15.0), "gpu0", 0.6, 40)) == []


def test_start_and_end_of_a_program_do_not_count(tmp_path):
    """Half a minute of loading, then a training that keeps the GPU busy."""
    made = MadeRun(tmp_path / "run", seconds=60.0, lead_s=4.0)
    made.processes("gpu0", (-4, []), (0.1, [(PID, "python", True)]))
    made.fast(device("gpu0"), lambda t_s: 250 + t_s % 1 if 30 < t_s < 58 else 60 + t_s % 1)
    made.slow("gpu0", gpu_utilisation_pct=lambda t_s: 95 if 30 < t_s < 58 else 0)
    assert waiting_warnings(made) == []


def test_without_marks_low_use_is_told_all_the_same(tmp_path):
    (warning,) = waiting_warnings(gpu(training(tmp_path / "run", spans=False), "gpu0", 0.6, 40))
    assert warning.message == "it was busy 40 % of the training's time"


def test_of_several_only_those_that_wait(tmp_path):
    made = training(tmp_path / "run", keys=("gpu0", "gpu1", "gpu2"), seconds=70.0)
    gpu(gpu(made, "gpu0", 0.0, 97), "gpu1", 0.6, 40)
    made.fast(device("gpu2"), lambda t_s: 60 + t_s % 1).slow(
        "gpu2", gpu_utilisation_pct=lambda _: 0
    )
    waits, idles = waiting_warnings(made)
    assert (waits.device, idles.device) == ("gpu1", "gpu2")
    assert "was idle" in idles.message
    assert "CUDA_VISIBLE_DEVICES" in idles.hint


def test_a_utilisation_that_nobody_could_read_is_no_reason(tmp_path):
    made = training(tmp_path / "run").fast(device("gpu0"), sawtooth(0.6))
    assert waiting_warnings(made.slow("gpu0", gpu_utilisation_pct=lambda _: float("nan"))) == []


def test_a_simulated_resnet50_works_and_is_not_told(tmp_path):
    sweep = ["sweep", "--sim", "v100", "--workload", "resnet50", "--power-limit", "150,300"]
    command = [*JOULEWISE, "--store", tmp_path / "store", *sweep, "--repeat", "1"]
    subprocess.run(command, check=True, capture_output=True)
    runs = list(stored_runs(tmp_path / "store"))
    assert len(runs) == 2
    assert [
        w for run in runs for w in analyse(run).warnings if w.code is WarningCode.GPU_WAITED
    ] == []
