"""Leases: the right to turn a knob, which ends with whoever holds it.

What a lease is asked for, checked before a guardian hears of it.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from numbers import Integral, Real
from types import TracebackType
from typing import Any, Final

from joulewise.control.client import Client, GoneError, connect
from joulewise.control.holds import End, RestoreOutcome, Wanted
from joulewise.control.messages import said
from joulewise.control.protocol import lease_line, release_line
from joulewise.data import Knob
from joulewise.devices import Device
from joulewise.errors import DeviceError, JoulewiseError, UsageError

Named = Device | str | int


def checked_settings(given: Mapping[Knob, object]) -> dict[Knob, float]:
    """Those that are given, as numbers."""
    asked = {knob: _number(knob, value) for knob, value in given.items() if value is not None}
    if not asked:
        raise UsageError("a lease of nothing", "name a setting, such as power_limit_w=150")
    return asked


def checked_devices(given: Named | Iterable[Named]) -> list[Device | str]:
    """Devices and names of devices; a number is a GPU's."""
    named = [given] if isinstance(given, str) or not isinstance(given, Iterable) else given
    asked = [_device(each) for each in named]
    if not asked:
        raise UsageError("a lease of no device", 'name one, such as "gpu0"')
    return asked


def _number(knob: Knob, value: object) -> float:
    if not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value):
        return float(value)
    unit = "watts" if knob.unit == "W" else knob.unit
    raise UsageError(f"{knob.value}={value!r} is no number", f"give {unit}, as a number")


def _device(each: object) -> Device | str:
    if not isinstance(each, bool) and isinstance(each, Integral):
        return f"gpu{each}"
    if isinstance(each, str | Device):
        return each
    raise UsageError(f"{each!r} is no device", 'name it by its key, such as "gpu0"')


_ENDED: Final = (
    "the guardian of the knobs was killed, and its leases ended: another one has put things back"
)
_RESTORE: Final = "once the device answers, run `joulewise restore`"


def lease(
    devices: Named | Iterable[Named],
    *,
    power_limit_w: float | None = None,
    power_limit_short_w: float | None = None,
    sm_clock_mhz: float | None = None,
    mem_clock_mhz: float | None = None,
    force: bool = False,
) -> Lease:
    """Turn knobs of one or several devices (or their keys: ``"gpu0"``, 0) until the lease ends.

    All of them are turned or, with an error that says why, none. Clocks go to the nearest that
    the device supports. ``force`` turns them also while others use the device.
    """
    given = {
        Knob.POWER_LIMIT: power_limit_w,
        Knob.POWER_LIMIT_SHORT: power_limit_short_w,
        Knob.SM_CLOCK: sm_clock_mhz,
        Knob.MEMORY_CLOCK: mem_clock_mhz,
    }
    settings, named = checked_settings(given), checked_devices(devices)
    names = [each if isinstance(each, str) else each.info.uid for each in named]
    return _our_line().lease(tuple(Wanted(name, settings) for name in names), force=force)


class Lease:
    """Knobs that are turned until ``release``, or the end of a ``with`` block or this process.

    ``enforced`` is what each device holds, read back, by its key; ``before`` is what goes back,
    None where the clock was not locked; ``notes`` say what else there is to know, after the
    release also whether a limit never bound, was below the floor, or lost its guardian.
    """

    def __init__(self, line: _GuardianConnection, told: Mapping[str, Any]) -> None:
        self._line = line
        self._era = line.era
        self._hold: str | None = told["hold"]
        self.before: Mapping[str, Mapping[Knob, float | None]] = _by_knob(told["before"])
        self.enforced: Mapping[str, Mapping[Knob, float]] = _by_knob(told["enforced"])
        self.by_service = line.is_service
        self.notes: tuple[str, ...] = tuple(told["notes"])

    def fileno(self) -> int:
        """Readable when it is time to ask whether it is ``gone``; -1 where it has ended."""
        return self._line.fileno()

    def gone(self) -> GoneError | None:
        """Whether the guardian is gone: what it has set may be put back at any time."""
        return self._line.gone(self._era) if self._hold is not None else None

    def release(self) -> list[RestoreOutcome]:
        """Put back what was there before; a DeviceError where that could not be done."""
        if self._hold is None:
            return []
        hold, self._hold = self._hold, None
        outcomes, notes = self._line.release(self._era, hold)
        self.notes += notes
        if self._line.era != self._era:
            self.notes += (self._line.ended,)
        failed = [outcome for outcome in outcomes if outcome.end is End.FAILED]
        if failed:
            raise DeviceError("; ".join(map(said, failed)), _RESTORE)
        return outcomes

    def __enter__(self) -> Lease:  # noqa: PYI034  # Self came with Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.release()
        else:  # what went wrong in the block is the news; the guardian tries on by itself
            with suppress(JoulewiseError):
                self.release()


class _GuardianConnection:
    """This process's line to its guardian: it is there for as long as there is a lease."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._leases = 0
        self.era = 0  # leases of another era ended with the guardian that gave them
        self.ended = ""  # how that was

    @property
    def is_ours(self) -> bool:
        """Not after a fork: leases are the parent's."""
        return self._pid == os.getpid()

    @property
    def is_service(self) -> bool:
        return self._client is not None and self._client.is_service

    def fileno(self) -> int:
        return self._client.fileno() if self._client else -1

    def gone(self, era: int) -> GoneError | None:
        with self._lock:
            if self._client is None or era != self.era:
                return GoneError(_ENDED, "take the leases again")
            return self._client.gone()

    def lease(self, wanted: tuple[Wanted, ...], *, force: bool) -> Lease:
        with self._lock:
            if self._client is None:
                self._client = connect(os.environ)
            try:
                told = self._client.ask(lease_line(wanted, force=force))
            except GoneError as error:
                self._recover(self._client, error)
                raise JoulewiseError(_ENDED, "take the leases again") from None
            except BaseException:
                self._close_if_idle()
                raise
            self._leases += 1
            return Lease(self, told)

    def release(self, era: int, hold: str) -> tuple[list[RestoreOutcome], tuple[str, ...]]:
        if not self.is_ours:  # before the lock, which another thread may have held at the fork
            return [], ()
        with self._lock:
            if self._client is None or era != self.era:
                return [], ()
            self._leases -= 1
            try:
                told = self._client.ask(release_line(hold))
            except GoneError as error:
                told = self._recover(self._client, error)
            finally:
                self._close_if_idle()
        outcomes = [RestoreOutcome.from_json(each) for each in told.get("outcomes", [])]
        return outcomes, tuple(told.get("notes", ()))

    def _recover(self, gone: Client, error: GoneError) -> Mapping[str, Any]:
        """The guardian was killed: the first thing that another does is to put things back."""
        gone.close()
        self._client, self._leases = None, 0
        self.era += 1
        self.ended = _ENDED if error.outcomes is None else f"{error.message}, and put things back"
        if error.outcomes is not None:
            return {"outcomes": error.outcomes}
        try:
            fresh = connect(os.environ)
        except JoulewiseError:
            raise error from None
        fresh.close()
        if fresh.is_service != gone.is_service:  # which knows nothing of it
            raise error
        return fresh.greeting

    def forget(self) -> None:
        """In a fork: hang up without a word, so that the parent's end is the only one."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _close_if_idle(self) -> None:
        if not self._leases and self._client is not None:
            self._client.close()
            self._client = None


def _by_knob(told: Mapping[str, Any]) -> dict[str, dict[Knob, Any]]:
    return {
        key: {Knob(knob): value for knob, value in values.items()} for key, values in told.items()
    }


_line = _GuardianConnection()
_start = threading.Lock()


def _our_line() -> _GuardianConnection:
    global _line  # noqa: PLW0603  # one of a process
    with _start:
        if not _line.is_ours:
            _line = _GuardianConnection()
        return _line


def _after_fork() -> None:
    global _start  # noqa: PLW0603
    _start = threading.Lock()
    _line.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
