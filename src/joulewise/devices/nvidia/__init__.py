"""NVIDIA GPUs over NVML. nvidia-ml-py is loaded only when they are searched for.

- ``discovery``: finds and opens GPUs, each in a thread of its own
- ``gpu``: one GPU; ``sensors``: its readings; ``controls``: its power limit and clocks
- ``power_scopes``: whether its power and energy cover the GPU or a superchip's module
- ``sensor_tables``: how often each generation updates its readings
- ``nvml_library``: NVML's initialisation, and what its error codes mean
- ``throttling``: whether a power limit has an effect
"""

from __future__ import annotations

from joulewise.data import Source, Unavailable
from joulewise.data.devices import throttle_names
from joulewise.devices.device import Device, Options

__all__ = ["find", "find_and_count", "is_simulated", "throttle_names", "visible_keys"]


def find(options: Options) -> list[Device] | Unavailable:
    """Every NVIDIA GPU that CUDA would see, or why there is none. Never raises."""
    return find_and_count(options)[0]


def find_and_count(options: Options) -> tuple[list[Device] | Unavailable, int]:
    """The same, and the number of GPUs that NVML shows, hidden from CUDA or not."""
    from joulewise.devices.nvidia.discovery import discover_and_count

    return discover_and_count(options)


def visible_keys(options: Options) -> tuple[set[str], int]:
    """The keys of the GPUs that CUDA would see, and the number that NVML shows, hidden or not.

    No keys, and 0, where NVML does not work.
    """
    from joulewise.devices.nvidia.discovery import visible_keys as find_keys

    return find_keys(options)


def is_simulated() -> bool:
    """Whether the driver library that was loaded, if any, is joulewise's simulated one."""
    from joulewise.devices.nvidia.nvml_library import reading_source

    return reading_source() is Source.SIMULATED
