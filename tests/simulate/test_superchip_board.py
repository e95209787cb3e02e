"""The module around a simulated GPU: its scopes, and a CPU that draws with this machine's load."""

import csv

import numpy as np
import pynvml as nvml
import pytest

from joulewise.simulate.boards import load_board
from joulewise.simulate.realtime.gpu import HostChip, MachineLoad
from joulewise.units import NS_PER_S
from tests.helpers.nvml_on_manual_clock import START_NS, simulated, timeline
from tests.helpers.processes import eventually
from tests.helpers.sim_processes import running_sim

GPU, MODULE, MEMORY = 0, 1, 2
AVERAGE, INSTANT = 185, 186
SPEC = load_board("gh200").module


@pytest.fixture
def gh200(monkeypatch, tmp_path):
    with simulated(monkeypatch, tmp_path, "gh200") as machine:
        machine.draw((-100, 100.0))
        machine.shared.publish_host(0, START_NS - 100 * NS_PER_S, 80.0, 0.0)
        yield machine


def field_mw(field, scope):
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    (value,) = nvml.nvmlDeviceGetFieldValues(gpu, [(field, scope)])
    return value.value.uiVal if value.nvmlReturn == nvml.NVML_SUCCESS else None


def test_each_scope_reports_its_own_power(gh200):
    gh200.at(5)
    assert field_mw(AVERAGE, GPU) == field_mw(INSTANT, GPU) == 100_000
    assert field_mw(AVERAGE, MODULE) == field_mw(INSTANT, MODULE) == 180_000
    assert field_mw(AVERAGE, MEMORY) == round(1000 * SPEC.memory_idle_w)
    assert field_mw(INSTANT, MEMORY) is None
    assert field_mw(AVERAGE, 3) is None
    assert nvml.nvmlDeviceGetPowerUsage(nvml.nvmlDeviceGetHandleByIndex(0)) == 180_000


def test_memory_draws_with_its_load_and_no_more_than_its_gpu(gh200):
    gh200.shared.publish(0, timeline([(-100, 100.0)], memory_busy=0.5))
    gh200.at(5)
    middle_w = (SPEC.memory_idle_w + SPEC.memory_full_w) / 2
    assert field_mw(AVERAGE, MEMORY) == pytest.approx(1000 * middle_w, abs=1)
    gh200.shared.publish(0, timeline([(-100, 20.0)], memory_busy=1.0))
    assert field_mw(AVERAGE, MEMORY) == 20_000


def test_the_counter_follows_the_module_as_its_cpu_comes_under_load(gh200):
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    gh200.shared.publish_host(0, START_NS + 10 * NS_PER_S, 200.0, 80.0 * 110)
    counted = []
    for at_s in (5, 10, 15, 25):
        gh200.at(at_s)
        counted.append(nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000)
    before, _, after, later = counted
    assert later - after == pytest.approx(10 * 300, rel=0.02)
    assert after - before == pytest.approx(5 * 180 + 5 * 300, rel=0.03)


@pytest.mark.parametrize("board", ["a100", "v100"])
def test_other_boards_have_the_scope_of_the_gpu_alone(monkeypatch, tmp_path, board):
    with simulated(monkeypatch, tmp_path, board):
        assert field_mw(INSTANT, GPU)
        assert field_mw(INSTANT, MODULE) is None
        assert field_mw(AVERAGE, MEMORY) is None


def test_a_host_draws_by_its_load_and_remembers_what_it_drew():
    published = []
    host = HostChip(SPEC, 0, lambda *piece: published.append(piece))
    host.set_load(1.0, NS_PER_S)
    (_, idle_w, _), (from_ns, full_w, before_j) = published
    assert (idle_w, full_w) == (SPEC.host_idle_w, SPEC.host_full_w)
    assert before_j == pytest.approx(idle_w * from_ns / NS_PER_S)
    late_ns = from_ns + 10 * NS_PER_S
    whole_j = host.energy_at([late_ns])
    assert whole_j == pytest.approx(before_j + 10 * full_w)
    host.forget(late_ns)
    assert host.energy_at([late_ns]) == whole_j


def test_the_load_is_the_busy_share_of_the_time_between_two_readings(tmp_path):
    stat = tmp_path / "stat"
    stat.write_text("cpu 100 0 0 900 0 0 0 0 0 0\ncpu0 1 1\n")
    load = MachineLoad(stat)
    stat.write_text("cpu 130 0 0 960 10 0 0 0 0 0\n")
    assert load.load() == pytest.approx(0.3)
    assert load.load() == pytest.approx(0.3)  # the clock has not ticked since


def test_the_truth_of_a_module_contains_its_cpu(tmp_path):
    truth = tmp_path / "truth.csv"
    with running_sim("--gpu", "gh200", "--truth", str(truth)):
        eventually(lambda: truth.read_text().count("\n") > 100)
    rows = list(csv.DictReader(truth.read_text().splitlines()))
    t_s = np.array([int(row["monotonic_ns"]) for row in rows]) / NS_PER_S
    beside_j = np.array([float(row["energy_j"]) - float(row["gpu_only_j"]) for row in rows])
    beside_w = np.diff(beside_j) / np.diff(t_s)
    assert (beside_w > SPEC.host_idle_w - 0.1).all()
    assert (beside_w < SPEC.host_full_w + 0.1).all()
