"""The table that ``nvidia-smi`` draws when it is asked for nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import pynvml as nvml

from joulewise.simulate.nvml.smi_fields import (
    GPU_FIELDS,
    NOT_AVAILABLE,
    ask,
    compute_mode,
    process_memory_mib,
    process_name,
)

_LEFT, _MIDDLE, _RIGHT = 41, 24, 22
_WIDTH = _LEFT + _MIDDLE + _RIGHT + 2


def table(handles: Sequence[Any]) -> Iterator[str]:
    """Line by line: who is installed, each GPU, each process."""
    version = nvml.nvmlSystemGetDriverVersion()
    cuda = nvml.nvmlSystemGetCudaDriverVersion()
    head = f" NVIDIA-SMI {version:<21} Driver Version: {version:<14} "
    head += f"CUDA Version: {cuda // 1000}.{cuda % 1000 // 10}"
    rule = f"+{'-' * _LEFT}+{'-' * _MIDDLE}+{'-' * _RIGHT}+"
    yield f"{datetime.now().astimezone():%a %b %d %H:%M:%S %Y}"
    yield f"+{'-' * _WIDTH}+"
    yield f"|{head:<{_WIDTH}}|"
    yield rule
    yield _row(" GPU  Name", "Persistence-M ", " Bus-Id", "Disp.A ", "Volatile Uncorr. ECC ")
    yield _row(" Fan  Temp   Perf", "Pwr:Usage/Cap ", "", "Memory-Usage ", "GPU-Util  Compute M. ")
    yield f"|{'=' * _LEFT}+{'=' * _MIDDLE}+{'=' * _RIGHT}|"
    for handle in handles:
        yield from _gpu(handle)
        yield rule
    yield ""
    yield from _processes(handles)


def _gpu(handle: Any) -> Iterator[str]:
    value = {name: ask(GPU_FIELDS[name][1], handle) for name in _SHOWN}
    fan = "N/A" if value["fan.speed"] == NOT_AVAILABLE else f"{value['fan.speed']}%"
    persistence = "On" if value["persistence_mode"] == "Enabled" else "Off"
    ecc = value["ecc.errors.uncorrected.volatile.total"].strip("[]")
    draw_w, cap_w = (round(float(value[name])) for name in ("power.draw", "power.limit"))
    yield _row(
        f" {value['index']:>3}  {value['name']:.26}",
        f"{persistence}  ",
        f"   {value['pci.bus_id']}",
        "Off ",
        f"{ecc} ",
    )
    yield _row(
        f" {fan:<4} {value['temperature.gpu']:>3}C    {value['pstate']}",
        f"{draw_w:>4}W / {cap_w:>4}W ",
        "",
        f"{value['memory.used']}MiB / {value['memory.total']:>6}MiB ",
        f"{value['utilization.gpu']:>3}% {compute_mode(handle):>12} ",
    )


_SHOWN = (
    "index", "name", "persistence_mode", "pci.bus_id", "fan.speed", "temperature.gpu", "pstate",
    "power.draw", "power.limit", "memory.used", "memory.total", "utilization.gpu",
    "ecc.errors.uncorrected.volatile.total",
)  # fmt: skip


def _row(left: str, left_end: str, middle: str, middle_end: str, right: str) -> str:
    return (
        f"|{left:<{_LEFT - len(left_end)}}{left_end}"
        f"|{middle:<{_MIDDLE - len(middle_end)}}{middle_end}|{right:>{_RIGHT}}|"
    )


def _processes(handles: Sequence[Any]) -> Iterator[str]:
    rows = [
        f"  {nvml.nvmlDeviceGetIndex(handle):>3}   N/A  N/A {process.pid:>13}      C   "
        f"{process_name(process):<35.35} {_memory(process):>9}"
        for handle in handles
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    ]
    yield f"+{'-' * _WIDTH}+"
    yield f"|{' Processes:':<{_WIDTH}}|"
    head = "  GPU   GI   CI           PID   Type   Process name                       GPU Memory"
    yield f"|{head:<{_WIDTH}}|"
    yield f"|{'=' * _WIDTH}|"
    for row in rows or ["  No running processes found"]:
        yield f"|{row:<{_WIDTH}}|"
    yield f"+{'-' * _WIDTH}+"


def _memory(process: Any) -> str:
    used_mib = process_memory_mib(process)
    return "N/A" if used_mib == NOT_AVAILABLE else f"{used_mib}MiB"
