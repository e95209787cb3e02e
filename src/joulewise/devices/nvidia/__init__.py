"""NVIDIA GPUs over NVML. nvidia-ml-py is loaded when they are looked for, not before."""

from __future__ import annotations

from joulewise.data import Source, Unavailable
from joulewise.data.throttling import throttle_names
from joulewise.devices.device import Device
from joulewise.devices.options import Options

__all__ = ["find", "find_and_count", "is_simulated", "throttle_names", "visible_keys"]


def find(options: Options) -> list[Device] | Unavailable:
    """Every NVIDIA GPU that CUDA would see here, or why there is none. Never raises."""
    return find_and_count(options)[0]


def find_and_count(options: Options) -> tuple[list[Device] | Unavailable, int]:
    """The same, and how many GPUs NVML shows, hidden from CUDA or not."""
    from joulewise.devices.nvidia.discovery import discover_and_count

    return discover_and_count(options)


def visible_keys(options: Options) -> tuple[set[str], int]:
    """The keys of the GPUs that CUDA would see, and how many NVML shows, hidden or not.

    None where NVML cannot be asked.
    """
    from joulewise.devices.nvidia.discovery import visible_keys as find_keys

    return find_keys(options)


def is_simulated() -> bool:
    """Whether the driver library that was loaded, if any, is joulewise's simulated one."""
    from joulewise.devices.nvidia.nvml_library import reading_source

    return reading_source() is Source.SIMULATED
