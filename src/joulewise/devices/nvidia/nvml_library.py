"""NVML's initialisation, which all devices of this process share, and properties of a GPU.

NVML counts its users itself, but a slow driver answers ``nvmlInit`` as slowly as any other call,
and one caller at a time: for eight GPUs, that would take longer than reading them. So the users are
counted here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import pynvml

from joulewise.data import Source, Unavailable
from joulewise.devices.cuda_visible import MigDevice
from joulewise.devices.device import permission_hint, root_permission
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
    """End one use of NVML; the last one shuts it down."""
    global _users  # noqa: PLW0603
    with _lock:
        _users -= 1
        if _users == 0:
            with suppress(pynvml.NVMLError):  # the driver went first
                pynvml.nvmlShutdown()


@contextmanager
def opened() -> Iterator[None]:
    """NVML, initialised for the time of the block. Raises NVMLError where that fails."""
    acquire()
    try:
        yield
    finally:
        release()


SIMULATED_SYMBOL: Final = "joulewise_simulated"
"""Exported by the simulated ``libnvidia-ml.so.1`` (simulate/nvml/shim) and by no other."""
_PERMISSION_SYMBOL: Final = "joulewise_permits_setting"
"""A function of the simulated library that says whether this process may set limits and clocks."""


def reading_source() -> Source:
    """The source of every reading that nvidia-ml-py takes in this process.

    The library itself decides, not the environment: a variable may be set while the real library
    is loaded, and the other way round.
    """
    simulated = hasattr(pynvml.nvmlLib, SIMULATED_SYMBOL)
    return Source.SIMULATED if simulated else Source.MEASURED


def setting_permission() -> bool | Unavailable:
    """True where the driver lets this process set limits and clocks, or why it does not.

    The simulated driver answers that. A real one cannot be asked without setting something, so
    there root counts as permitted.
    """
    permits_setting = getattr(pynvml.nvmlLib, _PERMISSION_SYMBOL, None)
    if permits_setting is None:
        return root_permission()
    if permits_setting():
        return True
    return Unavailable(
        "the simulated driver lets only root set it",
        f"start the simulation with `joulewise sim --as-root …`, or {permission_hint()}",
    )


def generation(handle: Any, on_answer: Callable[[], None]) -> Generation:
    """The generation of a GPU. Raises NVMLError.

    The capability is read only for Ampere, where it distinguishes the GA100.
    """
    architecture = pynvml.nvmlDeviceGetArchitecture(handle)
    on_answer()
    if architecture != AMPERE:
        return Generation(architecture)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    on_answer()
    return Generation(architecture, (major, minor))


def memory_b(handle: Any) -> int | None:
    """The size of its memory in bytes; None where that is unknown."""
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError:  # such as of a GPU that uses the host's memory
        return None


def speed(handle: Any) -> float:
    """Cores times their highest clock, to compare GPUs; 0 where that is unknown."""
    try:
        cores = pynvml.nvmlDeviceGetNumGpuCores(handle)
        return float(cores * pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM))
    except pynvml.NVMLError:
        return 0.0


def mig_slices(handle: Any) -> tuple[MigDevice, ...]:
    """The MIG devices of a GPU; none where it is not partitioned."""
    try:
        current, _pending = pynvml.nvmlDeviceGetMigMode(handle)
        count = pynvml.nvmlDeviceGetMaxMigDeviceCount(handle) if current else 0
    except pynvml.NVMLError:
        return ()
    slices = []
    for index in range(count):
        with suppress(pynvml.NVMLError):  # not every index has a device
            mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            uuid = pynvml.nvmlDeviceGetUUID(mig)
            instance = pynvml.nvmlDeviceGetGpuInstanceId(mig)
            slices.append(MigDevice(uuid, instance, pynvml.nvmlDeviceGetComputeInstanceId(mig)))
    return tuple(slices)
