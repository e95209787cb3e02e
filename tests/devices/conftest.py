"""A GPU behind the simulated NVML; `simulated_nvml.on` says which, and what is wrong with it."""

import pytest
from simulated_nvml import simulated


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
