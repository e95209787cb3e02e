"""Everything that can go wrong, said in one line, with one line of what to do.

::

    JoulewiseError                   exit status 125: our own failure
    ├── UsageError                   2: the request cannot be meant
    │   └── OutOfRangeError          2: a value outside what the device takes
    ├── CommandNotExecutableError    126
    ├── CommandNotFoundError         127
    ├── DeviceError                  125: a device did not do as it was asked
    │   ├── DeviceLostError          it is gone, and comes back with a reset at best
    │   ├── NotSupportedError        this model or driver has no such thing
    │   ├── PermissionDeniedError    the right is missing; the hint names what gives it
    │   ├── HeldError                somebody else has turned the knob
    │   ├── DriverMissingError       the vendor's library or driver is not there
    │   └── DriverHangsError         it does not answer, and may yet do what it was asked
    └── SimulationError              125: the simulated GPUs cannot be had

They are raised anywhere and printed in one place, :func:`joulewise.cli.main`.
"""

from __future__ import annotations

from collections.abc import Iterable


class JoulewiseError(Exception):
    """What is wrong (``message``), what to do (``hint``), and the process's exit status."""

    exit_status = 125

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        # Whoever meets it in a traceback needs the hint no less than at the command line.
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


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``did you mean v100? `` for the beginning of a hint; nothing where no name is close."""
    from difflib import get_close_matches

    lower = {it.lower(): it for it in known}
    close = get_close_matches(name.lower(), lower, 1)
    return f"did you mean {lower[close[0]]}? " if close else ""
