"""The bench in real time: a process that loads, one that polls, and nothing left of either."""

import json
import os
import signal
import subprocess
import sys
import types

import numpy as np
import psutil
import pytest

from joulewise.calibrate import gpu_load
from joulewise.errors import UsageError
from tests.helpers.processes import eventually, gone

JOULEWISE = [sys.executable, "-m", "joulewise"]


def under_sim(*command, sim=(), **environ):
    return subprocess.run(
        [*JOULEWISE, "sim", "--gpu", "v100", *sim, "--", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, **environ},
    )


def calibrate(*options, sim=(), **environ):
    return under_sim(*JOULEWISE, "calibrate", *options, sim=sim, **environ)


def test_a_simulated_gpu_in_real_time_and_its_card():
    done = under_sim(
        "sh",
        "-c",
        f"{sys.executable} -m joulewise calibrate --seconds 10 --json - && "
        "cat $JOULEWISE_STATE/cards/*.json",
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # nothing is drawn where there is no terminal
    payload, end = json.JSONDecoder().raw_decode(done.stdout)
    (gpu,) = payload["gpus"]
    timing = gpu["sensors"]["power_w"]
    assert timing["update_period_s"]["value"] == pytest.approx(0.02, rel=0.1)
    # Late readings on a busy machine blur the window, and its error says so.
    blurred_s = max(0.001, 1.5 * timing["window_s"]["error"])
    assert timing["window_s"]["value"] == pytest.approx(0.01, abs=blurred_s)
    assert timing["window_s"]["error"] < 0.005
    card = json.loads(done.stdout[end:])
    assert (card["uid"], card["sensors"]["power_w"]) == (gpu["uid"], timing)


def test_a_gpu_in_use_is_left_alone():
    done = calibrate(sim=("--workload", "resnet50"))
    assert done.returncode == 2
    assert "other process" in done.stderr
    assert "--force" in done.stderr


def test_a_gpu_that_is_lost_does_not_keep_others_from_it():
    done = calibrate(
        "--seconds", "8", "--json", "-", sim=("--gpu", "v100x2", "--fault", "gpu0:lost")
    )
    assert done.returncode == 0, done.stderr
    lost, found = json.loads(done.stdout)["gpus"]
    assert "gpu0 cannot be calibrated" in lost["warnings"][0]
    assert found["sensors"]["power_w"] is not None


def test_a_gpu_that_does_not_answer_shows_why():
    done = calibrate(sim=("--fault", "gpu0:lost"))
    assert done.returncode == 125
    assert "gpu0 cannot be calibrated" in done.stderr
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--gpu", "7"], "there is no gpu7"),
        (["--psu-efficiency", "0.9"], "add --meter"),
        (["--run", "last"], "add --meter"),
        (["--meter", "m.csv", "--psu-efficiency", "94"], "must be between 0.3 and 1, not '94'"),
        (["--meter", "m.csv", "--psu-efficiency", "0.9±0.9"], "must be between 0.3 and 1"),
        (["--meter", "nowhere.csv", "--run", "none"], "no run"),
        (["--seconds", "1"], "--seconds"),
    ],
)
def test_what_cannot_be_intended_is_refused_at_once(options, said):
    done = calibrate(*options)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_without_a_gpu_it_shows_what_to_do():
    done = calibrate(CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert "no GPU to calibrate" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_however_it_ends_it_leaves_no_process(number):
    sim = subprocess.Popen(
        [*JOULEWISE, "sim", "--gpu", "v100", "--", *JOULEWISE, "calibrate"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:

        def loader():
            processes = psutil.Process(sim.pid).children(recursive=True)
            return [p for p in processes if "joulewise.calibrate.gpu_load" in _arguments(p)]

        (child,) = eventually(loader)
        os.kill(child.ppid(), number)
        _, said = sim.communicate(timeout=30)
        assert sim.returncode == {signal.SIGINT: 130}.get(number, 128 + number)
        assert b"Traceback" not in said
        assert eventually(lambda: gone(child.pid))
    finally:
        sim.kill()
        sim.wait()


def _arguments(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


class TestLoading:
    def test_without_torch_it_shows_how_to_get_it(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "torch", None)
        with pytest.raises(UsageError, match="torch, which is not installed"):
            gpu_load._torch()

    def test_torch_without_cuda_shows_so(self, monkeypatch):
        blind = types.SimpleNamespace(
            __version__="2.13.0+cpu", cuda=types.SimpleNamespace(is_available=lambda: False)
        )
        monkeypatch.setitem(sys.modules, "torch", blind)
        with pytest.raises(UsageError, match="sees no GPU"):
            gpu_load._torch()

    def test_work_lasts_until_the_gpu_is_done(self):
        """CUDA's events stand in for a GPU, which nobody here has."""
        queue = []

        class Event:
            def record(self):
                queue.append("event")

            def query(self):
                queue.pop()
                return not queue

        torch = types.SimpleNamespace(cuda=types.SimpleNamespace(Event=Event))
        start_ns, end_ns = gpu_load._wait_for(torch, lambda: queue.append("piece"))(5)
        assert not queue
        assert end_ns > start_ns

    def test_the_products_are_products(self):
        torch = pytest.importorskip("torch")
        moved = types.SimpleNamespace(
            randn=lambda *size, **_on: torch.ones(*size),
            randn_like=torch.ones_like,
            empty_like=torch.empty_like,
            mm=torch.mm,
        )
        assert np.all(gpu_load._products(moved)().numpy() == gpu_load._PRODUCT)

    def test_it_ends_with_its_stdin(self):
        child = subprocess.Popen(
            [sys.executable, "-m", "joulewise.calibrate.gpu_load", "sim", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert child.communicate(timeout=30)[0] == b""
        assert child.returncode == 0

    def test_what_it_cannot_do_it_shows(self, monkeypatch):
        monkeypatch.delenv("JOULEWISE_SIM", raising=False)
        done = subprocess.run(
            [sys.executable, "-m", "joulewise.calibrate.gpu_load", "sim", "0"],
            input="heavy 0.1 0.1\n",
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        assert done.stdout.startswith("error\tthere is no simulated GPU here\t")
