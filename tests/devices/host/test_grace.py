"""NVIDIA Grace CPUs, by the power meters of their firmware."""

import pytest

from joulewise.data import Quantity, Reading, Source, Unavailable
from joulewise.devices import Options
from joulewise.devices.host import cpu
from joulewise.devices.host.cpu_model import read_cpuinfo
from joulewise.devices.host.grace import GraceCpu, has_grace
from joulewise.devices.host.powercap import SIMULATED_FILE
from joulewise.testing import DeviceConformance

SOCKETS_UW = {0: 150_000_000, 1: 95_500_000}
ARM = "processor\t: {0}\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n"


def write_meter(hwmon, number, named, power_uw):
    folder = hwmon / f"hwmon{number}" / "device"
    folder.mkdir(parents=True)
    (folder / "power1_oem_info").write_text(f"{named}\n")
    (folder / "power1_average").write_text(f"{power_uw}\n")
    (folder / "power1_average_interval").write_text("50\n")
    return folder


@pytest.fixture
def options(tmp_path):
    """A node with two Grace CPUs of two cores, whose packages have odd numbers, as on ARM."""
    hwmon, proc, cpus = tmp_path / "hwmon", tmp_path / "proc", tmp_path / "cpus"
    for socket, power_uw in SOCKETS_UW.items():
        write_meter(hwmon, 4 * socket, f"Module Power Socket {socket}", 5 * power_uw)
        write_meter(hwmon, 4 * socket + 1, f"Grace Power Socket {socket}", power_uw)
        write_meter(hwmon, 4 * socket + 2, f"CPU Power Socket {socket}", power_uw // 2)
        write_meter(hwmon, 4 * socket + 3, f"SysIO Power Socket {socket}", power_uw // 5)
    proc.mkdir()
    (proc / "cpuinfo").write_text("\n".join(ARM.format(number) for number in range(4)))
    (proc / "stat").write_text("".join(f"cpu{number} 1 1 1 1 1 1 1\n" for number in range(4)))
    for number in range(4):
        topology = cpus / f"cpu{number}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{36 + 256 * (number // 2)}\n")
    return Options(
        environ={
            "JOULEWISE_HWMON": str(hwmon),
            "JOULEWISE_PROC": str(proc),
            "JOULEWISE_CPUS": str(cpus),
            "JOULEWISE_POWERCAP": str(tmp_path / "none"),
        },
        now_ns=lambda: 5,
        sleep=lambda _: None,
    )


def test_packages_that_only_the_topology_has_are_counted_from_0(options):
    info = read_cpuinfo(options.proc, options.cpus)
    assert info.packages == {0: (0, 1), 1: (2, 3)}
    assert info.name == "Arm Neoverse V2"


def test_each_socket_is_a_cpu_with_its_memory(options):
    devices = cpu.find(options)
    assert [device.info.key for device in devices] == ["cpu0", "cpu1"]
    for socket, device in enumerate(devices):
        assert isinstance(device, GraceCpu)
        assert device.read(Quantity.POWER) == Reading(SOCKETS_UW[socket] / 1e6, 5)
        assert device.sensors[Quantity.POWER].source is Source.MEASURED
        assert device.sensors[Quantity.POWER].window_s == 0.05
        assert {f"dram{socket}", "dram0"} == set(device.info.contains)
        assert isinstance(device.read(Quantity.ENERGY), Unavailable)


def test_a_simulated_meter_says_so(options):
    (options.hwmon / SIMULATED_FILE).write_text("1\n")
    first, _ = cpu.find(options)
    assert first.sensors[Quantity.POWER].source is Source.SIMULATED


def test_a_meter_that_falls_silent_is_a_gap(options):
    first, _ = cpu.find(options)
    meter = options.hwmon / "hwmon1" / "device" / "power1_average"
    meter.write_text("0\n")
    assert isinstance(first.read(Quantity.POWER), Unavailable)
    meter.unlink()
    assert isinstance(first.read(Quantity.POWER), Unavailable)


def test_without_its_meters_a_grace_is_modelled(options, tmp_path):
    environ = {**options.environ, "JOULEWISE_HWMON": str(tmp_path / "empty")}
    devices = cpu.find(Options(environ=environ))
    assert {device.sensors[Quantity.POWER].source for device in devices} == {Source.MODELLED}


class TestConformance(DeviceConformance):
    @pytest.fixture
    def device(self, options):
        device, _ = cpu.find(Options(environ=options.environ))
        yield device
        device.close()


def test_a_grace_is_known_by_its_cores_or_by_its_meters(options, tmp_path):
    assert has_grace(options)
    hidden = {**options.environ, "JOULEWISE_HWMON": str(tmp_path / "none")}
    assert has_grace(Options(environ=hidden))
    (options.proc / "cpuinfo").write_text("processor\t: 0\nvendor_id\t: AuthenticAMD\n")
    assert has_grace(options)
    assert not has_grace(Options(environ=hidden))
