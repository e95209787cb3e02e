"""What NVML tells of which GPU it is, beyond its UUID and its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml

from joulewise.devices.nvidia.generations import AMPERE, Generation
from joulewise.devices.visible import Slice


def generation(handle: Any, on_answer: Callable[[], None]) -> Generation:
    """Raises NVMLError. The capability is asked for only where it parts a generation."""
    architecture = pynvml.nvmlDeviceGetArchitecture(handle)
    on_answer()
    if architecture != AMPERE:
        return Generation(architecture)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    on_answer()
    return Generation(architecture, (major, minor))


def memory_b(handle: Any) -> int | None:
    """How much memory it has; None where it does not tell."""
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError:  # not every GPU tells, such as one with memory of the host's
        return None


def speed(handle: Any) -> float:
    """Cores times their highest clock, to compare GPUs by; 0 where it does not tell."""
    try:
        cores = pynvml.nvmlDeviceGetNumGpuCores(handle)
        return float(cores * pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM))
    except pynvml.NVMLError:
        return 0.0


def mig_slices(handle: Any) -> tuple[Slice, ...]:
    """The MIG devices that it is parted into; none where it is whole."""
    try:
        current, _pending = pynvml.nvmlDeviceGetMigMode(handle)
        places = pynvml.nvmlDeviceGetMaxMigDeviceCount(handle) if current else 0
    except pynvml.NVMLError:
        return ()
    found = (_slice(handle, place) for place in range(places))
    return tuple(part for part in found if part is not None)


def _slice(handle: Any, place: int) -> Slice | None:
    try:
        part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
        return Slice(
            pynvml.nvmlDeviceGetUUID(part),
            pynvml.nvmlDeviceGetGpuInstanceId(part),
            pynvml.nvmlDeviceGetComputeInstanceId(part),
        )
    except pynvml.NVMLError:
        return None
