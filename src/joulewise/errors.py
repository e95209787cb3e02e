"""The errors of joulewise: one line of what is wrong, and one of what to do.

::

    JoulewiseError                   exit status 125: our own failure
    ├── UsageError                   2: the request makes no sense
    │   └── OutOfRangeError          2: a value outside the range of the device
    ├── CommandNotExecutableError    126
    ├── CommandNotFoundError         127
    ├── DeviceError                  125: a device did not do what was requested
    │   ├── DeviceLostError          it is gone; at best a reset brings it back
    │   ├── NotSupportedError        this model or driver cannot do that
    │   ├── PermissionDeniedError    the right is missing; the hint names what gives it
    │   ├── HeldError                somebody else holds the setting
    │   ├── DriverMissingError       the vendor's library or driver is not installed
    │   └── DriverHangsError         it does not answer, and may still carry out the request
    ├── SimulationError              125: the simulated GPUs cannot be started
    ├── PolicyError                  125: what chooses for a recurring job failed, maybe a plug-in
    └── ForgottenJobError            125: the job of a try was forgotten while it ran

They are raised anywhere and printed in one place, :func:`joulewise.cli.main`.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path


class JoulewiseError(Exception):
    """Base class: what is wrong (``message``), what to do (``hint``), and the exit status."""

    exit_status = 125

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        # The hint is useful in a traceback, too.
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(JoulewiseError):
    exit_status = 2


class OutOfRangeError(UsageError):
    pass


class CommandNotExecutableError(JoulewiseError):
    exit_status = 126


class CommandNotFoundError(JoulewiseError):
    exit_status = 127


class DeviceError(JoulewiseError):
    pass


class DeviceLostError(DeviceError):
    pass


class NotSupportedError(DeviceError):
    pass


class PermissionDeniedError(DeviceError):
    pass


class HeldError(DeviceError):
    pass


class DriverMissingError(DeviceError):
    pass


class DriverHangsError(DeviceError):
    pass


class SimulationError(JoulewiseError):
    pass


class PolicyError(JoulewiseError):
    pass


class ForgottenJobError(JoulewiseError):
    pass


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The beginning of a hint, ``did you mean v100? ``; empty where no known name is close."""
    from difflib import get_close_matches

    names_by_lower = {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), names_by_lower, 1)
    return f"did you mean {names_by_lower[close[0]]}? " if close else ""


def installed_command() -> str:
    """Path of this environment's ``joulewise``, quoted for a shell.

    For hints with ``sudo``, which has a PATH of its own.
    """
    beside = Path(sys.executable).with_name("joulewise")
    path = str(beside) if beside.exists() else shutil.which("joulewise")
    return shlex.quote(path) if path else f"{shlex.quote(sys.executable)} -m joulewise"
