"""amdsmi: loading it, closing it after its last user, and converting its exceptions."""

from __future__ import annotations

import contextlib
import io
import threading
from types import ModuleType
from typing import Any, Final

from joulewise.data import Unavailable
from joulewise.devices.device import error_as_unavailable
from joulewise.errors import (
    DeviceError,
    DeviceLostError,
    DriverMissingError,
    NotSupportedError,
    PermissionDeniedError,
    installed_command,
)

ABSENT: Final = Unavailable("the amdsmi package is not installed", "pip install 'joulewise[amd]'")
_UNLOADABLE: Final = Unavailable(
    "amdsmi is installed, but ROCm's library libamd_smi.so cannot be loaded",
    "install ROCm's package amd-smi-lib, or set ROCM_PATH to where ROCm is",
)


def load() -> Library | Unavailable:
    """The library, retained once, or why it cannot be loaded."""
    try:
        # Where the C library is missing, amdsmi prints before it fails; stdout is the command's.
        with contextlib.redirect_stdout(io.StringIO()):
            import amdsmi
    except ModuleNotFoundError:
        return ABSENT
    except Exception:  # noqa: BLE001  # a KeyError or an OSError, by amdsmi's version
        return _UNLOADABLE
    library = Library(amdsmi)
    try:
        library.retain()
    except DeviceError as error:
        return error_as_unavailable(error)
    return library


class Library:
    """Calls amdsmi's functions by name, between ``retain`` and ``release``.

    The first ``amdsmi_shut_down`` ends the library for the whole process, so users are counted.
    """

    _lock = threading.Lock()
    _users = 0

    def __init__(self, amdsmi: ModuleType) -> None:
        self._amdsmi = amdsmi

    def retain(self) -> None:
        with Library._lock:
            if Library._users == 0:
                self.call("amdsmi_init")
            Library._users += 1

    def release(self) -> None:
        with Library._lock:
            Library._users -= 1
            if Library._users == 0:
                with contextlib.suppress(DeviceError):  # the driver went first
                    self.call("amdsmi_shut_down")

    def call(self, function: str, *arguments: Any) -> Any:
        """Call a function of amdsmi; raises a DeviceError where that fails."""
        implementation = getattr(self._amdsmi, function, None)
        if implementation is None:
            raise NotSupportedError(
                f"this version of amdsmi has no {function}",
                "install the amdsmi of a newer ROCm, together with that ROCm",
            )
        try:
            return implementation(*arguments)
        except self._amdsmi.AmdSmiException as error:
            raise _convert_error(error) from None

    def has(self, function: str) -> bool:
        return getattr(self._amdsmi, function, None) is not None

    def constant(self, enumeration: str, member: str) -> Any:
        return getattr(getattr(self._amdsmi, enumeration), member)


def number(value: Any) -> float:
    """The value as a float; NotSupportedError where it is a word such as "N/A"."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise NotSupportedError(*_NOT_REPORTED)
    return float(value)


_NOT_REPORTED: Final = ("this GPU or its driver does not report it", "nothing to do: other GPUs do")
_RETRY: Final = "try again; if it stays, see `dmesg | grep -i amdgpu`"
_DRIVER: Final = (
    "the amdgpu driver is not loaded, or not for this user",
    "load it with `sudo modprobe amdgpu`; in a container add --device /dev/kfd --device /dev/dri",
)
_DENIED: Final = (
    "the driver does not allow it to this user",
    (
        f"run as root (`sudo -E {installed_command()} …`)"
        ", or to read, join the groups video and render"
    ),
)
_LOST: Final = ("the GPU is not there any more", "see `dmesg | grep -i amdgpu`, then reboot")
# What each amdsmi_status_t means; those that are missing are errors without more to say.
_MEANINGS: Final[dict[int, tuple[type[DeviceError], tuple[str, str]]]] = {
    **dict.fromkeys((2, 3, 5, 40, 49, 52, 55), (NotSupportedError, _NOT_REPORTED)),
    **dict.fromkeys((4, 6, 18, 34, 51), (DriverMissingError, _DRIVER)),
    10: (PermissionDeniedError, _DENIED),
    31: (DeviceLostError, _LOST),
    32: (DeviceLostError, ("amdsmi was shut down", "open the device again")),
}


def _convert_error(error: Exception) -> DeviceError:
    unknown = (f"amdsmi failed: {' '.join(str(error).split())}", _RETRY)
    code = getattr(error, "err_code", None) or 0
    kind, texts = _MEANINGS.get(code, (DeviceError, unknown))
    return kind(*texts)
