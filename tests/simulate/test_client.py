"""Training programs on simulated GPUs: they load them, share them, and let go of them."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

import joulewise.simulate
from joulewise.errors import SimulationError, UsageError
from joulewise.simulate import client
from joulewise.simulate.nvml.shared_memory import SharedGpuMemory
from joulewise.simulate.realtime.engine import MAX_PEERS
from tests.helpers.processes import DEADLINE_S, eventually, first_line
from tests.helpers.sim_processes import running_sim

STEP_S = 0.25  # ecg on a V100 at its highest clock


@pytest.fixture(scope="module")
def machine():
    with running_sim("--gpu", "v100x2") as sim:
        yield sim


@pytest.fixture
def shared(machine):
    shared = SharedGpuMemory.open(machine.shared)
    yield shared
    shared.close()


@pytest.fixture
def sim(machine, shared, monkeypatch):
    inside(machine, monkeypatch)
    yield machine
    client._close_inherited()
    eventually(lambda: not any(processes(shared, gpu) for gpu in (0, 1)))


def inside(sim, monkeypatch):
    monkeypatch.setenv("JOULEWISE_SIM", sim.shared)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def start(code, **options):
    code = f"from joulewise.simulate import gpu\n{code}"
    return subprocess.Popen([sys.executable, "-c", code], **options)


def processes(shared, gpu):
    block = shared._gpus[gpu]
    return {int(p["pid"]): int(p["memory_b"]) for p in block["process"][: block["processes"]]}


def is_busy(shared, gpu):
    """Whether any published piece has not happened yet or is happening, and has a kernel."""
    block = shared._gpus[gpu]
    t_ns = time.monotonic_ns()
    first, end = int(block["first"]), int(block["end"])
    ring = block["ring"][[n % len(block["ring"]) for n in range(first, end)]]
    at = max(0, int((ring["t_ns"] <= t_ns).sum()) - 1)
    return bool((ring["busy"][at:] > 0).any())


@pytest.mark.usefixtures("sim")
def test_a_step_takes_as_long_as_it_would():
    done = joulewise.simulate.gpu(0).step("ecg")
    assert (done.end_ns - done.start_ns) / 1e9 == pytest.approx(STEP_S, rel=0.02)


@pytest.mark.usefixtures("sim")
def test_several_steps_are_one_request():
    done = joulewise.simulate.gpu(1).step("mnist-big", batch_size=64, steps=3)
    one = joulewise.simulate.gpu(1).step("mnist-big", batch_size=64)
    ratio = (done.end_ns - done.start_ns) / (one.end_ns - one.start_ns)
    assert ratio == pytest.approx(3, rel=0.02)


@pytest.mark.usefixtures("sim")
def test_who_steps_is_listed_with_its_memory_and_leaves_no_trace(shared):
    child = start("gpu(1).step('ecg', steps=10**6)")
    eventually(lambda: processes(shared, 1).get(child.pid, 0) > 0)
    eventually(lambda: is_busy(shared, 1))
    assert processes(shared, 0) == {}
    child.kill()
    child.wait()
    eventually(lambda: not processes(shared, 1))
    eventually(lambda: not is_busy(shared, 1))


@pytest.mark.usefixtures("sim")
def test_two_programs_share_the_time_of_a_gpu(shared):
    alone = joulewise.simulate.gpu(0).step("mnist-big", steps=10)
    other = start("gpu(0).step('mnist-big', steps=10**6)")
    try:
        eventually(lambda: other.pid in processes(shared, 0) and is_busy(shared, 0))
        together = joulewise.simulate.gpu(0).step("mnist-big", steps=10)
    finally:
        other.kill()
        other.wait()
    # The other's steps lie between its own, of which there are ten.
    assert took_ns(together) == pytest.approx(1.9 * took_ns(alone), rel=0.05)


@pytest.mark.usefixtures("sim")
def test_threads_load_two_gpus_at_once():
    done = {}

    def train(index):
        done[index] = joulewise.simulate.gpu(index).step("ecg", steps=2)

    threads = [threading.Thread(target=train, args=(index,)) for index in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert done[0].start_ns < done[1].end_ns
    assert done[1].start_ns < done[0].end_ns


@pytest.mark.usefixtures("sim")
def test_gpus_are_counted_as_cuda_does(monkeypatch):
    assert joulewise.simulate.gpu(1).index == 1
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert joulewise.simulate.gpu(0).index == 1
    with pytest.raises(SimulationError, match="no GPU 1: 1 of 2"):
        joulewise.simulate.gpu(1)


@pytest.mark.usefixtures("sim")
def test_a_forked_child_is_a_client_of_its_own(shared):
    code = """
import os
gpu(0).step("mnist-big")
if child := os.fork():
    print(child, flush=True)
gpu(0).step("ecg", steps=10**6)
"""
    parent = start(code, stdout=subprocess.PIPE)
    child = int(first_line(parent.stdout))
    parent.stdout.close()
    try:
        eventually(lambda: set(processes(shared, 0)) == {parent.pid, child})
        parent.kill()
        parent.wait()
        eventually(lambda: set(processes(shared, 0)) == {child})
    finally:
        os.kill(child, signal.SIGKILL)
        parent.kill()
        parent.wait()
    eventually(lambda: processes(shared, 0) == {})


@pytest.fixture
def ctrl_c():
    """Ctrl-C interrupts, also where this process was started to ignore it (``nohup``, ``&``)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("sim", "ctrl_c")
def test_ctrl_c_in_a_step_releases_the_gpu_and_the_next_step_works(shared):
    def interrupt():
        eventually(lambda: is_busy(shared, 0))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        joulewise.simulate.gpu(0).step("ecg", steps=round(DEADLINE_S / STEP_S))
    thread.join(DEADLINE_S)
    eventually(lambda: not is_busy(shared, 0))
    assert took_ns(joulewise.simulate.gpu(0).step("mnist-big")) > 0


@pytest.mark.usefixtures("sim")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nonsense",), "nonsense"),
        (("ecg", -1), "batch"),
        (("ecg", 0), "batch"),
        (("ecg", 32, 0), "0 steps"),
        (("x" * 1000,), "workload"),
        (("ecg 32 1\nstep ecg",), "workload"),
    ],
)
def test_a_step_that_cannot_be_says_why_and_the_next_one_works(arguments, words):
    with pytest.raises(UsageError, match=words) as error:
        joulewise.simulate.gpu(0).step(*arguments)
    assert error.value.hint
    assert took_ns(joulewise.simulate.gpu(0).step("mnist-big")) > 0


def test_outside_of_a_simulation_the_hint_says_how_to_get_in(monkeypatch):
    monkeypatch.delenv("JOULEWISE_SIM", raising=False)
    assert not joulewise.simulate.available()
    with pytest.raises(SimulationError) as error:
        joulewise.simulate.gpu(0)
    assert "joulewise sim --gpu v100 -- " in error.value.hint


def test_when_the_simulation_is_gone_a_step_fails_each_time(monkeypatch):
    with running_sim("--gpu", "v100") as sim:
        inside(sim, monkeypatch)
        assert joulewise.simulate.available()
        gpu = joulewise.simulate.gpu(0)
        gpu.step("mnist-big")
        sim.kill()
        for _ in range(2):
            with pytest.raises(SimulationError, match=r"has ended|no simulated"):
                gpu.step("mnist-big")
        eventually(lambda: not joulewise.simulate.available())


@pytest.mark.parametrize(
    "noise",
    [
        b"\n",
        b"hello\n",
        b"step ecg 32 1\n",
        b"attach 7\n",
        b"attach 0\nattach 0\n",
        b"attach 0\nstep ecg 32 9\nstep ecg 32 9\n",
        b"changed -1\n",
        b"\xff\xfe\x00\n",
        b"x" * 100_000,
        b"attach 0\nstep ecg " + b"9" * 200 + b" 1\n",
    ],
)
def test_a_client_that_breaks_the_protocol_is_disconnected_alone(sim, noise):
    mad, slow = (connect(sim) for _ in range(2))
    slow.sendall(b"attach")
    try:
        mad.sendall(noise)
        while mad.recv(4096):
            pass
    except (BrokenPipeError, ConnectionResetError):
        pass
    assert took_ns(joulewise.simulate.gpu(0).step("mnist-big")) > 0
    slow.sendall(b" 1\n")
    assert slow.recv(100) == b"ok\n"
    mad.close()
    slow.close()


def test_a_client_that_never_listens_disturbs_nobody(sim):
    deaf = connect(sim)
    with pytest.raises(ConnectionError):
        flood(deaf)
    assert took_ns(joulewise.simulate.gpu(0).step("mnist-big")) > 0
    deaf.close()


def test_more_clients_than_can_be_served_wait_for_their_turn(sim):
    lines = [connect(sim) for _ in range(MAX_PEERS + 5)]
    lines[-1].sendall(b"gpus\n")
    for line in lines[:10]:
        line.close()
    assert lines[-1].recv(5) == b"gpus "
    for line in lines[10:]:
        line.close()


def flood(line):
    while True:
        line.sendall(b"gpus\n" * 100)


def connect(sim):
    line = socket.socket(socket.AF_UNIX)
    line.connect("\0" + sim.folder.name)
    line.settimeout(DEADLINE_S)
    return line


def took_ns(done):
    return done.end_ns - done.start_ns
