"""What every device offers, whatever its maker.

A device is read and turned by naming a :class:`Quantity` or a :class:`Knob`, so that there is
one way to do each, one place to extend, and nothing to forward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from joulewise.data import (
    DeviceInfo,
    Knob,
    KnobInfo,
    Process,
    Quantity,
    Reading,
    Sample,
    SensorInfo,
    Unavailable,
)


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

    def samples(self, quantity: Quantity, since_us: int = 0) -> Sequence[Sample] | Unavailable:
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
