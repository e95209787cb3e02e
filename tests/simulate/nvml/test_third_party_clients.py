"""Other people's NVML clients, unmodified from the package index, see the simulated GPUs.

`script/peers` (part of `script/test`) gives each an environment of its own.
"""

import json
import re
import subprocess
import sys

import pytest

from tests.helpers.paths import PEERS


def under_sim(*command, gpu="v100,rtx6000", options=("--workload", "resnet50")):
    sim = [sys.executable, "-m", "joulewise", "sim", "--gpu", gpu, "--latency", "none", *options]
    return subprocess.run(
        [*sim, "--", *map(str, command)], capture_output=True, text=True, check=False, timeout=300
    )


@pytest.fixture(scope="session", autouse=True)
def peers():
    for name in ("gpustat", "nvitop"):
        assert (PEERS / name / "bin" / name).exists(), "run script/peers once"


def test_gpustat_sees_power_limit_and_process():
    done = under_sim(PEERS / "gpustat" / "bin" / "gpustat", "--json", "--show-power")
    assert (done.returncode, done.stderr) == (0, "")
    first, second = json.loads(done.stdout)["gpus"]
    assert first["name"].startswith("Tesla V100-SXM2")
    assert first["enforced.power.limit"] == 300
    assert 0 < first["power.draw"] <= 330
    assert second["name"].startswith("Quadro RTX 6000")
    assert second["enforced.power.limit"] == 260
    assert first["processes"]


def test_nvitop_draws_its_table():
    done = under_sim(PEERS / "nvitop" / "bin" / "nvitop", "--once", "--ascii", gpu="v100x8")
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"V100", done.stdout)) == 8
    assert "300W" in done.stdout.replace(" ", "")
    assert "ERROR" not in done.stdout


def test_a_limit_set_by_one_client_is_seen_by_the_next():
    gpustat = PEERS / "gpustat" / "bin" / "gpustat"
    script = f"nvidia-smi -i 1 -pl 150 >/dev/null && {gpustat} --json"
    done = under_sim("sh", "-c", script, options=("--as-root",))
    first, second = json.loads(done.stdout)["gpus"]
    assert (first["enforced.power.limit"], second["enforced.power.limit"]) == (300, 150)


def test_without_the_library_a_client_says_so():
    done = under_sim(PEERS / "gpustat" / "bin" / "gpustat", options=("--fault", "library-absent"))
    assert done.returncode != 0
    assert "NVML" in done.stdout + done.stderr
