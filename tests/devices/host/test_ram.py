from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.data import Quantity, Source, Unavailable
from joulewise.devices import Options
from joulewise.devices.host import ram
from joulewise.devices.host.ram import GIB_PER_MODULE, W_PER_MODULE
from joulewise.testing import DeviceConformance
from tests.helpers.powercap_tree import XEON, PowercapTree


def structure(kind: int, fields: bytes, texts: tuple[bytes, ...] = ()) -> bytes:
    body = struct.pack("<BBH", kind, 4 + len(fields), 0) + fields
    return body + (b"".join(text + b"\0" for text in texts) or b"\0") + b"\0"


def socket(size: int) -> bytes:
    """A memory device (type 17) of SMBIOS 2.1, whose size is the word at 0x0C."""
    fields = struct.pack("<HHHHHBBBBBH", 0, 0xFFFE, 64, 64, size, 9, 0, 1, 2, 26, 128)
    return structure(17, fields, (b"DIMM A1", b"BANK 0"))


class Host:
    def __init__(self, root, total="MemTotal:       65634464 kB", sockets=None):
        self.time_ns = 0
        (root / "meminfo").write_text(f"{total}\nMemFree: 1 kB\n")
        if sockets is not None:
            table = structure(0, bytes(20), (b"Maker",)) + b"".join(map(socket, sockets))
            (root / "DMI").write_bytes(table + structure(127, b""))
        self.options = Options(
            environ={
                "JOULEWISE_PROC": str(root),
                "JOULEWISE_DMI": str(root / "DMI"),
                "JOULEWISE_POWERCAP": str(root / "powercap"),
            },
            now_ns=lambda: self.time_ns,
        )

    def elapse(self, seconds):
        self.time_ns += round(seconds * 1e9)


class TestAssumedRam(DeviceConformance):
    @pytest.fixture
    def device(self, tmp_path):
        type(self).host = Host(tmp_path)
        (device,) = ram.find(self.host.options)
        return device

    def elapse(self, seconds):
        self.host.elapse(seconds)

    def now_ns(self):
        return self.host.time_ns


def modules(host) -> float:
    (device,) = ram.find(host.options)
    return device.read(Quantity.POWER).value / W_PER_MODULE


class TestModules:
    @pytest.mark.parametrize(
        ("sockets", "filled"),
        [
            ([16384, 16384, 0, 0], 2),
            ([0x7FFF] * 8, 8),  # 32 GiB and more stand elsewhere
            ([0xFFFF, 8192], 2),  # a module of unknown size is a module
        ],
    )
    def test_the_firmware_counts_the_modules(self, sockets, filled, tmp_path):
        assert modules(Host(tmp_path, sockets=sockets)) == filled

    @pytest.mark.parametrize(("gib", "expected"), [(8, 1), (16, 1), (64, 4), (512, 32)])
    def test_without_the_table_modules_are_assumed_to_be_of_one_size(self, gib, expected, tmp_path):
        host = Host(tmp_path, total=f"MemTotal:  {int(gib * 0.98 * 2**20)} kB")
        assert modules(host) == expected
        (device,) = ram.find(host.options)
        assert f"{GIB_PER_MODULE} GiB" in device.info.note

    @given(table=st.binary(max_size=300))
    def test_a_broken_table_never_raises(self, table, tmp_path_factory):
        root = tmp_path_factory.mktemp("host")
        host = Host(root)
        (root / "DMI").write_bytes(table)
        assert modules(host) >= 1

    def test_no_modules_in_the_table_means_that_it_does_not_know(self, tmp_path):
        assert modules(Host(tmp_path, sockets=[0, 0])) == 4


def test_energy_is_power_times_time_and_marked_as_assumed(tmp_path):
    host = Host(tmp_path, sockets=[8192] * 2)
    (device,) = ram.find(host.options)
    host.elapse(100)
    assert device.read(Quantity.ENERGY).value == pytest.approx(100 * 2 * W_PER_MODULE)
    assert {sensor.source for sensor in device.sensors.values()} == {Source.ASSUMED}
    assert "0.4 W" in device.sensors[Quantity.ENERGY].note


def test_memory_that_is_measured_is_not_assumed_too(tmp_path):
    assert ram.find(Options(environ=PowercapTree(tmp_path, XEON).environ)) == []


@pytest.mark.parametrize("total", ["", "MemTotal: lots"])
def test_memory_of_unknown_size_is_unavailable(total, tmp_path):
    devices = ram.find(Host(tmp_path, total=total).options)
    assert isinstance(devices, Unavailable)
    assert "meminfo" in devices.reason
