"""NVIDIA GPUs over NVML. nvidia-ml-py is loaded when they are looked for, not before."""

from __future__ import annotations

from joulewise.data import Unavailable
from joulewise.devices.nvidia.throttle import throttle_names
from joulewise.devices.options import Options
from joulewise.devices.protocol import Device

__all__ = ["count", "find", "throttle_names"]


def find(options: Options) -> list[Device] | Unavailable:
    """Every NVIDIA GPU that CUDA would see here, or why there is none. Never raises."""
    from joulewise.devices.nvidia.discovery import discover_gpus

    return discover_gpus(options)


def count() -> int:
    """How many GPUs NVML shows, hidden from CUDA or not. Never raises."""
    from joulewise.devices.nvidia.discovery import count_gpus

    return count_gpus()
