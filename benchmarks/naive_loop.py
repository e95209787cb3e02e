"""How often a naive loop over eight simulated V100s comes round, beside the published figures.

    python benchmarks/naive_loop.py [--seconds 120]

The loop asks each GPU for utilisation, clocks, performance state, power, temperature, and PCIe
throughput both ways, and begins again at once. Grzelka measured 2.045 Hz with a standard
deviation of 0.317 Hz on a DGX-1. A second loop leaves the throughput out.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import subprocess
import sys
import time
from typing import Any

import pynvml as nvml
from helpers.peers import JOULEWISE

INSIDE = "--inside"


def main(options: argparse.Namespace) -> int:
    inside = [sys.executable, __file__, "--seconds", str(options.seconds), INSIDE]
    command = [JOULEWISE, "sim", "--gpu", "v100x8", "--workload", "resnet50", "--", *inside]
    return subprocess.run(command, check=False).returncode


def look(seconds: float) -> None:
    nvml.nvmlInit()
    gpus = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    show("published", 2.045, 0.317)
    show("with PCIe", *rates(gpus, seconds, pcie=True))
    show("without", *rates(gpus, min(seconds, 5.0), pcie=False))
    nvml.nvmlShutdown()


def rates(gpus: list[Any], seconds: float, *, pcie: bool) -> tuple[float, float]:
    """Mean and standard deviation, in Hz."""
    ends_s = [time.monotonic()]
    while ends_s[-1] < ends_s[0] + seconds:
        for gpu in gpus:
            ask(gpu, pcie=pcie)
        ends_s.append(time.monotonic())
    rate_hz = [1 / (end_s - start_s) for start_s, end_s in itertools.pairwise(ends_s)]
    return statistics.mean(rate_hz), statistics.stdev(rate_hz)


def ask(gpu: Any, *, pcie: bool) -> None:
    nvml.nvmlDeviceGetUtilizationRates(gpu)
    nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)
    nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM)
    nvml.nvmlDeviceGetPerformanceState(gpu)
    nvml.nvmlDeviceGetPowerUsage(gpu)
    nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)
    if pcie:
        nvml.nvmlDeviceGetPcieThroughput(gpu, nvml.NVML_PCIE_UTIL_TX_BYTES)
        nvml.nvmlDeviceGetPcieThroughput(gpu, nvml.NVML_PCIE_UTIL_RX_BYTES)


def show(what: str, mean_hz: float, sigma_hz: float) -> None:
    print(f"{what:<12}{mean_hz:8.3f} Hz, CV {sigma_hz / mean_hz:6.1%}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.inside:
        look(chosen.seconds)
    else:
        sys.exit(main(chosen))
