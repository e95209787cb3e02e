from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.data import ControlKind, Quantity, Reading, Source, Unavailable
from joulewise.devices.host import powercap
from joulewise.devices.host.powercap import find_zones
from joulewise.errors import DeviceError, OutOfRangeError
from joulewise.testing import DeviceConformance
from tests.helpers.powercap_tree import LAPTOP, MACHINES, THREADRIPPER, XEON
from tests.helpers.simulated_cpu import Bench, OnBenchTime


class OnBench(OnBenchTime, DeviceConformance):
    machine = XEON
    key = "cpu0"

    @pytest.fixture
    def device(self, tmp_path):
        type(self).bench = Bench(tmp_path, self.machine)
        return self.bench.devices()[self.key]


class TestServerCpu(OnBench):
    pass


class TestServerSecondCpu(OnBench):
    key = "cpu1"


class TestServerDram(OnBench):
    key = "dram1"


class TestLaptopPlatform(OnBench):
    machine, key = LAPTOP, "node0"


class TestLaptopCpu(OnBench):
    machine = LAPTOP


class TestMirroredDies(OnBench):
    machine = THREADRIPPER


class TestCpuWhoseCounterCannotBeRead(OnBench):
    key = "cpu1"

    @pytest.fixture
    def device(self, tmp_path):
        type(self).bench = Bench(tmp_path, XEON)
        unreadable(self.bench, 1)
        return self.bench.devices()[self.key]


def unreadable(bench, package):
    """As good as a counter that only root may read, which tests that run as root can."""
    (bench.tree.path / f"intel-rapl:{package}/max_energy_range_uj").unlink()


def energies(devices):
    readings = {key: device.read(Quantity.ENERGY) for key, device in devices.items()}
    assert all(isinstance(reading, Reading) for reading in readings.values()), readings
    return {key: reading.value for key, reading in readings.items()}


class TestEachJouleCountsOnce:
    @pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
    def test_the_devices_are_those_of_the_truth(self, machine, tmp_path):
        bench = Bench(tmp_path, machine)
        measured = {k for k, d in bench.devices().items() if d.info.driver == "intel-rapl"}
        assert measured == set(bench.tree.truth_j)

    @settings(max_examples=30, deadline=None)
    @given(
        machine=st.sampled_from(list(MACHINES.values())),
        start_uj=st.integers(1, 2**38),
        steps=st.lists(
            st.tuples(st.floats(0.001, 80), st.floats(0, 1), st.floats(0, 1)),
            min_size=1,
            max_size=8,
        ),
    )
    def test_the_total_is_the_truth_over_any_wrap(self, machine, start_uj, steps):
        with tempfile.TemporaryDirectory() as root:
            bench = Bench(Path(root), machine, start_uj=start_uj)
            devices = bench.devices()
            devices = {k: d for k, d in devices.items() if k in bench.tree.truth_j}
            before = energies(devices)
            for seconds, *load in steps:
                bench.elapse(seconds, load)
                after = energies(devices)
        truth = bench.tree.truth_j
        for key in devices:
            assert after[key] - before[key] == pytest.approx(truth[key], abs=2e-6)
        inside = {key for device in devices.values() for key in device.info.contains}
        total = sum(after[key] - before[key] for key in set(devices) - inside)
        outermost = truth.get("node0", sum(truth.values()))
        assert total == pytest.approx(outermost, abs=1e-5)

    def test_a_platform_contains_assumed_memory_too(self, tmp_path):
        no_dram = replace(LAPTOP, packages=(replace(LAPTOP.packages[0], dram_w=None),))
        devices = Bench(tmp_path, no_dram).devices()
        assert devices["dram0"].info.driver == "assumption"
        assert devices["node0"].info.contains == ("cpu0", "dram0")

    def test_dies_with_counters_of_their_own_stay_apart(self, tmp_path):
        """As on Cascade Lake AP, where each die of a package is measured."""
        bench = Bench(tmp_path, XEON)
        for number in (0, 1):
            (bench.tree.path / f"intel-rapl:{number}/name").write_text(f"package-0-die-{number}")
        measured = {"cpu0", "cpu1", "dram0", "dram1"}
        assert set(bench.devices()) == measured

    def test_a_mirror_is_known_while_its_counter_runs(self, tmp_path, monkeypatch):
        """Every look at either zone finds the one counter a little further on."""
        bench = Bench(tmp_path, THREADRIPPER)
        read_int = powercap.read_int

        def running(path, fix=""):
            if path.name == "energy_uj":
                bench.elapse(0.001)
            return read_int(path, fix)

        monkeypatch.setattr(powercap, "read_int", running)
        assert len(find_zones(bench.tree.path).packages) == 1

    def test_the_mmio_zone_is_used_where_it_is_the_only_one(self, tmp_path):
        bench = Bench(tmp_path, LAPTOP)
        for path in bench.tree.path.glob("intel-rapl*"):
            if not path.name.startswith("intel-rapl-mmio"):
                path.unlink()
        assert bench.devices()["cpu0"].info.driver == "intel-rapl-mmio"

    def test_a_platform_for_each_package_contains_its_own(self, tmp_path):
        bench = Bench(tmp_path, replace(XEON, platform_w=50.0))
        psys = bench.tree.path / "intel-rapl:2"
        second = shutil.copytree(psys.resolve(), psys.resolve().with_name("intel-rapl:3"))
        (second / "name").write_text("psys-1\n")
        (bench.tree.path / "intel-rapl:3").symlink_to(second)
        devices = bench.devices()
        assert devices["node0"].info.contains == ("cpu0", "dram0")
        assert devices["node1"].info.contains == ("cpu1", "dram1")

    def test_a_tree_without_links_reads_the_same(self, tmp_path):
        bench = Bench(tmp_path, LAPTOP)
        nested = {"JOULEWISE_POWERCAP": str(tmp_path / "devices/virtual/powercap")}
        linked = set(bench.devices())
        bench.options = replace(bench.options, environ=bench.tree.environ | nested)
        assert set(bench.devices()) == linked


class TestPower:
    def test_the_first_reading_waits_for_a_window_and_the_next_do_not(self, tmp_path):
        bench = Bench(tmp_path, XEON)
        device = bench.devices()["cpu0"]
        opened_ns = bench.time_ns
        power = device.read(Quantity.POWER)
        assert bench.time_ns - opened_ns == 50_000_000
        assert power == Reading(pytest.approx(42 + 0.5 * 148), bench.time_ns)
        device.read(Quantity.POWER)
        assert bench.time_ns - opened_ns == 50_000_000

    def test_power_is_the_mean_since_the_last_reading_of_energy(self, tmp_path):
        bench = Bench(tmp_path, XEON)
        device = bench.devices()["cpu0"]
        bench.elapse(10, [0.0, 0.0])
        device.read(Quantity.ENERGY)
        bench.elapse(1, [0.6, 0.0])
        assert device.read(Quantity.POWER).value == pytest.approx(42 + 0.6 * 148)

    def test_a_counter_that_stands_still_is_not_0_w(self, tmp_path):
        bench = Bench(tmp_path, XEON)
        device = bench.devices()["cpu0"]
        bench.time_ns += 10**9
        assert isinstance(device.read(Quantity.POWER), Unavailable)


class TestLimits:
    def test_limits_are_those_of_the_firmware(self, tmp_path):
        cpu = Bench(tmp_path, XEON).devices()["cpu0"]
        assert cpu.get(ControlKind.POWER_LIMIT) == 150
        assert cpu.get(ControlKind.POWER_LIMIT_SHORT) == 180

    def test_a_limit_lowers_the_power_and_stretches_the_load(self, tmp_path):
        bench = Bench(tmp_path, XEON)
        cpu = bench.devices()["cpu0"]
        cpu.set(ControlKind.POWER_LIMIT, 90)
        bench.elapse(100, [1.0, 1.0])
        cpu.read(Quantity.ENERGY)
        done = bench.elapse(10, [1.0, 1.0])
        assert cpu.read(Quantity.POWER).value == pytest.approx(90)
        assert done[0] < done[1] < 10

    def test_reset_goes_back_to_what_was_found(self, tmp_path):
        bench = Bench(tmp_path, XEON)
        bench.devices()["cpu0"].set(ControlKind.POWER_LIMIT, 120)
        cpu = bench.devices()["cpu0"]
        cpu.set(ControlKind.POWER_LIMIT, 100)
        cpu.reset(ControlKind.POWER_LIMIT)
        assert cpu.get(ControlKind.POWER_LIMIT) == 120

    @pytest.mark.parametrize("before_w", [4095.0, 3.0])
    def test_what_an_earlier_process_found_can_be_put_back(self, tmp_path, before_w):
        """Boards ship with limits far above the rated power, and people set some far below."""
        odd = replace(LAPTOP.packages[0], limits_w=(before_w, before_w))
        bench = Bench(tmp_path, replace(LAPTOP, packages=(odd,)))
        assert bench.devices()["cpu0"].get(ControlKind.POWER_LIMIT) == before_w
        for control in (ControlKind.POWER_LIMIT, ControlKind.POWER_LIMIT_SHORT):
            bench.devices()["cpu0"].set(control, 30)
        later = bench.devices()["cpu0"]
        later.put_back(ControlKind.POWER_LIMIT, before_w)
        assert later.get(ControlKind.POWER_LIMIT) == before_w

    def test_a_limit_that_would_stall_the_machine_is_refused(self, tmp_path):
        cpu = Bench(tmp_path, XEON).devices()["cpu0"]
        with pytest.raises(OutOfRangeError, match="cpu0's power limit cannot be 20 W ") as refusal:
            cpu.set(ControlKind.POWER_LIMIT, 20)
        assert "37.5" in refusal.value.hint

    def test_limits_that_are_off_say_so(self, tmp_path):
        bench = Bench(tmp_path, XEON)
        (bench.tree.path / "intel-rapl:0/enabled").write_text("0\n")
        limit = bench.devices()["cpu0"].controls[ControlKind.POWER_LIMIT]
        assert isinstance(limit, Unavailable)
        assert limit.fix == f"echo 1 | sudo tee {bench.tree.path}/intel-rapl:0/enabled"

    def test_a_limit_that_was_not_set_is_an_error(self, tmp_path, monkeypatch):
        """Firmware can keep to its own without a word."""
        cpu = Bench(tmp_path, XEON).devices()["cpu0"]
        monkeypatch.setattr(powercap, "read_int", lambda _path: 150_000_000)
        with pytest.raises(DeviceError, match="was not set to 100: it is at 150 W"):
            cpu.set(ControlKind.POWER_LIMIT, 100)


class TestFaults:
    @pytest.mark.parametrize("text", ["", "garbage", "-5", "1.5", "9" * 5000, "²"])
    def test_garbage_is_a_gap_and_what_follows_is_exact(self, text, tmp_path):
        bench = Bench(tmp_path, XEON)
        device = bench.devices()["cpu0"]
        before = device.read(Quantity.ENERGY)
        bench.elapse(1)
        counter = bench.tree.path / "intel-rapl:0/energy_uj"
        counter.chmod(0o644)
        counter.write_text(text)
        for quantity in (Quantity.ENERGY, Quantity.POWER):
            assert isinstance(device.read(quantity), Unavailable)
        bench.elapse(1)
        step_j = device.read(Quantity.ENERGY).value - before.value
        assert step_j == pytest.approx(bench.tree.truth_j["cpu0"], abs=2e-6)

    def test_a_folder_that_vanishes_is_unavailable(self, tmp_path):
        bench = Bench(tmp_path, LAPTOP)
        devices = bench.devices()
        shutil.rmtree(tmp_path / "devices")
        for device in devices.values():
            for quantity in (Quantity.ENERGY, Quantity.POWER):
                assert isinstance(device.read(quantity), Unavailable)
            assert isinstance(device.get(ControlKind.POWER_LIMIT), Unavailable)
        with pytest.raises(DeviceError):
            devices["cpu0"].set(ControlKind.POWER_LIMIT, 40)

    @pytest.mark.parametrize("file", ["energy_uj", "max_energy_range_uj"])
    def test_a_cpu_whose_counter_lacks_a_file_is_modelled_and_says_why(self, file, tmp_path):
        bench = Bench(tmp_path, XEON)
        (bench.tree.path / "intel-rapl:0" / file).unlink()
        devices = bench.devices()
        assert file in devices["cpu0"].info.better.reason
        assert source(devices["cpu0"]) is Source.MODELLED
        assert source(devices["cpu1"]) is Source.SIMULATED
        assert devices["cpu1"].info.better is None

    def test_each_package_is_modelled_by_its_own_load(self, tmp_path):
        bench = Bench(tmp_path, XEON)
        unreadable(bench, 0)
        unreadable(bench, 1)
        devices = bench.devices()
        bench.elapse(10, [1.0, 0.25])
        loads = [devices[key].read(Quantity.LOAD).value for key in ("cpu0", "cpu1")]
        assert loads == pytest.approx([100, 25])

    def test_a_cpu_that_is_measured_tells_its_load_too(self, tmp_path):
        bench = Bench(tmp_path, XEON)
        devices = bench.devices()
        bench.elapse(10, [1.0, 0.25])
        loads = [devices[key].read(Quantity.LOAD).value for key in ("cpu0", "cpu1")]
        assert loads == pytest.approx([100, 25])
        assert source(devices["cpu0"]) is Source.SIMULATED
        assert Quantity.LOAD not in devices["dram0"].sensors

    def test_a_measured_cpu_without_a_count_of_busy_time_has_no_load(self, tmp_path):
        bench = Bench(tmp_path, XEON)
        (tmp_path / "proc/stat").unlink()
        cpu = bench.devices()["cpu0"]
        assert isinstance(cpu.sensors.get(Quantity.LOAD), Unavailable | None)
        assert source(cpu) is Source.SIMULATED

    def test_a_modelled_cpu_keeps_its_limits(self, tmp_path):
        bench = Bench(tmp_path, XEON)
        unreadable(bench, 0)
        cpu = bench.devices()["cpu0"]
        cpu.set(ControlKind.POWER_LIMIT, 100)
        assert cpu.get(ControlKind.POWER_LIMIT) == 100

    def test_without_a_model_the_reason_is_left(self, tmp_path):
        bench = Bench(tmp_path, XEON)
        unreadable(bench, 0)
        (tmp_path / "proc/stat").unlink()
        cpu = bench.devices()["cpu0"]
        assert "max_energy_range_uj" in cpu.read(Quantity.ENERGY).reason

    def test_without_a_range_a_wrap_could_not_be_undone(self, tmp_path):
        bench = Bench(tmp_path, XEON)
        (bench.tree.path / "intel-rapl:0/max_energy_range_uj").write_text("0\n")
        assert source(bench.devices()["cpu0"]) is Source.MODELLED

    def test_memory_of_which_one_counter_is_read_is_not_assumed_too(self, tmp_path):
        bench = Bench(tmp_path, XEON)
        (bench.tree.path / "intel-rapl:0:0/energy_uj").unlink()
        devices = bench.devices()
        assert isinstance(devices["dram0"].read(Quantity.ENERGY), Unavailable)
        assert source(devices["dram1"]) is Source.SIMULATED


def source(device):
    assert isinstance(device.read(Quantity.ENERGY), Reading)
    return device.sensors[Quantity.ENERGY].source


AS_A_USER = """
import json, os, sys
from joulewise.data import ControlKind, Quantity, Unavailable
from joulewise.devices import Options
from joulewise.devices.host import cpu, cpu_model, ram, rapl
from joulewise.errors import PermissionDeniedError
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
as_dict = lambda reading: vars(reading) if isinstance(reading, Unavailable) else reading._asdict()
options = Options(environ=dict(os.environ))
devices = [*cpu.find(options), *ram.find(options)]
answer = {
    d.info.key: {
        "energy": as_dict(d.read(Quantity.ENERGY)),
        "source": d.sensors[Quantity.ENERGY].source.value,
        "better": d.info.better and vars(d.info.better),
    }
    for d in devices
}
try:
    devices[0].set(ControlKind.POWER_LIMIT, 100)
except PermissionDeniedError as error:
    answer["set"] = [error.message, error.hint]
json.dump(answer, sys.stdout)
"""


class TestWithoutTheRight:
    @pytest.fixture
    def tree(self):
        """In a folder that any user may enter, which pytest's own are not."""
        with tempfile.TemporaryDirectory() as root:
            Path(root).chmod(0o755)
            tree = Bench(Path(root), XEON, readable=False).tree
            if os.geteuid() != 0:
                for path in tree.path.glob("*/energy_uj"):
                    path.chmod(0)
                for path in tree.path.glob("*/*_power_limit_uw"):
                    path.chmod(0o444)
            yield tree

    def as_a_user(self, tree):
        done = subprocess.run(
            [sys.executable, "-c", AS_A_USER],
            env=os.environ | tree.environ,
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout)

    def test_every_counter_names_the_command_and_the_command_works(self, tree):
        answer = self.as_a_user(tree)
        answer.pop("set")
        assert {key: device["source"] for key, device in answer.items()} == {
            "cpu0": "modelled",
            "cpu1": "modelled",
            "dram0": "assumed",
        }
        fixes = {device["better"]["fix"] for device in answer.values()}
        reasons = [device["better"]["reason"] for device in answer.values()]
        assert fixes == {f"sudo chmod a+r {tree.path}/*rapl*:*/*_uj"}
        assert all(re.search(r"root only .*until the next boot", reason) for reason in reasons)
        subprocess.run(fixes.pop().removeprefix("sudo "), shell=True, check=True)
        answer = self.as_a_user(tree)
        answer.pop("set")
        assert set(answer) == {"cpu0", "cpu1", "dram0", "dram1"}
        assert all(device["source"] == "simulated" for device in answer.values())
        assert all(device["better"] is None for device in answer.values())

    def test_a_limit_that_may_not_be_set_names_the_command(self, tree):
        path = tree.path / "intel-rapl:0/constraint_0_power_limit_uw"
        message, hint = self.as_a_user(tree)["set"]
        assert "writable by root only" in message
        assert hint == f"sudo chown $USER {path}"
