"""Simulated GPUs in this process, in a time of their own, for tests of what talks to NVML."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pynvml
import pytest

from joulewise.devices import Device, Options
from joulewise.devices.nvidia import find
from joulewise.devices.nvidia import gpu as device_module
from joulewise.devices.nvidia import nvml_library as session_module
from joulewise.simulate.boards import load_board, make_unit
from joulewise.simulate.model import Board
from joulewise.simulate.nvml import faults as faults_module
from joulewise.simulate.nvml.faults import NO_LATENCY
from joulewise.simulate.nvml.shared_memory import SharedGpuMemory, shim_path
from joulewise.simulate.timeline import PIECE, Timeline
from joulewise.units import NS_PER_S

POWER_W = 120.5
SM_MHZ, MEMORY_MHZ = 1005, 810
THROTTLE = 0x4 | 0x20
_HISTORY_S = 60


@dataclass
class Machine:
    """What the simulated GPUs share with NVML, and their clock, which stands until told to go."""

    shared: SharedGpuMemory
    now_ns: int

    def elapse(self, seconds: float) -> None:
        self.now_ns += round(seconds * NS_PER_S)
        self.shared.freeze(self.now_ns)

    def gpus(self, **environ: str) -> list[Device]:
        """What is found with this environment; every one of them must be closed."""
        found = find(Options(environ={"JOULEWISE_SIM": self.shared.path, **environ}))
        assert isinstance(found, list), found
        return found


@contextmanager
def simulated(
    monkeypatch: pytest.MonkeyPatch,
    *boards: str | Board,
    faults: str = "",
    folder: Path,
    as_root: bool = True,
) -> Iterator[Machine]:
    """A machine with exact sensors; its faults count from now. ``as_root``: it obeys any user."""
    units = [
        replace(make_unit(_without_noise(board), seed), gain=1.0)
        for seed, board in enumerate(boards)
    ]
    now_ns = time.monotonic_ns()
    shared = SharedGpuMemory.create(
        units,
        latency=NO_LATENCY,
        faults=faults_module.parse_faults(faults) if faults else (),
        start_ns=now_ns,
        folder=folder,
        as_root=as_root,
    )
    for gpu in range(len(units)):
        shared.publish(gpu, steady(now_ns - _HISTORY_S * NS_PER_S, 0.0, POWER_W))
    machine = Machine(shared, now_ns)
    machine.elapse(0)
    monkeypatch.setenv("JOULEWISE_SIM", shared.path)
    monkeypatch.setattr(device_module, "monotonic_ns", lambda: machine.now_ns)
    # LD_LIBRARY_PATH directs nvidia-ml-py to our library only from the start of a process.
    driver = ctypes.CDLL(str(shim_path()))
    monkeypatch.setattr(pynvml, "nvmlLib", driver)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.setattr(session_module, "_users", 0)
    try:
        yield machine
    finally:
        # A test that failed, or put another library in its place, must not keep it for the next.
        while driver.nvmlShutdown() == pynvml.NVML_SUCCESS:
            continue
        shared.close()


def _without_noise(board: str | Board) -> Board:
    board = load_board(board) if isinstance(board, str) else board
    return replace(board, sensor=replace(board.sensor, noise_w=0.0))


def steady(t_ns: int, energy_j: float, power_w: float) -> Timeline:
    """One power from ``t_ns`` on."""
    piece = (t_ns, energy_j, power_w, SM_MHZ, MEMORY_MHZ, 0.75, 0.25, 45.0, THROTTLE, 2)
    return Timeline(np.array([piece], PIECE), t_ns + 3600 * NS_PER_S)


def on(board: str, faults: str = ""):
    """Run the test on this board, with these faults."""
    return pytest.mark.parametrize("machine", [(board, faults)], indirect=True)
