"""The shim and the engine behind it: lines, forks, torn reads, latencies."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import numpy as np
import pynvml as nvml
import pytest

from joulewise.simulate.nvml.faults import Latency
from joulewise.simulate.nvml.shared_memory import SharedGpuMemory, shim_path
from joulewise.units import NS_PER_S
from tests.helpers.nvml_on_manual_clock import (
    client,
    code_of,
    handle,
    published,
    simulated,
    timeline,
)
from tests.helpers.sim_processes import running_sim


class TestEngine:
    """The line to the engine, with a short stand-in for it that writes down what it hears."""

    @pytest.fixture
    def heard(self, tmp_path):
        heard = Heard(f"joulewise-test-{tmp_path.name}-{os.getpid()}")
        threading.Thread(target=heard.listen, daemon=True).start()
        yield heard
        heard.end()

    def test_a_client_is_one_from_init_to_shutdown(self, monkeypatch, tmp_path, heard):
        with simulated(monkeypatch, tmp_path, "v100", "v100", socket=heard.name):
            assert heard.next() == "client"
            nvml.nvmlDeviceSetPowerManagementLimit(handle(1), 200_000)
            assert heard.next() == "changed 1"
            nvml.nvmlInit()
            nvml.nvmlShutdown()
        assert heard.next() == "gone"

    def test_a_forked_child_is_a_client_of_its_own(self, tmp_path, heard):
        with published(tmp_path, "v100", socket=heard.name) as machine:
            parent = _forking(machine)
            assert heard.next() == "client"
            assert parent.communicate("fork")[0] == "0 0\n"
        assert [heard.next() for _ in range(3)] == ["client", "gone", "gone"]

    def test_without_its_engine_the_driver_is_not_loaded(self, monkeypatch, tmp_path):
        nobody = simulated(monkeypatch, tmp_path, "v100", socket="joulewise-nobody-there")
        with pytest.raises(nvml.NVMLError_DriverNotLoaded), nobody:
            pass

    def test_an_engine_that_takes_no_clients_is_not_waited_for_for_ever(self, tmp_path):
        name = f"joulewise-test-{tmp_path.name}-{os.getpid()}"
        with ExitStack() as stack:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(f"\0{name}")
            listener.listen(0)
            full = False
            while not full:
                waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
                waiting.setblocking(False)
                full = bool(waiting.connect_ex(f"\0{name}"))
            machine = stack.enter_context(published(tmp_path, "v100", socket=name))
            environ = {"LD_LIBRARY_PATH": shim_path().parent, "JOULEWISE_SIM": machine.shared.path}
            done = subprocess.run(
                [sys.executable, "-c", "import pynvml; pynvml.nvmlInit()"],
                env={**os.environ, **environ}, check=False, capture_output=True, timeout=30,
            )  # fmt: skip
        assert b"NVMLError_DriverNotLoaded" in done.stderr

    def test_a_stopped_engine_keeps_its_gpus_and_a_killed_one_loses_them(self, monkeypatch):
        with running_sim("--gpu", "v100") as sim, client(monkeypatch, sim.shared):
            gpu = handle(0)
            os.kill(sim.process.pid, signal.SIGSTOP)
            shared = SharedGpuMemory.open(sim.shared)
            shared.freeze(time.monotonic_ns() + 3600 * NS_PER_S)
            assert nvml.nvmlDeviceGetPowerUsage(gpu) > 0
            shared.close()
            sim.kill()
            for _ in range(2):
                assert code_of(nvml.nvmlDeviceGetName, gpu) == nvml.NVML_ERROR_GPU_IS_LOST

    def test_an_engine_that_answers_late_is_still_seen_to_end(self, monkeypatch, tmp_path, heard):
        with simulated(monkeypatch, tmp_path, "v100", socket=heard.name):
            gpu = handle(0)
            heard.pause()
            nvml.nvmlDeviceSetPersistenceMode(gpu, 1)
            assert nvml.nvmlDeviceGetPowerUsage(gpu) > 0
            heard.go_on(then_hang_up=True)
            assert [heard.next() for _ in range(3)] == ["client", "changed 0", "gone"]
            assert code_of(nvml.nvmlDeviceGetName, gpu) == nvml.NVML_ERROR_GPU_IS_LOST

    def test_a_forked_child_of_a_client_whose_engine_ended_is_told(self, tmp_path, heard):
        with published(tmp_path, "v100", socket=heard.name) as machine:
            parent = _forking(machine)
            assert heard.next() == "client"
            heard.end()
            assert parent.communicate("fork")[0].split()[0] == f"{nvml.NVML_ERROR_GPU_IS_LOST}"

    def test_an_engine_stopped_while_writing_is_waited_for_by_the_clock(self, machine, gpu):
        machine.shared._gpus["sequence"][0] += 1
        before_ns = time.monotonic_ns()
        assert code_of(nvml.nvmlDeviceGetPowerUsage, gpu) == nvml.NVML_ERROR_TIMEOUT
        assert time.monotonic_ns() - before_ns >= 50_000_000  # however fast its turns go by
        machine.shared._gpus["sequence"][0] += 1
        assert nvml.nvmlDeviceGetPowerUsage(gpu) > 0


FORKING = """
import ctypes, os, pynvml as n, sys
n.nvmlInit()
gpu, room = n.nvmlDeviceGetHandleByIndex(0), ctypes.byref(ctypes.c_uint())
sys.stdin.read()
child = os.fork()
if child == 0:
    os._exit(n.nvmlLib.nvmlDeviceGetPowerUsage(gpu, room))
answer = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(answer, n.nvmlLib.nvmlDeviceGetPowerUsage(gpu, room))
"""


def _forking(machine):
    """A client that forks when told; it prints what its child and then it itself was answered."""
    environ = {"LD_LIBRARY_PATH": shim_path().parent, "JOULEWISE_SIM": machine.shared.path}
    return subprocess.Popen(
        [sys.executable, "-c", FORKING],
        env={**os.environ, **environ}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


class Heard:
    """Accepts, says ok to every line, and keeps what was said in order."""

    def __init__(self, name):
        self.name = name
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"\0{name}")
        self._listener.listen()
        self._said = []
        self._changed = threading.Condition()
        self._answering = threading.Event()
        self._answering.set()
        self._hang_up = False

    def listen(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def end(self):
        if self._listener.fileno() >= 0:
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def pause(self):
        self._answering.clear()

    def go_on(self, *, then_hang_up):
        self._hang_up = then_hang_up
        self._answering.set()

    def next(self):
        with self._changed:
            assert self._changed.wait_for(lambda: self._said, timeout=10)
            return self._said.pop(0)

    def _converse(self, connection):
        with connection, connection.makefile("r") as lines:
            for line in lines:
                self._say(line.rstrip("\n"))
                self._answering.wait()
                connection.sendall(b"ok\n")
                if self._hang_up:
                    break
        self._say("gone")

    def _say(self, words):
        with self._changed:
            self._said.append(words)
            self._changed.notify_all()


READER = """
import ctypes, pynvml as n, select, sys
n.nvmlInit()
gpu, rates, seen = n.nvmlDeviceGetHandleByIndex(0), n.c_nvmlUtilization_t(), set()
call, room = n.nvmlLib.nvmlDeviceGetUtilizationRates, ctypes.byref(rates)
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(1000):
        assert call(gpu, room) == 0
        seen.add(rates.gpu)
print(*sorted(seen))
"""


def test_readers_never_see_half_of_what_is_written(monkeypatch, tmp_path):
    """Every published timeline is busy throughout or not at all, so any mixture would show."""
    with simulated(monkeypatch, tmp_path, "v100") as machine:
        at = [(t, 100.0) for t in np.arange(0, 2, 0.001)]
        machine.at(2)
        lines = [timeline(at, busy=busy) for busy in (0.0, 1.0)]
        reader = subprocess.Popen(
            [sys.executable, "-c", READER],
            env={**os.environ, "LD_LIBRARY_PATH": str(shim_path().parent)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with reader:
            assert reader.stdout.readline() == "ready\n"
            for _ in range(5_000):
                for line in lines:
                    machine.shared.publish(0, line)
            assert set(reader.communicate("\n")[0].split()) <= {"0", "100"}


def test_calls_take_their_time_by_default(monkeypatch, tmp_path):
    slow = Latency(0, 0, 0, 0, 50_000_000, 0)
    with simulated(monkeypatch, tmp_path, "v100", latency=slow):
        before_ns = time.monotonic_ns()
        nvml.nvmlDeviceGetPcieThroughput(handle(0), 0)
        assert time.monotonic_ns() - before_ns >= slow.pcie_ns  # how much later is no test's matter


def test_the_defaults_are_of_a_drivers_order():
    latency = Latency()
    assert 10_000 <= latency.read_ns <= 1_000_000
    assert latency.pcie_ns == 20_000_000
