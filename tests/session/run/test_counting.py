"""Which GPUs count in a run on simulated ones, in real time: processes, activity, accounting."""

import json
import re
import subprocess
import sys

import pytest

from tests.helpers.run_processes import JOULEWISE, environment

LATE = (
    "import sys, time; time.sleep(2.3); from joulewise.simulate import gpu; "
    "gpu(0).step('resnet50', batch_size=2)"
)


def result_of(tmp_path, *simulated, program=LATE, board="v100"):
    result = tmp_path / "r.json"
    run = [*JOULEWISE, "--store", str(tmp_path), "run", "--json", str(result), "--"]
    subprocess.run(
        [*JOULEWISE, "sim", "--gpu", board, *simulated, "--", *run, sys.executable, "-c", program],
        capture_output=True, check=True, env=environment(),
    )  # fmt: skip
    return json.loads(result.read_text())


def codes(result):
    return [warning["code"] for warning in result["warnings"] if warning["device"] == "gpu0"]


@pytest.mark.parametrize("board", ["v100", "gh200"])
def test_a_gpu_that_was_used_for_a_moment_counts(tmp_path, board):
    """Its process comes after the looks of the first two seconds, and is gone before the next."""
    result = result_of(tmp_path, board=board)
    assert "gpu0" in result["counted"]
    assert "device_excluded" not in codes(result)


def test_accounting_names_who_was_there(tmp_path):
    result = result_of(tmp_path, "--accounting")
    assert "gpu0" in result["counted"]
    assert "unseen_use" not in codes(result)


def test_the_simulations_own_load_is_not_the_commands(tmp_path):
    result = result_of(tmp_path, "--workload", "resnet50", program="import time; time.sleep(0.5)")
    (out,) = result["excluded"]
    assert out["device"] == "gpu0"
    assert "the simulation's own" in out["reason"]
    assert "joulewise" not in out["reason"]


def shown(tmp_path, *simulated, program="import time; time.sleep(0.3)"):
    """The opening line, the result and the headline, of a run under ``joulewise sim``."""
    result = tmp_path / "r.json"
    run = [*JOULEWISE, "--store", str(tmp_path), "run", "--json", str(result), "--"]
    ran = subprocess.run(
        [*JOULEWISE, "sim", "--gpu", "v100", *simulated, "--", *run, sys.executable, "-c", program],
        capture_output=True, check=True, text=True, env=environment(),
    )  # fmt: skip
    opening, *_ = ran.stderr.splitlines()
    (headline,) = (line for line in ran.stderr.splitlines() if re.search(r" J .* in \d.* s", line))
    return opening, json.loads(result.read_text()), headline


@pytest.mark.parametrize(
    "how",
    [
        ("--fault", "gpu0:lost@0s"),  # it was never opened
        ("--fault", "gpu0:call=GetName,code=15"),
        ("--fault", "gpu0:call=GetPowerUsage,code=3;gpu0:call=GetTotalEnergyConsumption,code=3"),
        ("--workload", "resnet50"),  # it does not count
    ],
)
def test_a_simulated_gpu_shows_so_whatever_became_of_it(tmp_path, how):
    opening, result, headline = shown(tmp_path, *how)
    assert result["simulated"] == ["gpu0"]
    assert "simulated" in opening
    assert "GPU simulated" in headline
    ls = subprocess.run(
        [*JOULEWISE, "--store", str(tmp_path), "ls", "--json", "-"],
        capture_output=True, check=True, env=environment(),
    )  # fmt: skip
    assert json.loads(ls.stdout)["runs"][0]["simulated"] == ["gpu0"]


def test_a_gpu_that_is_lost_leaves_a_lower_bound(tmp_path):
    program = (
        "import time; from joulewise.simulate import gpu; end = time.monotonic() + 5\n"
        "while time.monotonic() < end: gpu(0).step('resnet50', batch_size=16)"
    )
    result = result_of(tmp_path, "--fault", "gpu0:lost@4s", program=program)
    assert "gpu0" in result["counted"]
    assert result["energy_j"]["total"]["at_least"] is True
    assert "device_unavailable" in codes(result)
    energy = result["energy_j"]["gpu0"]
    assert energy is None or energy["at_least"]
