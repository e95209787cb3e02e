"""Accounting mode: what the driver remembers of processes, through NVML and the engine."""

import os

import pynvml as nvml
import pytest

from joulewise.simulate.nvml.shared_memory import CONSTANTS, AccountedProcess
from joulewise.simulate.realtime.gpu import Job
from joulewise.simulate.realtime.truth import Accounting
from joulewise.units import NS_PER_MS
from tests.helpers.nvml_on_manual_clock import client, code_of, handle, simulated
from tests.helpers.sim_processes import running_sim
from tests.simulate.realtime.test_engine import under
from tests.simulate.realtime.test_gpu import LOAD, Clock, ms

# Prints what accounting knows of a child that trains for a moment and ends.
CHILD = """
import pynvml
nvmlInit(); h = nvmlDeviceGetHandleByIndex(0)
code = "from joulewise.simulate import gpu; gpu(0).step('resnet50', batch_size=64, steps=2)"
child = subprocess.Popen([sys.executable, "-c", code]); child.wait(); settle()

def stats(pid):
    s = nvmlDeviceGetAccountingStats(h, pid)
    return [s.gpuUtilization, s.memoryUtilization, s.maxMemoryUsage, s.time, s.isRunning]

def pids():
    return nvmlDeviceGetAccountingPids(h)
"""


def test_a_process_that_has_ended_is_remembered():
    pid, known, stats, running = under(
        CHILD + "running = [p.pid for p in nvmlDeviceGetComputeRunningProcesses(h)]\n"
        "print(json.dumps([child.pid, pids(), stats(child.pid), running]))",
        "--accounting",
    )
    busy_pct, memory_pct, memory_b, time_ms, is_running = stats
    assert (known, running, is_running) == ([pid], [], 0)
    assert 0 < memory_pct < busy_pct <= 100
    assert memory_b > 1 << 30
    assert time_ms > 20


def test_a_process_that_runs_is_known_by_its_start():
    now_us, started_us, stats, pid = under(
        CHILD + "now = time.time_ns() // 1000; gpu(0).step('resnet50', steps=2)\n"
        "me = nvmlDeviceGetAccountingStats(h, os.getpid())\n"
        "print(json.dumps([now, me.startTime, stats(os.getpid()), pids()]))",
        "--accounting",
    )
    assert started_us == pytest.approx(now_us, abs=5_000_000)
    assert stats[3:] == [0, 1]  # it has no time while it runs
    assert len(pid) == 2


def test_accounting_is_off_unless_requested():
    mode, code, size = under(
        CHILD + "try: pids()\n"
        "except NVMLError as error: code = error.value\n"
        "print(json.dumps([nvmlDeviceGetAccountingMode(h), code,"
        " nvmlDeviceGetAccountingBufferSize(h)]))"
    )
    assert (mode, code) == (0, nvml.NVML_ERROR_NOT_SUPPORTED)
    assert size == CONSTANTS["ACCOUNTED"]


def test_clearing_forgets_who_has_ended_and_switching_off_forgets_all():
    known, cleared, again = under(
        CHILD + "gpu(0).step('mnist-big'); known = pids()\n"
        "nvmlDeviceClearAccountingPids(h); cleared = pids()\n"
        "nvmlDeviceSetAccountingMode(h, 0); nvmlDeviceSetAccountingMode(h, 1)\n"
        "print(json.dumps([len(known), cleared == [os.getpid()], pids()]))",
        "--accounting",
    )
    assert (known, cleared, again) == (2, True, [])


def test_switched_on_it_accounts_who_comes_from_then_on():
    early, late = under(
        "nvmlInit(); h = nvmlDeviceGetHandleByIndex(0); gpu(0).step('mnist-big')\n"
        "nvmlDeviceSetAccountingMode(h, 1); early = nvmlDeviceGetAccountingPids(h)\n"
        "leave(); gpu(0).step('mnist-big'); settle()\n"
        "late = nvmlDeviceGetAccountingPids(h) == [os.getpid()]\n"
        "print(json.dumps([early, late]))"
    )
    assert (early, late) == ([], True)


def test_accounting_goes_off_when_the_driver_is_unloaded():
    before, after = under(
        "mode = lambda: look('print(nvmlDeviceGetAccountingMode(h))')\n"
        "print(json.dumps([mode(), (settle(), mode())[1]]))",
        "--accounting",
        "--persistence",
        "off",
    )
    assert (before, after) == (1, 0)


def test_the_load_of_the_simulation_is_accounted_from_the_start(monkeypatch):
    with (
        running_sim("--gpu", "v100", "--accounting", "--workload", "resnet50") as sim,
        client(monkeypatch, sim.shared),
    ):
        assert nvml.nvmlDeviceGetAccountingPids(handle(0)) == [sim.process.pid]
        assert nvml.nvmlDeviceGetAccountingStats(handle(0), sim.process.pid).isRunning == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user's eyes")
def test_only_root_may_switch_it(monkeypatch, tmp_path):
    with simulated(monkeypatch, tmp_path, "v100", as_root=False):
        os.seteuid(65534)
        try:
            codes = [
                code_of(nvml.nvmlDeviceSetAccountingMode, handle(0), 1),
                code_of(nvml.nvmlDeviceClearAccountingPids, handle(0)),
            ]
        finally:
            os.seteuid(0)
        assert codes == [nvml.NVML_ERROR_NO_PERMISSION] * 2
        assert nvml.nvmlDeviceGetAccountingMode(handle(0)) == 0


def row(pid, **changes):
    known = AccountedProcess(pid, False, 63, 21, 5 << 30, 1_000_000_000, 2_500 * NS_PER_MS)
    return known._replace(**changes)


def test_a_record_is_shown_field_by_field(monkeypatch, tmp_path):
    with simulated(monkeypatch, tmp_path, "v100") as machine:
        nvml.nvmlDeviceSetAccountingMode(handle(0), 1)
        machine.shared.set_accounted(0, [row(7), row(8, running=True, time_ns=0)])
        offset_ns = int(machine.shared._header["wall_offset_ns"][0])
        stats = nvml.nvmlDeviceGetAccountingStats(handle(0), 7)
        assert (stats.gpuUtilization, stats.memoryUtilization) == (63, 21)
        assert (stats.maxMemoryUsage, stats.time, stats.isRunning) == (5 << 30, 2_500, 0)
        assert stats.startTime == (1_000_000_000 + offset_ns) // 1000
        assert nvml.nvmlDeviceGetAccountingPids(handle(0)) == [7, 8]
        stranger = code_of(nvml.nvmlDeviceGetAccountingStats, handle(0), 9)
        assert stranger == nvml.NVML_ERROR_NOT_FOUND


class Known:
    """What a client is shown of the only GPU's records."""

    def __init__(self, shared):
        self.clock = Clock()
        self.accounting = Accounting(shared, [self.clock.gpu])

    def pids(self):
        return nvml.nvmlDeviceGetAccountingPids(handle(0))

    def stats(self, pid):
        return nvml.nvmlDeviceGetAccountingStats(handle(0), pid)


@pytest.fixture
def known(monkeypatch, tmp_path):
    with simulated(monkeypatch, tmp_path, "v100") as machine:
        nvml.nvmlDeviceSetAccountingMode(handle(0), 1)
        yield Known(machine.shared)


def test_each_process_is_busy_for_its_own_steps_only(known):
    clock, accounting = known.clock, known.accounting
    for owner, pid in (("one", 11), ("two", 12), ("idle", 13)):
        clock.gpu.attach(+1, ms(0))
        accounting.begin(0, owner, pid, ms(0))
    clock.gpu.submit(Job("one", LOAD, 6), ms(0))
    clock.gpu.submit(Job("two", LOAD, 2), ms(0))
    clock.to(ms(1_000))
    accounting.refresh(0, ms(1_000))
    one, two, idle = (known.stats(pid).gpuUtilization for pid in (11, 12, 13))
    # A step's kernel takes 40 ms at the highest clock.
    assert (one, two, idle) == (pytest.approx(24, abs=2), pytest.approx(8, abs=2), 0)
    accounting.end(0, "one", 5, ms(1_000))
    clock.to(ms(2_000))
    accounting.refresh(0, ms(2_000))
    ended, running = known.stats(11), known.stats(12)
    assert (ended.isRunning, ended.gpuUtilization, ended.time) == (0, one, 1_000)
    assert (running.isRunning, running.time) == (1, 0)
    assert running.gpuUtilization == pytest.approx(two / 2, abs=1)


def test_a_step_in_hand_counts_as_far_as_it_has_come(known):
    clock, accounting = known.clock, known.accounting
    clock.gpu.attach(+1, ms(0))
    accounting.begin(0, "one", 11, ms(0))
    clock.gpu.submit(Job("one", LOAD, 100), ms(0))
    accounting.refresh(0, ms(30))  # 10 ms of waiting for the host, then the kernel
    assert known.stats(11).gpuUtilization == pytest.approx(67, abs=1)


def test_of_one_pid_the_later_process_counts_and_the_oldest_go(known):
    for number in range(CONSTANTS["ACCOUNTED"] + 3):
        known.accounting.begin(0, number, 100 + number, ms(number))
        known.accounting.end(0, number, number, ms(number + 1))
    assert known.pids() == list(range(103, 103 + CONSTANTS["ACCOUNTED"]))
    known.accounting.begin(0, "again", 103, ms(10_000))
    assert known.pids()[-1] == 103
    assert known.pids().count(103) == 1
    assert known.stats(103).isRunning == 1


def test_two_connections_of_one_process_are_one_record(known):
    known.accounting.begin(0, "first", 11, ms(0))
    known.accounting.begin(0, "second", 11, ms(10))
    known.accounting.end(0, "first", 7, ms(20))
    assert known.pids() == [11]
    assert known.stats(11).isRunning == 1
    known.accounting.end(0, "second", 5, ms(30))
    stats = known.stats(11)
    assert (stats.isRunning, stats.time, stats.maxMemoryUsage) == (0, 30, 7)
