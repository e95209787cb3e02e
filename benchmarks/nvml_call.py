"""What an NVML call costs through the shim, with no latency added: 8 GPUs, microseconds.

Two figures a call: through nvidia-ml-py, as clients use it, and through bare ctypes, which is
nearly the shim alone (nvidia-ml-py asks twice for samples, and lists them). The limit is 20 us.

    .venv/bin/python benchmarks/nvml_call.py
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pynvml as nvml

from joulewise.simulate.boards import load_board, make_unit
from joulewise.simulate.nvml.faults import NO_LATENCY
from joulewise.simulate.nvml.shared_memory import SharedGpuMemory, shim_path
from joulewise.simulate.timeline import PIECE, Timeline

GPUS = 8
ROUNDS = 400
PIECES_PER_S = 500
HISTORY_S = 20

CALLS: dict[str, Callable[[Any], Any]] = {
    "PowerUsage": nvml.nvmlDeviceGetPowerUsage,
    "TotalEnergyConsumption": nvml.nvmlDeviceGetTotalEnergyConsumption,
    "UtilizationRates": nvml.nvmlDeviceGetUtilizationRates,
    "ClockInfo": lambda gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "Temperature": lambda gpu: nvml.nvmlDeviceGetTemperature(gpu, 0),
    "EnforcedPowerLimit": nvml.nvmlDeviceGetEnforcedPowerLimit,
    "MemoryInfo": nvml.nvmlDeviceGetMemoryInfo,
    "CurrentClocksThrottleReasons": nvml.nvmlDeviceGetCurrentClocksThrottleReasons,
    "PcieThroughput": lambda gpu: nvml.nvmlDeviceGetPcieThroughput(gpu, 0),
    "FieldValues": lambda gpu: nvml.nvmlDeviceGetFieldValues(gpu, [185, 186, 83]),
    "Samples": lambda gpu: nvml.nvmlDeviceGetSamples(gpu, nvml.NVML_TOTAL_POWER_SAMPLES, 0),
}
FIRST_ARGUMENTS = {"ClockInfo": (1,), "Temperature": (0,), "PcieThroughput": (0,)}


def main() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        name = Path(folder).name
        shared = _publish(Path(folder), name)
        engine = socket.socket(socket.AF_UNIX)
        engine.bind(f"\0{name}")
        engine.listen()
        threading.Thread(target=_welcome, args=(engine,), daemon=True).start()
        os.environ["JOULEWISE_SIM"] = shared.path
        ctypes.CDLL(str(shim_path()))  # found again by its name, as on LD_LIBRARY_PATH
        nvml.nvmlInit()
        gpus = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(GPUS)]
        print(f"{'us a call':<30}{'nvidia-ml-py':^27}{'ctypes':^27}")
        print(f"{'':<30}" + f"{'min':>9}{'median':>9}{'p99':>9}" * 2)
        worst = 0.0
        for name, call in CALLS.items():
            python, bare = _time(call, gpus), _bare(name, gpus)
            worst = max(worst, bare[1])
            print(f"{name:<30}" + "".join(f"{us:9.2f}" for us in (*python, *bare)))
        nvml.nvmlShutdown()
        shared.close()
    print(f"worst median: {worst:.2f} us, limit 20 us")
    sys.exit(int(worst > 20))


def _welcome(engine: socket.socket) -> None:
    """All that an engine says to a client that only looks; every call looks for the engine."""
    client, _ = engine.accept()
    client.sendall(b"ok\n")
    client.recv(64)
    client.recv(64)  # until it hangs up


def _publish(folder: Path, socket_name: str) -> SharedGpuMemory:
    units = [make_unit(load_board("v100"), seed) for seed in range(GPUS)]
    now_ns = time.monotonic_ns()
    shared = SharedGpuMemory.create(
        units,
        latency=NO_LATENCY,
        faults=(),
        start_ns=now_ns,
        socket_name=socket_name,
        folder=folder,
    )
    pieces = np.zeros(PIECES_PER_S * HISTORY_S, PIECE)
    pieces["t_ns"] = now_ns + np.linspace(-HISTORY_S, 0, len(pieces)) * 1e9
    pieces["power_w"], pieces["busy"] = 200.0, 0.5
    for gpu in range(GPUS):
        shared.publish(gpu, Timeline(pieces, now_ns))
    return shared


def _bare(name: str, gpus: list[Any]) -> tuple[float, float, float]:
    function = getattr(nvml.nvmlLib, f"nvmlDeviceGet{name}")
    room = ctypes.create_string_buffer(4096)
    if name == "Samples":
        kind, count, since = ctypes.c_uint(), ctypes.c_uint(120), ctypes.c_ulonglong(0)
        references = (ctypes.byref(kind), ctypes.byref(count), room)
        return _time(lambda gpu: function(gpu, 0, since, *references), gpus)
    if name == "FieldValues":
        fields = (nvml.c_nvmlFieldValue_t * 3)()
        for field, number in zip(fields, (185, 186, 83), strict=True):
            field.fieldId = number
        return _time(lambda gpu: function(gpu, 3, fields), gpus)
    arguments = (*FIRST_ARGUMENTS.get(name, ()), room)
    return _time(lambda gpu: function(gpu, *arguments), gpus)


def _time(call: Callable[[Any], Any], gpus: list[Any]) -> tuple[float, float, float]:
    took_ns = []
    for _ in range(ROUNDS):
        for gpu in gpus:
            before_ns = time.perf_counter_ns()
            call(gpu)
            took_ns.append(time.perf_counter_ns() - before_ns)
    return tuple(np.percentile(took_ns, [0, 50, 99]) / 1000)


if __name__ == "__main__":
    main()
