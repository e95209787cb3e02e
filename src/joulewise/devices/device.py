"""What every device offers, whatever its maker.

A device is read and turned by naming a :class:`Quantity` or a :class:`Knob`, so that there is
one way to do each, one place to extend, and nothing to forward.

What every device answers alike: once it is closed, and for what it has not.

What a knob takes, and from whom, in the same words for every device.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final, Protocol, runtime_checkable

from joulewise.data import (
    DeviceInfo,
    DriverSample,
    Knob,
    KnobInfo,
    Process,
    Quantity,
    Reading,
    SensorInfo,
    Unavailable,
)
from joulewise.errors import DeviceLostError, NotSupportedError, OutOfRangeError
from joulewise.process.installation import program


@runtime_checkable
class Device(Protocol):
    """Something that draws power.

    ``sensors`` and ``knobs`` are settled when the device is opened: what it has, or why it has
    it not. A fault that may pass is no lack: that sensor is listed, and its readings are
    ``Unavailable`` while the fault lasts. ``read``, ``samples``, ``processes`` and ``get`` never
    raise: a fault is an ``Unavailable``. ``set``, ``put_back`` and ``reset`` raise a
    :class:`joulewise.errors.DeviceError` (or ``OutOfRangeError``), since a knob that did not turn
    must not pass unnoticed.
    """

    @property
    def info(self) -> DeviceInfo: ...

    @property
    def sensors(self) -> Mapping[Quantity, SensorInfo | Unavailable]: ...

    @property
    def knobs(self) -> Mapping[Knob, KnobInfo | Unavailable]: ...

    def read(self, quantity: Quantity) -> Reading | Unavailable:
        """The value now, in the unit that the quantity names."""
        ...

    def samples(
        self, quantity: Quantity, since_us: int = 0
    ) -> Sequence[DriverSample] | Unavailable:
        """What the driver buffered after ``since_us`` on its own clock, oldest first."""
        ...

    def processes(self) -> Sequence[Process] | Unavailable:
        """Who uses the device."""
        ...

    def get(self, knob: Knob) -> float | Unavailable:
        """What the knob is set to."""
        ...

    def set(self, knob: Knob, value: float) -> None:
        """Turn the knob to ``value``, which must be in its range and among its choices."""
        ...

    def put_back(self, knob: Knob, value: float) -> None:
        """Turn the knob to what it was once found at, which may be beyond what we would set."""
        ...

    def reset(self, knob: Knob) -> None:
        """Back to what the device does by itself (its default limit, unlocked clocks)."""
        ...

    def close(self) -> None:
        """Let go of the vendor's library. A closed device answers ``Unavailable``."""
        ...


@runtime_checkable
class PartlyOpened(Protocol):
    """A device that was opened with what joules come from alone (``Options.energy_first``)."""

    @property
    def is_complete(self) -> bool:
        """Whether all that it has is known."""
        ...

    def complete(self) -> None:
        """Ask for the rest: ``info``, ``sensors`` and ``knobs`` are whole afterwards."""
        ...


@runtime_checkable
class ScopeChecked(Protocol):
    """A device that finds out, in a second or three, what its power and energy are of."""

    def check_scope(self) -> bool:
        """Whether ``info`` is another now. Never raises."""


def check_in_range(device_key: str, info: KnobInfo, value: float) -> None:
    """Raise unless the knob takes ``value``; NaN is in no range."""
    inside = info.minimum <= value <= info.maximum
    if inside and (info.choices is None or value in info.choices):
        return
    knob = info.knob
    hint = f"it takes {info.minimum:g} to {info.maximum:g} {knob.unit}"
    if info.choices is not None and inside:
        below = max(choice for choice in info.choices if choice < value)
        above = min(choice for choice in info.choices if choice > value)
        hint += f", in steps: try {below:g} or {above:g}"
    raise OutOfRangeError(f"{device_key}'s {knob.label} cannot be {value:g} {knob.unit}", hint)


def for_root_only() -> bool | Unavailable:
    """A driver has no way to ask whether it would obey, and to try is to write."""
    if os.geteuid() == 0:
        return True
    return Unavailable("the driver lets only root turn it", by_root_or_the_service())


def by_root_or_the_service() -> str:
    return (
        f"run `sudo -E {program()} …`, or have an administrator set up the guard service: "
        "`joulewise guard --group NAME --unit` prints its systemd unit"
    )


CLOSED: Final = Unavailable("the device was closed", "open it again")


class BaseDevice:
    """The protocol's methods, around what a subclass does in those with an underscore.

    The latter are called only while the device is open, for what it lists, with values in range or
    that were found before.
    """

    info: DeviceInfo
    sensors: Mapping[Quantity, SensorInfo | Unavailable]
    knobs: Mapping[Knob, KnobInfo | Unavailable]
    _closed = False

    def read(self, quantity: Quantity) -> Reading | Unavailable:
        sensor = CLOSED if self._closed else self.sensors.get(quantity) or self._lacks(quantity)
        return sensor if isinstance(sensor, Unavailable) else self._read(quantity)

    def samples(
        self, quantity: Quantity, since_us: int = 0
    ) -> Sequence[DriverSample] | Unavailable:
        return CLOSED if self._closed else self._samples(quantity, since_us)

    def processes(self) -> Sequence[Process] | Unavailable:
        return CLOSED if self._closed else self._processes()

    def ended_processes(self, since_us: int) -> Sequence[Process] | Unavailable:
        """Who used it and has ended since then (wall clock), where the driver keeps that."""
        return CLOSED if self._closed else self._ended_processes(since_us)

    def get(self, knob: Knob) -> float | Unavailable:
        info = self._knob(knob)
        return info if isinstance(info, Unavailable) else self._get(knob)

    def set(self, knob: Knob, value: float) -> None:
        info = self._turnable(knob)
        check_in_range(self.info.key, info, value)
        self._set(info, value)

    def put_back(self, knob: Knob, value: float) -> None:
        self._set(self._turnable(knob), value)

    def reset(self, knob: Knob) -> None:
        self._reset(self._turnable(knob))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._release()

    def _read(self, quantity: Quantity) -> Reading | Unavailable:
        raise NotImplementedError

    def _samples(self, quantity: Quantity, since_us: int) -> Sequence[DriverSample] | Unavailable:
        del since_us
        return Unavailable(f"{self.info.key} keeps no buffer of {quantity.value}")

    def _processes(self) -> Sequence[Process] | Unavailable:
        raise NotImplementedError

    def _ended_processes(self, since_us: int) -> Sequence[Process] | Unavailable:
        del since_us
        return Unavailable(f"{self.info.key} keeps no account of processes")

    def _get(self, knob: Knob) -> float | Unavailable:
        raise NotImplementedError

    def _set(self, info: KnobInfo, value: float) -> None:
        raise NotImplementedError

    def _reset(self, info: KnobInfo) -> None:
        raise NotImplementedError

    def _release(self) -> None:
        """Let go of what is held."""

    def _lacks(self, what: Quantity | Knob) -> Unavailable:
        return Unavailable(f"{self.info.key} has no {what.value}")

    def _knob(self, knob: Knob) -> KnobInfo | Unavailable:
        return CLOSED if self._closed else self.knobs.get(knob) or self._lacks(knob)

    def _turnable(self, knob: Knob) -> KnobInfo:
        info = self._knob(knob)
        if isinstance(info, KnobInfo):
            return info
        error = DeviceLostError if self._closed else NotSupportedError
        raise error(
            f"{self.info.key}'s {knob.value} cannot be turned: {info.reason}",
            info.fix or "joulewise doctor lists what can be turned",
        )
