"""What each NVML error code means here: one of our errors, its reason, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from joulewise.data import Unavailable
from joulewise.errors import (
    DeviceError,
    DeviceLostError,
    DriverMissingError,
    JoulewiseError,
    NotSupportedError,
    OutOfRangeError,
    PermissionDeniedError,
)
from joulewise.process.installation import program


@dataclass(frozen=True)
class NvmlFailure:
    """Why NVML did not answer. A read hands it on, a knob raises it."""

    error: type[JoulewiseError]
    reason: str
    fix: str

    def unavailable(self) -> Unavailable:
        return Unavailable(self.reason, self.fix)

    def exception(self, doing: str, hint: str = "") -> JoulewiseError:
        return self.error(f"{doing}: {self.reason}", hint or self.fix or "no setting changes that")


def fault(code: int, gpu: int | None = None) -> NvmlFailure:
    """The meaning of an NVML code, for the GPU with that NVML index where it is about one."""
    known = _FAULTS.get(code)
    if known is None:
        known = NvmlFailure(DeviceError, f"NVML error {code}, which is not documented", _REPORT)
    which = "" if gpu is None else f" -i {gpu}"
    return NvmlFailure(known.error, known.reason, known.fix.replace(" -i N", which))


_REPORT: Final = "see `dmesg | grep -i -e nvrm -e xid`, and report this with the driver's version"
_RETRY: Final = "try again; if it stays, see `dmesg | grep -i -e nvrm -e xid`"
_UPDATE: Final = "install a newer NVIDIA driver, or an nvidia-ml-py of the driver's age"
_RESET: Final = "see `dmesg | grep -i xid`, then `sudo nvidia-smi --gpu-reset -i N` or reboot"
_DRIVER: Final = (
    "install the NVIDIA driver (in a container: start it with --gpus all), and check `nvidia-smi`"
)
_FAULTS: Final = {
    1: NvmlFailure(DeviceError, "NVML was shut down", "open the device again"),
    2: NvmlFailure(DeviceError, "NVML calls an argument invalid", _REPORT),
    3: NvmlFailure(NotSupportedError, "this GPU or driver does not support it", ""),
    4: NvmlFailure(
        PermissionDeniedError,
        "the driver does not allow it to this user",
        f"run as root (`sudo -E {program()} …`); in a container also add --cap-add SYS_ADMIN",
    ),
    5: NvmlFailure(DeviceError, "NVML was initialised twice", "open the device again"),
    6: NvmlFailure(DeviceError, "the driver has no such entry", _RETRY),
    7: NvmlFailure(DeviceError, "the driver's answer did not fit", _RETRY),
    8: NvmlFailure(
        DeviceError,
        "the GPU's external power cables are not properly attached",
        "power off and check the GPU's power connectors",
    ),
    9: NvmlFailure(
        DriverMissingError,
        "the NVIDIA driver is not loaded",
        "load it with `sudo modprobe nvidia`, or install it",
    ),
    10: NvmlFailure(DeviceError, "the driver did not answer in time", _RETRY),
    11: NvmlFailure(
        DeviceError,
        "the kernel found an interrupt problem with the GPU",
        "see `dmesg | grep -i nvrm`; check the GPU's slot and the firmware's PCIe settings",
    ),
    12: NvmlFailure(DriverMissingError, "NVML (libnvidia-ml.so.1) is not on this machine", _DRIVER),
    13: NvmlFailure(NotSupportedError, "this driver's NVML has no such function", _UPDATE),
    14: NvmlFailure(
        DeviceError, "the GPU's infoROM is corrupted", "see `nvidia-smi -q -i N`; ask its vendor"
    ),
    15: NvmlFailure(DeviceLostError, "the GPU is lost: it fell off the bus", _RESET),
    16: NvmlFailure(DeviceLostError, "the GPU needs a reset", _RESET),
    17: NvmlFailure(
        PermissionDeniedError,
        "the operating system blocks the driver (permissions or cgroups of /dev/nvidia*)",
        "give this user or container the device: --gpus all, or the scheduler's GPU option",
    ),
    18: NvmlFailure(
        DriverMissingError,
        "the driver's kernel module and its library differ in version, as after an update",
        "reboot, or stop what uses the GPU and run "
        "`sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia`",
    ),
    19: NvmlFailure(
        DeviceError, "the GPU is in use", "end what `nvidia-smi` lists, then try again"
    ),
    20: NvmlFailure(DeviceError, "not enough memory for NVML", "free some memory, then try again"),
    21: NvmlFailure(DeviceError, "the driver has no data for it yet", _RETRY),
    22: NvmlFailure(
        NotSupportedError,
        "not possible on a virtual GPU while ECC is on",
        "ask the host's administrator to switch ECC off",
    ),
    23: NvmlFailure(
        DeviceError, "the GPU has no resources left for it", "free some, then try again"
    ),
    24: NvmlFailure(
        OutOfRangeError,
        "the GPU does not support that clock",
        "see `nvidia-smi -q -d SUPPORTED_CLOCKS -i N`",
    ),
    25: NvmlFailure(
        NotSupportedError, "the driver does not know this version of the call", _UPDATE
    ),
    26: NvmlFailure(NotSupportedError, "the driver has dropped this call", "update nvidia-ml-py"),
    27: NvmlFailure(DeviceError, "the GPU or its driver is not ready", _RETRY),
    28: NvmlFailure(DeviceLostError, "the GPU is not there any more", _RESET),
    29: NvmlFailure(DeviceError, "the GPU's state does not allow it now", _RETRY),
    30: NvmlFailure(NotSupportedError, "the GPU has no such kind of reset", "reboot"),
    999: NvmlFailure(DeviceError, "the driver failed for a reason that it does not tell", _REPORT),
}
