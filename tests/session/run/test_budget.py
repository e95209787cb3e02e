"""Budgets of a real run: what is said, when the command ends, and what the result tells."""

import json
import signal
import subprocess
import sys

import pytest

from tests.helpers.processes import DEADLINE_S, JOULEWISE, eventually, python
from tests.helpers.run_processes import environment, manifest, run, running

TRAIN = (
    "import joulewise\n"
    "from joulewise.simulate import gpu\n"
    "for epoch in range(40):\n"
    "    with joulewise.span('epoch', epoch, total=40):\n"
    "        gpu(0).step('resnet50', batch_size=128)\n"
)


def warnings(path):
    payload = json.loads(path.read_text())["warnings"]
    return [each["message"] for each in payload if each["code"] == "budget"]


def simulated(folder, *arguments):
    return subprocess.run(
        [*JOULEWISE, "sim", "--gpu", "v100", "--", *JOULEWISE, "--store", folder, "run",
         "--json", folder / "result.json", *arguments, "--", sys.executable, "-c", TRAIN],
        env=environment(), capture_output=True, text=True, check=False, timeout=DEADLINE_S,
    )  # fmt: skip


def test_energy_is_foreseen_and_then_stopped(tmp_path):
    done = simulated(tmp_path, "--budget", "700J:stop")
    assert done.returncode == 128 + signal.SIGTERM
    said = [line for line in done.stderr.splitlines() if line.startswith("joulewise: the budget")]
    assert len(said) == 2
    assert "the budget of 700J will be exceeded: " in said[0]
    assert said[1].endswith("stopping the command")
    (warning,) = warnings(tmp_path / "result.json")
    assert warning.startswith("the budget of 700J was used up after ")
    assert warning.endswith("; it stopped the command")
    payload = json.loads((tmp_path / "result.json").read_text())
    assert payload["state"] == manifest(tmp_path)["state"] == "stopped by budget"
    assert f"the whole run took {payload['energy_j']['total']['value']:.0f} J," in warning


@pytest.mark.parametrize("verb", [["ls"], ["show", "last"]], ids=str)
def test_a_run_that_a_budget_stopped_is_listed_as_such(tmp_path, verb):
    run(tmp_path, "--budget", "0.2s:stop", *python("time.sleep(60)"))
    shown = subprocess.run(
        [*JOULEWISE, "--store", tmp_path, *verb], capture_output=True, text=True, check=True
    )
    assert "stopped by budget" in shown.stdout


def test_a_budget_that_only_warns_lets_the_command_be(tmp_path):
    done = run(
        tmp_path, "--json", str(tmp_path / "result.json"), "--budget", "0.1s",
        *python("time.sleep(0.4); print('done')"),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "joulewise: the budget of 0.1s is used up\n" in done.stderr
    assert len(warnings(tmp_path / "result.json")) == 1


def test_what_is_used_up_at_once_is_in_the_result(tmp_path):
    done = run(
        tmp_path, "--json", str(tmp_path / "result.json"), "--budget", "0.001J:stop", "--", "true"
    )  # fmt: skip
    (message,) = warnings(tmp_path / "result.json")
    # It may have ended before it could be stopped.
    is_stopped = manifest(tmp_path)["state"] == "stopped by budget"
    assert ("stopped" in message) == is_stopped
    assert done.returncode == 0 or is_stopped


def test_enough_is_not_mentioned(tmp_path):
    done = run(
        tmp_path, "--json", str(tmp_path / "result.json"), "--budget", "1h", "--budget", "1MWh",
        *python("pass"),
    )  # fmt: skip
    assert done.returncode == 0
    assert "budget" not in done.stderr
    assert warnings(tmp_path / "result.json") == []


def test_time_holds_without_a_recorder(tmp_path):
    with running(tmp_path, "--budget", "1.5s:stop") as measured:
        measured.kill(measured.recorder_pid)
        measured.process.wait(DEADLINE_S)
        assert measured.process.returncode == 128 + signal.SIGTERM
        assert "the budget of 1.5s is used up; stopping the command" in (
            measured.process.stderr.read()
        )


def test_live_figures_and_the_forecast_lie_in_the_run(tmp_path):
    command = [*JOULEWISE, "sim", "--gpu", "v100", "--", *JOULEWISE, "--store", tmp_path, "run",
               "--gco2-per-kwh", "400", "--", sys.executable, "-c", TRAIN]  # fmt: skip
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:

        def result():
            for path in tmp_path.glob("*/live.json"):
                live = json.loads(path.read_text())
                if live["outlook"].get("energy_j"):  # null until the devices were read
                    return live
            return None

        try:
            eventually(lambda: result() or process.poll() is not None)
            live = result()
        finally:
            process.terminate()
            process.wait(DEADLINE_S)
    assert live["epochs"]["total"] == 40
    assert live["energy_j"]["total"]["value"] > live["energy_j"]["gpu0"]["value"] > 0
    whole = live["outlook"]["energy_j"]
    assert whole["low"] < whole["value"] < whole["high"]
    assert live["outlook"]["gco2"]["value"] == pytest.approx(whole["value"] / 3.6e6 * 400)
    assert list(tmp_path.glob("*/live.json")) == []  # the result has taken its place


@pytest.mark.parametrize("budget", ["2 parsecs", "500gCO2", "0kWh"])
def test_what_cannot_be_intended_starts_nothing(tmp_path, budget):
    done = run(tmp_path, "--budget", budget, *python("print('started')"))
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 2
    assert list(tmp_path.iterdir()) == []
