"""A GPU behind the simulated NVML, and AMD's behind an amdsmi that is written from its docs.

`simulated_nvml.on` says which NVIDIA GPU, and what is wrong with it; ``install`` takes AMD's.
"""

import sys

import pytest

from joulewise.devices import Options, amd
from joulewise.devices.amd.amdsmi_library import Library
from joulewise.testing import ToyClock
from tests.helpers.documented_amdsmi import FakeAmdSmi
from tests.helpers.nvml_devices import simulated


@pytest.fixture
def machine(request, monkeypatch, tmp_path):
    board, faults = getattr(request, "param", ("v100", ""))
    with simulated(monkeypatch, board, faults=faults, folder=tmp_path) as machine:
        yield machine


@pytest.fixture
def device(machine):
    (device,) = machine.gpus()
    yield device
    device.close()


@pytest.fixture
def clock():
    return ToyClock()


@pytest.fixture
def install(monkeypatch, clock):
    monkeypatch.setattr(Library, "_users", 0)
    monkeypatch.setattr("os.geteuid", lambda: 0)

    def install(*boards):
        fake = FakeAmdSmi(*boards, now_ns=lambda: clock.now_ns)
        monkeypatch.setitem(sys.modules, "amdsmi", fake)
        return fake

    return install


@pytest.fixture
def find(clock):
    def find(**environ):
        return amd.find(Options(environ=environ, now_ns=lambda: clock.now_ns, sleep=clock.elapse))

    return find
