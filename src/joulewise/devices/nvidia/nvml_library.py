"""NVML's initialisation, which all devices of this process share, and properties of a GPU.

NVML counts its users itself, but a slow driver answers ``nvmlInit`` as slowly as any other call,
and one caller at a time: for eight GPUs, that would take longer than reading them. So the users are
counted here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import pynvml

from joulewise.data import Source, Unavailable
from joulewise.devices.cuda_visible import MigDevice
from joulewise.devices.device import permission_hint, root_permission
from joulewise.devices.nvidia.sensor_tables import Generation
from joulewise.errors import (
    DeviceError,
    DeviceLostError,
    DriverMissingError,
    JoulewiseError,
    NotSupportedError,
    OutOfRangeError,
    PermissionDeniedError,
    installed_command,
)

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
    """The generation of a GPU. Raises NVMLError where the architecture cannot be read.

    The capability distinguishes the GA100 from other Amperes; (0, 0) where it cannot be read.
    """
    architecture = pynvml.nvmlDeviceGetArchitecture(handle)
    on_answer()
    try:
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    except pynvml.NVMLError:
        return Generation(architecture)
    finally:
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


@dataclass(frozen=True)
class NvmlFailure:
    """Why an NVML call failed. A reading returns it as Unavailable, a setter raises it."""

    error: type[JoulewiseError]
    reason: str
    fix: str

    def unavailable(self) -> Unavailable:
        return Unavailable(self.reason, self.fix)

    def exception(self, doing: str, hint: str = "") -> JoulewiseError:
        return self.error(f"{doing}: {self.reason}", hint or self.fix or "no setting changes that")


def fault(code: int, gpu: int | None = None) -> NvmlFailure:
    """The meaning of an NVML code, for the GPU with that NVML index where it is about one."""
    unknown = (DeviceError, f"NVML error {code}, which is not documented", _REPORT)
    error, reason, fix = _FAULTS.get(code, unknown)
    return NvmlFailure(error, reason, fix.replace(" -i N", "" if gpu is None else f" -i {gpu}"))


_REPORT: Final = "see `dmesg | grep -i -e nvrm -e xid`, and report this with the driver's version"
_RETRY: Final = "try again; if it stays, see `dmesg | grep -i -e nvrm -e xid`"
_UPDATE: Final = "install a newer NVIDIA driver, or an nvidia-ml-py of the driver's age"
_RESET: Final = "see `dmesg | grep -i xid`, then `sudo nvidia-smi --gpu-reset -i N` or reboot"
_RELOAD: Final = (
    "reboot, or stop what uses the GPU and run "
    "`sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia`"
)
_DRIVER: Final = (
    "install the NVIDIA driver (in a container: start it with --gpus all), and check `nvidia-smi`"
)
# By the numbers of nvmlReturn_t.
_FAULTS: Final[dict[int, tuple[type[JoulewiseError], str, str]]] = {
    1: (DeviceError, "NVML was shut down", "open the device again"),
    2: (DeviceError, "NVML calls an argument invalid", _REPORT),
    3: (NotSupportedError, "this GPU or driver does not support it", ""),
    4: (
        PermissionDeniedError,
        "the driver does not allow it to this user",
        (
            f"run as root (`sudo -E {installed_command()} …`)"
            "; in a container also add --cap-add SYS_ADMIN"
        ),
    ),
    5: (DeviceError, "NVML was initialised twice", "open the device again"),
    6: (DeviceError, "the driver has no such entry", _RETRY),
    7: (DeviceError, "the driver's answer did not fit", _RETRY),
    8: (
        DeviceError,
        "the GPU's external power cables are not properly attached",
        "power off and check the GPU's power connectors",
    ),
    9: (
        DriverMissingError,
        "the NVIDIA driver is not loaded",
        "load it with `sudo modprobe nvidia`, or install it",
    ),
    10: (DeviceError, "the driver did not answer in time", _RETRY),
    11: (
        DeviceError,
        "the kernel found an interrupt problem with the GPU",
        "see `dmesg | grep -i nvrm`; check the GPU's slot and the firmware's PCIe settings",
    ),
    12: (DriverMissingError, "NVML (libnvidia-ml.so.1) is not on this machine", _DRIVER),
    13: (NotSupportedError, "this driver's NVML has no such function", _UPDATE),
    14: (DeviceError, "the GPU's infoROM is corrupted", "see `nvidia-smi -q -i N`; ask its vendor"),
    15: (DeviceLostError, "the GPU is lost: it fell off the bus", _RESET),
    16: (DeviceLostError, "the GPU needs a reset", _RESET),
    17: (
        PermissionDeniedError,
        "the operating system blocks the driver (permissions or cgroups of /dev/nvidia*)",
        "give this user or container the device: --gpus all, or the scheduler's GPU option",
    ),
    18: (
        DriverMissingError,
        "the driver's kernel module and its library differ in version, as after an update",
        _RELOAD,
    ),
    19: (DeviceError, "the GPU is in use", "end what `nvidia-smi` lists, then try again"),
    20: (DeviceError, "not enough memory for NVML", "free some memory, then try again"),
    21: (DeviceError, "the driver has no data for it yet", _RETRY),
    22: (
        NotSupportedError,
        "not possible on a virtual GPU while ECC is on",
        "ask the host's administrator to switch ECC off",
    ),
    23: (DeviceError, "the GPU has no resources left for it", "free some, then try again"),
    24: (
        OutOfRangeError,
        "the GPU does not support that clock",
        "see `nvidia-smi -q -d SUPPORTED_CLOCKS -i N`",
    ),
    25: (NotSupportedError, "the driver does not know this version of the call", _UPDATE),
    26: (NotSupportedError, "the driver has dropped this call", "update nvidia-ml-py"),
    27: (DeviceError, "the GPU or its driver is not ready", _RETRY),
    28: (DeviceLostError, "the GPU is not there any more", _RESET),
    29: (DeviceError, "the GPU's state does not allow it now", _RETRY),
    30: (NotSupportedError, "the GPU has no such kind of reset", "reboot"),
    999: (DeviceError, "the driver failed and does not say why", _REPORT),
}
