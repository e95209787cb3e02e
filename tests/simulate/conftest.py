"""The machine of most tests here: four boards behind the simulated NVML."""

import pynvml as nvml
import pytest

from tests.helpers.nvml_on_manual_clock import simulated


@pytest.fixture
def machine(monkeypatch, tmp_path):
    with simulated(monkeypatch, tmp_path, "v100", "a100", "rtx6000", "laptop") as machine:
        yield machine


@pytest.fixture
def gpu(machine):  # noqa: ARG001
    return nvml.nvmlDeviceGetHandleByIndex(0)
