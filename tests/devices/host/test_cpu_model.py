from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.data import Quantity, Reading, Source, Unavailable
from joulewise.devices import Options
from joulewise.devices.host import cpu
from joulewise.devices.host.cpu_model import BUSY_SHARE, IDLE_SHARE, UNKNOWN_W_PER_CORE
from joulewise.testing import DeviceConformance

HZ = os.sysconf("SC_CLK_TCK")


class Host:
    """A /proc whose time passes, and whose CPUs work, only when a test says so."""

    def __init__(self, root: Path, name="AMD EPYC 7742 64-Core Processor", **how):
        self.root = root
        self.time_ns = 3_000_000_000
        self.sockets = how.get("sockets", 1)
        self.threads = how.get("threads", 4)
        flags = "fpu hypervisor sse" if how.get("virtual") else "fpu sse"
        cpus = range(self.sockets * self.threads)
        (root / "proc").mkdir(exist_ok=True)
        (root / "proc/cpuinfo").write_text(
            "\n".join(
                f"processor\t: {i}\nvendor_id\t: AuthenticAMD\nmodel name\t: {name}\n"
                f"physical id\t: {i // self.threads}\ncore id\t\t: {i // 2}\nflags\t\t: {flags}\n"
                for i in cpus
            )
        )
        self.ticks = {i: [1000 + i, 5, 300, 90_000, 40, 3, 2, 77, 0, 0] for i in cpus}
        self.write()
        self.options = Options(
            environ={"JOULEWISE_PROC": str(root / "proc"), "JOULEWISE_POWERCAP": str(root)},
            now_ns=lambda: self.time_ns,
            sleep=lambda seconds: self.elapse(seconds, 0.5),
        )

    def elapse(self, seconds: float, load: float) -> None:
        self.time_ns += round(seconds * 1e9)
        total = round(seconds * HZ)
        for ticks in self.ticks.values():
            ticks[0] += round(total * load)
            ticks[3] += total - round(total * load)
            ticks[7] += 9  # stolen by the host: no work of ours
        self.write()

    def write(self) -> None:
        lines = (f"cpu{i} {' '.join(map(str, t))}\n" for i, t in self.ticks.items())
        (self.root / "proc/stat").write_text(f"cpu  1 2 3\n{''.join(lines)}intr 4\nctxt 5\n")

    def find(self, **changes):
        devices = cpu.find(replace(self.options, **changes))
        assert isinstance(devices, list), devices
        return devices


class TestModelledCpu(DeviceConformance):
    @pytest.fixture
    def device(self, tmp_path):
        type(self).host = Host(tmp_path)
        return self.host.find()[0]

    def elapse(self, seconds):
        self.host.elapse(seconds, 0.5)

    def now_ns(self):
        return self.host.time_ns


def tdp_w(device) -> float:
    """What the model takes, seen from outside: idle power over its share."""
    return device.read(Quantity.POWER).value / IDLE_SHARE


def idle(host, **changes):
    devices = host.find(**changes)
    host.elapse(10, 0.0)
    return devices


class TestEnergy:
    @settings(max_examples=50, deadline=None)
    @given(
        steps=st.lists(st.tuples(st.integers(1, 10_000), st.floats(0, 1)), min_size=1, max_size=8),
        read_each=st.booleans(),
    )
    def test_it_is_exact_however_rarely_it_is_read(self, steps, read_each, tmp_path_factory):
        host = Host(tmp_path_factory.mktemp("host"))
        (device,) = host.find()
        busy_s = 0.0
        for ticks, load in steps:
            host.elapse(ticks / HZ, load)
            busy_s += round(ticks * load) / HZ
            if read_each:
                device.read(Quantity.ENERGY)
        wall_s = sum(ticks for ticks, _ in steps) / HZ
        expected_j = 225 * (IDLE_SHARE * wall_s + BUSY_SHARE * busy_s)
        assert device.read(Quantity.ENERGY).value == pytest.approx(expected_j)

    def test_a_gap_in_the_file_loses_nothing(self, tmp_path):
        host = Host(tmp_path)
        (device,) = host.find()
        host.elapse(1, 1.0)
        (tmp_path / "proc/stat").write_text("cpu0 garbage\n")
        assert isinstance(device.read(Quantity.ENERGY), Unavailable)
        (tmp_path / "proc/stat").unlink()
        assert isinstance(device.read(Quantity.POWER), Unavailable)
        host.elapse(1, 1.0)
        expected_j = 225 * 2 * (IDLE_SHARE + BUSY_SHARE)
        assert device.read(Quantity.ENERGY).value == pytest.approx(expected_j)

    def test_a_cpu_that_comes_and_goes_does_not_count_backwards(self, tmp_path):
        host = Host(tmp_path, threads=2)
        (device,) = host.find()
        away = host.ticks.pop(1)
        host.elapse(1, 1.0)
        before = device.read(Quantity.ENERGY).value
        assert before == pytest.approx(225 * (IDLE_SHARE + BUSY_SHARE / 2))
        host.ticks[1] = [0] * len(away)
        host.elapse(1, 0.0)
        after = device.read(Quantity.ENERGY).value
        assert after - before == pytest.approx(225 * IDLE_SHARE)

    def test_power_and_load_are_of_the_last_stretch(self, tmp_path):
        host = Host(tmp_path)
        (device,) = host.find()
        host.elapse(60, 0.0)
        device.read(Quantity.ENERGY)
        host.elapse(2, 0.8)
        assert device.read(Quantity.POWER).value == pytest.approx(
            225 * (IDLE_SHARE + BUSY_SHARE * 0.8)
        )
        assert device.read(Quantity.LOAD).value == pytest.approx(80)

    def test_it_is_marked_as_modelled_and_states_its_error(self, tmp_path):
        (device,) = Host(tmp_path).find()
        sensor = device.sensors[Quantity.ENERGY]
        assert sensor.source is Source.MODELLED
        assert "factor of 2" in sensor.note
        assert "EPYC 7742" in sensor.note


class TestBetter:
    @pytest.mark.parametrize(("virtual", "fix"), [(False, "modprobe intel_rapl_msr"), (True, "")])
    def test_it_says_how_to_be_measured_where_that_can_be(self, virtual, fix, tmp_path):
        (device,) = Host(tmp_path, virtual=virtual).find()
        assert "RAPL" in device.info.better.reason
        assert device.info.better.fix.removeprefix("sudo ") == fix

    def test_a_cpu_of_another_kind_has_no_such_module(self, tmp_path):
        host = Host(tmp_path)
        (tmp_path / "proc/cpuinfo").write_text("processor : 0\nCPU implementer : 0x41\n")
        (device,) = host.find()
        assert device.info.better.fix == ""


class TestTdp:
    @pytest.mark.parametrize(
        ("name", "watts"),
        [
            ("AMD EPYC 7742 64-Core Processor", 225),
            ("Intel(R) Xeon(R) CPU E5-2620 v3 @ 2.40GHz", 85),
            ("Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz", 150),
            ("Intel(R) Xeon(R) Gold 6248R CPU @ 3.00GHz", 205),
            ("Intel(R) Xeon(R) Platinum 8480+", 350),
            ("13th Gen Intel(R) Core(TM) i7-13700K", 125),
            ("AMD Ryzen 9 5950X 16-Core Processor", 105),
            ("AMD Ryzen Threadripper PRO 5975WX 32-Cores", 280),
        ],
    )
    def test_names_as_the_kernel_writes_them(self, name, watts, tmp_path):
        (device,) = idle(Host(tmp_path, name))
        assert tdp_w(device) == pytest.approx(watts)

    def test_each_package_is_a_device(self, tmp_path):
        devices = idle(Host(tmp_path, sockets=2))
        assert [device.info.key for device in devices] == ["cpu0", "cpu1"]
        assert [tdp_w(device) for device in devices] == pytest.approx([225, 225])

    def test_a_virtual_machine_has_its_threads_of_the_package(self, tmp_path):
        (device,) = idle(Host(tmp_path, sockets=2, threads=4, virtual=True))
        assert tdp_w(device) == pytest.approx(225 * 8 / 128)
        assert "8 of 128 threads" in device.sensors[Quantity.POWER].note

    def test_an_unknown_cpu_is_assumed_by_its_cores_and_says_so(self, tmp_path):
        (device,) = idle(Host(tmp_path, "AMD EPYC 7742000 Processor", threads=8))
        assert tdp_w(device) == pytest.approx(4 * UNKNOWN_W_PER_CORE)
        assert "assumed for each of 4 cores" in device.sensors[Quantity.POWER].note

    def test_an_unknown_cpu_of_a_virtual_machine_is_two_threads_a_core(self, tmp_path):
        (device,) = idle(Host(tmp_path, "AMD EPYC", sockets=6, threads=1, virtual=True))
        assert tdp_w(device) == pytest.approx(3 * UNKNOWN_W_PER_CORE)

    def test_without_cpuinfo_the_cpus_are_those_that_work(self, tmp_path):
        host = Host(tmp_path, threads=3)
        (tmp_path / "proc/cpuinfo").write_text("Hardware : some board\n")
        (device,) = idle(host)
        assert tdp_w(device) == pytest.approx(3 * UNKNOWN_W_PER_CORE)

    def test_what_is_given_wins_and_an_option_over_the_environment(self, tmp_path):
        host = Host(tmp_path)
        environ = {**host.options.environ, "JOULEWISE_CPU_TDP": "65"}
        (device,) = idle(host, environ=environ)
        assert tdp_w(device) == pytest.approx(65)
        (device,) = idle(host, environ=environ, cpu_tdp_w=95)
        assert tdp_w(device) == pytest.approx(95)

    @pytest.mark.parametrize("text", ["much", "-5", "0", "nan", "inf"])
    def test_an_impossible_tdp_is_reported(self, text, tmp_path):
        host = Host(tmp_path)
        environ = {**host.options.environ, "JOULEWISE_CPU_TDP": text}
        refusal = cpu.find(replace(host.options, environ=environ))
        assert isinstance(refusal, Unavailable)
        assert text in refusal.reason

    def test_a_machine_without_visible_cpus_is_unavailable(self, tmp_path):
        options = Options(environ={"JOULEWISE_PROC": str(tmp_path), "JOULEWISE_POWERCAP": "/no"})
        assert isinstance(cpu.find(options), Unavailable)


def test_this_machine_has_a_cpu_that_draws_power():
    environ = {"JOULEWISE_POWERCAP": "/nowhere"}
    devices = cpu.find(Options(environ=environ))
    assert isinstance(devices, list)
    assert all(isinstance(device.read(Quantity.POWER), Reading) for device in devices)
