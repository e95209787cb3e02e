"""Leases: the right to change settings of devices, which ends with its holder's process."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from numbers import Integral, Real
from typing import Any, Final

from joulewise.control.client import Client, GuardianGoneError, connect
from joulewise.control.holds import DeviceRequest, RestoreOutcome, RestoreResult
from joulewise.control.messages import describe
from joulewise.control.protocol import lease_line, release_line
from joulewise.data import ControlKind
from joulewise.devices import Device
from joulewise.errors import DeviceError, JoulewiseError, UsageError

DeviceName = Device | str | int


def check_settings(given: Mapping[ControlKind, object]) -> dict[ControlKind, float]:
    """The settings that are given, as numbers; UsageError where there is none."""
    settings = {
        control: _check_number(control, value)
        for control, value in given.items()
        if value is not None
    }
    if not settings:
        raise UsageError("a lease needs a setting", "give one, such as power_limit_w=150")
    return settings


def check_devices(given: DeviceName | Iterable[DeviceName]) -> list[Device | str]:
    """Devices and names of devices; a number is the index of a GPU."""
    named = [given] if isinstance(given, str) or not isinstance(given, Iterable) else given
    devices = [_check_device(device) for device in named]
    if not devices:
        raise UsageError("a lease needs a device", 'name one, such as "gpu0"')
    return devices


def _check_number(control: ControlKind, value: object) -> float:
    if not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value):
        return float(value)
    unit = "watts" if control.unit == "W" else control.unit
    raise UsageError(f"{control.value} must be a number, not {value!r}", f"give a number of {unit}")


def _check_device(device: object) -> Device | str:
    if not isinstance(device, bool) and isinstance(device, Integral):
        return f"gpu{device}"
    if isinstance(device, str | Device):
        return device
    raise UsageError(f"{device!r} is not a device", 'name it by its key, such as "gpu0"')


_ENDED: Final = (
    "the guardian of the settings was killed and its leases ended: another one has restored them"
)
_RESTORE_HINT: Final = "once the device answers, run `joulewise restore`"


def lease(
    devices: DeviceName | Iterable[DeviceName],
    *,
    power_limit_w: float | None = None,
    power_limit_short_w: float | None = None,
    sm_clock_mhz: float | None = None,
    mem_clock_mhz: float | None = None,
    force: bool = False,
) -> Lease:
    """Change settings of one or several devices (or their keys: ``"gpu0"``, 0) for a lease.

    Limits are in watts, clocks in MHz; None leaves a setting alone. All of them are changed or,
    with an error that says why, none. A clock becomes the nearest that the device supports.
    ``force`` changes settings also while others use the device.
    """
    given = {
        ControlKind.POWER_LIMIT: power_limit_w,
        ControlKind.POWER_LIMIT_SHORT: power_limit_short_w,
        ControlKind.SM_CLOCK: sm_clock_mhz,
        ControlKind.MEMORY_CLOCK: mem_clock_mhz,
    }
    settings, named = check_settings(given), check_devices(devices)
    names = [each if isinstance(each, str) else each.info.uid for each in named]
    return _process_connection().lease(
        tuple(DeviceRequest(name, settings) for name in names), force=force
    )


class Lease:
    """Settings that hold until ``release``, the end of a ``with`` block, or of this process.

    ``enforced`` are the values read back from each device, by its key; ``before`` those that will
    be put back, None where a clock was not locked. ``notes`` are remarks for the user, after the
    release also whether a limit never took effect, was below what the device can reach, or lost its
    guardian.
    """

    def __init__(self, connection: _GuardianConnection, answer: Mapping[str, Any]) -> None:
        self._connection = connection
        self._guardian_number = connection.guardian_number
        self._hold: str | None = answer["hold"]
        self.before: Mapping[str, Mapping[ControlKind, float | None]] = _values_by_control(
            answer["before"]
        )
        self.enforced: Mapping[str, Mapping[ControlKind, float]] = _values_by_control(
            answer["enforced"]
        )
        self.by_service = connection.is_service
        self.notes: tuple[str, ...] = tuple(answer["notes"])

    def fileno(self) -> int:
        """Readable when ``gone`` should be called; -1 where the lease has ended."""
        return self._connection.fileno()

    def gone(self) -> GuardianGoneError | None:
        """How the guardian ended, None while it lives: its settings may be put back at any time."""
        return self._connection.gone(self._guardian_number) if self._hold is not None else None

    def release(self) -> list[RestoreOutcome]:
        """Put back the values from before; DeviceError where that failed."""
        if self._hold is None:
            return []
        hold, self._hold = self._hold, None
        outcomes, notes = self._connection.release(self._guardian_number, hold)
        self.notes += notes
        if self._connection.guardian_number != self._guardian_number:
            self.notes += (self._connection.ended,)
        failed = [outcome for outcome in outcomes if outcome.end is RestoreResult.FAILED]
        if failed:
            raise DeviceError("; ".join(map(describe, failed)), _RESTORE_HINT)
        return outcomes

    def __enter__(self) -> Lease:  # noqa: PYI034  # Self came with Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.release()
        else:  # the block's own error is raised; the guardian keeps trying by itself
            with suppress(JoulewiseError):
                self.release()


class _GuardianConnection:
    """This process's connection to its guardian, open for as long as there is a lease."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._leases = 0
        self.guardian_number = 0  # leases of an earlier guardian ended with it
        self.ended = ""  # how the earlier guardian ended

    @property
    def is_ours(self) -> bool:
        """False in a forked child: the leases are the parent's."""
        return self._pid == os.getpid()

    @property
    def is_service(self) -> bool:
        return self._client is not None and self._client.is_service

    def fileno(self) -> int:
        return self._client.fileno() if self._client else -1

    def gone(self, guardian_number: int) -> GuardianGoneError | None:
        with self._lock:
            if self._client is None or guardian_number != self.guardian_number:
                return GuardianGoneError(_ENDED, "take the leases again")
            return self._client.gone()

    def lease(self, wanted: tuple[DeviceRequest, ...], *, force: bool) -> Lease:
        with self._lock:
            if self._client is None:
                self._client = connect(os.environ)
            try:
                answer = self._client.request(lease_line(wanted, force=force))
            except GuardianGoneError as error:
                self._recover(self._client, error)
                raise JoulewiseError(_ENDED, "take the leases again") from None
            except BaseException:
                self._close_if_idle()
                raise
            self._leases += 1
            return Lease(self, answer)

    def release(
        self, guardian_number: int, hold: str
    ) -> tuple[list[RestoreOutcome], tuple[str, ...]]:
        if not self.is_ours:  # checked first: another thread may have held the lock at the fork
            return [], ()
        with self._lock:
            if self._client is None or guardian_number != self.guardian_number:
                return [], ()
            self._leases -= 1
            try:
                answer = self._client.request(release_line(hold))
            except GuardianGoneError as error:
                answer = self._recover(self._client, error)
            finally:
                self._close_if_idle()
        outcomes = [RestoreOutcome.from_json(each) for each in answer.get("outcomes", [])]
        return outcomes, tuple(answer.get("notes", ()))

    def _recover(self, gone: Client, error: GuardianGoneError) -> Mapping[str, Any]:
        """Start another guardian: before anything else it restores what the last one left."""
        gone.close()
        self._client, self._leases = None, 0
        self.guardian_number += 1
        self.ended = _ENDED if error.outcomes is None else f"{error.message} and restored them"
        if error.outcomes is not None:
            return {"outcomes": error.outcomes}
        try:
            new_client = connect(os.environ)
        except JoulewiseError:
            raise error from None
        new_client.close()
        if new_client.is_service != gone.is_service:  # it does not know the other's journal
            raise error
        return new_client.greeting

    def close_in_fork(self) -> None:
        """In a forked child: close our copy, so that the guardian notices the parent's end."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _close_if_idle(self) -> None:
        if not self._leases and self._client is not None:
            self._client.close()
            self._client = None


def _values_by_control(payload: Mapping[str, Any]) -> dict[str, dict[ControlKind, Any]]:
    return {
        key: {ControlKind(control): value for control, value in values.items()}
        for key, values in payload.items()
    }


_connection = _GuardianConnection()
_start_lock = threading.Lock()


def _process_connection() -> _GuardianConnection:
    global _connection  # noqa: PLW0603  # one of a process
    with _start_lock:
        if not _connection.is_ours:
            _connection = _GuardianConnection()
        return _connection


def _after_fork() -> None:
    global _start_lock  # noqa: PLW0603
    _start_lock = threading.Lock()
    _connection.close_in_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
