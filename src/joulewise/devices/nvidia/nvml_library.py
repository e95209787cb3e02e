"""NVML's initialisation, which all devices of this process share.

NVML counts its users itself, but a slow driver answers ``nvmlInit`` as slowly as any other call,
and one caller at a time: for eight GPUs, that would take longer than reading them.

Whether NVML's library is a real driver's or joulewise's simulated one, and what it permits.

What NVML tells of which GPU it is, beyond its UUID and its name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pynvml

from joulewise.data import Source, Unavailable
from joulewise.devices.cuda_visible import MigDevice
from joulewise.devices.device import by_root_or_the_service, for_root_only
from joulewise.devices.nvidia.sensor_tables import AMPERE, Generation

_lock = threading.Lock()
_users = 0


def acquire() -> None:
    """Initialise NVML for one more user. Raises NVMLError where that fails."""
    global _users  # noqa: PLW0603  # NVML is one per process
    with _lock:
        if _users == 0:
            pynvml.nvmlInit()
        _users += 1


def release() -> None:
    """One user less: the last one shuts NVML down."""
    global _users  # noqa: PLW0603
    with _lock:
        _users -= 1
        if _users == 0:
            with suppress(pynvml.NVMLError):  # the driver went first
                pynvml.nvmlShutdown()


SIMULATED_SYMBOL: Final = "joulewise_simulated"
"""Exported by the simulated ``libnvidia-ml.so.1`` (simulate/nvml/shim) and by no other."""
_PERMISSION_SYMBOL: Final = "joulewise_permits_setting"
"""A function of the simulated library that says whether this process may set limits and clocks."""


def reading_source() -> Source:
    """The source of every reading that nvidia-ml-py takes in this process.

    The library itself is asked, not the environment: a variable may be set while the real
    library is loaded, and the other way round.
    """
    simulated = hasattr(pynvml.nvmlLib, SIMULATED_SYMBOL)
    return Source.SIMULATED if simulated else Source.MEASURED


def setting_permission() -> bool | Unavailable:
    """True where the driver lets this process set limits and clocks, or why it does not.

    The simulated driver is asked. A real one cannot be asked without setting something, so there
    root counts as permitted.
    """
    permits_setting = getattr(pynvml.nvmlLib, _PERMISSION_SYMBOL, None)
    if permits_setting is None:
        return for_root_only()
    if permits_setting():
        return True
    return Unavailable(
        "the simulated driver lets only root turn it",
        f"start the simulation with `joulewise sim --as-root …`, or {by_root_or_the_service()}",
    )


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


def mig_slices(handle: Any) -> tuple[MigDevice, ...]:
    """The MIG devices that it is parted into; none where it is whole."""
    try:
        current, _pending = pynvml.nvmlDeviceGetMigMode(handle)
        places = pynvml.nvmlDeviceGetMaxMigDeviceCount(handle) if current else 0
    except pynvml.NVMLError:
        return ()
    found = (_slice(handle, place) for place in range(places))
    return tuple(part for part in found if part is not None)


def _slice(handle: Any, place: int) -> MigDevice | None:
    try:
        part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
        return MigDevice(
            pynvml.nvmlDeviceGetUUID(part),
            pynvml.nvmlDeviceGetGpuInstanceId(part),
            pynvml.nvmlDeviceGetComputeInstanceId(part),
        )
    except pynvml.NVMLError:
        return None
