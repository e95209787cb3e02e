"""The protocol that every device follows, and the behaviour that all of them share.

A device is read by naming a :class:`Quantity` and set by naming a control
(:class:`ControlKind`), so that there is one way to do each and one place to extend.
:class:`BaseDevice` has what is the same for all devices: closed devices, missing sensors, range
checks.

:class:`Options` is what the user or the environment says about the machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from joulewise.data import (
    ControlInfo,
    ControlKind,
    DeviceInfo,
    DriverSample,
    Process,
    Quantity,
    Reading,
    SensorInfo,
    Unavailable,
)
from joulewise.errors import (
    DeviceLostError,
    JoulewiseError,
    NotSupportedError,
    OutOfRangeError,
    installed_command,
)


@runtime_checkable
class Device(Protocol):
    """Something that draws power.

    ``sensors`` and ``controls`` are known when the device is opened: what it has, or
    why it lacks it. With a transient fault a sensor is listed all the same, and its readings are
    ``Unavailable`` while the fault lasts. ``read``, ``samples``, ``processes`` and ``get`` never
    raise: a fault is an ``Unavailable``. ``set``, ``put_back`` and ``reset`` raise a
    :class:`joulewise.errors.DeviceError` (or ``OutOfRangeError``), since a control that was not set
    must not pass unnoticed.
    """

    @property
    def info(self) -> DeviceInfo: ...

    @property
    def sensors(self) -> Mapping[Quantity, SensorInfo | Unavailable]: ...

    @property
    def controls(self) -> Mapping[ControlKind, ControlInfo | Unavailable]: ...

    def read(self, quantity: Quantity) -> Reading | Unavailable:
        """The value now, in the unit that the quantity names."""
        ...

    def samples(
        self, quantity: Quantity, since_us: int = 0
    ) -> Sequence[DriverSample] | Unavailable:
        """The samples that the driver buffered after ``since_us`` (its own clock), oldest first."""
        ...

    def processes(self) -> Sequence[Process] | Unavailable:
        """The processes that use the device."""
        ...

    def get(self, control: ControlKind) -> float | Unavailable:
        """The value that the control is set to."""
        ...

    def set(self, control: ControlKind, value: float) -> None:
        """Set the control to ``value``, which must be in its range and among its choices."""
        ...

    def put_back(self, control: ControlKind, value: float) -> None:
        """Set the control to a value that it had before, which may be beyond its range."""
        ...

    def reset(self, control: ControlKind) -> None:
        """Return the control to the device's own default (default limit, unlocked clocks)."""
        ...

    def close(self) -> None:
        """Release the vendor's library. A closed device answers ``Unavailable``."""
        ...


@runtime_checkable
class PartlyOpened(Protocol):
    """A device that was opened with its power and energy alone (``Options.energy_first``)."""

    @property
    def is_complete(self) -> bool:
        """Whether all its sensors and controls are known."""
        ...

    def complete(self) -> None:
        """Find the rest: ``info``, ``sensors`` and ``controls`` are complete afterwards."""
        ...


@runtime_checkable
class ScopeChecked(Protocol):
    """A device that finds out, in one to three seconds, what its power and energy cover."""

    def check_scope(self) -> bool:
        """Check it; whether ``info`` has changed. Never raises."""


def check_in_range(device_key: str, info: ControlInfo, value: float) -> None:
    """Raise OutOfRangeError unless ``value`` is in the control's range; NaN is in no range."""
    inside = info.minimum <= value <= info.maximum
    if inside and (info.choices is None or value in info.choices):
        return
    control = info.control
    hint = f"it takes {info.minimum:g} to {info.maximum:g} {control.unit}"
    if info.choices is not None and inside:
        below = max(choice for choice in info.choices if choice < value)
        above = min(choice for choice in info.choices if choice > value)
        hint += f", in steps: try {below:g} or {above:g}"
    raise OutOfRangeError(
        f"{device_key}'s {control.label} cannot be {value:g} {control.unit}", hint
    )


def root_permission() -> bool | Unavailable:
    """Whether this process may set controls: True for root, else the reason why not.

    A driver cannot be asked whether it would obey, and to try is to write.
    """
    if os.geteuid() == 0:
        return True
    return Unavailable("the driver lets only root set it", permission_hint())


def permission_hint() -> str:
    """A hint: the two ways to get the right to set controls."""
    return (
        f"run `sudo -E {installed_command()} …`"
        ", or have an administrator set up the guard service: "
        "`joulewise guard --group NAME --unit` prints its systemd unit"
    )


def error_as_unavailable(error: JoulewiseError) -> Unavailable:
    """A fault of a device as the answer of a reading."""
    return Unavailable(error.message, error.hint)


def join_notes(*notes: str | None) -> str:
    """One line of several notes, without those that are empty."""
    return "; ".join(filter(None, notes))


CLOSED: Final = Unavailable("the device was closed", "open it again")


class BaseDevice:
    """Behaviour shared by all devices: closed devices, missing sensors, range checks.

    A subclass implements the methods with an underscore. They are called only while the device is
    open, for sensors and controls that it lists, with values in range or that were set before.
    """

    info: DeviceInfo
    sensors: Mapping[Quantity, SensorInfo | Unavailable]
    controls: Mapping[ControlKind, ControlInfo | Unavailable]
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
        """The processes that used it and ended after ``since_us`` (wall clock), if known."""
        return CLOSED if self._closed else self._ended_processes(since_us)

    def get(self, control: ControlKind) -> float | Unavailable:
        info = self._control_info(control)
        return info if isinstance(info, Unavailable) else self._get(control)

    def set(self, control: ControlKind, value: float) -> None:
        info = self._settable(control)
        check_in_range(self.info.key, info, value)
        self._set(info, value)

    def put_back(self, control: ControlKind, value: float) -> None:
        self._set(self._settable(control), value)

    def reset(self, control: ControlKind) -> None:
        self._reset(self._settable(control))

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

    def _get(self, control: ControlKind) -> float | Unavailable:
        raise NotImplementedError

    def _set(self, info: ControlInfo, value: float) -> None:
        raise NotImplementedError

    def _reset(self, info: ControlInfo) -> None:
        raise NotImplementedError

    def _release(self) -> None:
        """Release what the device holds."""

    def _lacks(self, what: Quantity | ControlKind) -> Unavailable:
        return Unavailable(f"{self.info.key} has no {what.value}")

    def _control_info(self, control: ControlKind) -> ControlInfo | Unavailable:
        return CLOSED if self._closed else self.controls.get(control) or self._lacks(control)

    def _settable(self, control: ControlKind) -> ControlInfo:
        info = self._control_info(control)
        if isinstance(info, ControlInfo):
            return info
        error = DeviceLostError if self._closed else NotSupportedError
        raise error(
            f"{self.info.key}'s {control.value} cannot be set: {info.reason}",
            info.fix or "joulewise doctor lists the settings that can be changed",
        )


@dataclass(frozen=True)
class Options:
    """Where to search for devices, and what to assume for what cannot be read.

    ``powercap`` is Linux's folder of energy counters; ``$JOULEWISE_POWERCAP`` names another, such
    as a simulated one. Likewise ``proc`` and ``$JOULEWISE_PROC``, ``dmi`` (the table of memory
    modules) and ``$JOULEWISE_DMI``, ``kfd`` (AMD's driver for compute) and ``$JOULEWISE_KFD``,
    ``hwmon`` (the kernel's power meters) and ``$JOULEWISE_HWMON``, ``cpus`` (the folder of a CPU's
    topology) and ``$JOULEWISE_CPUS``.
    ``cpu_tdp_w`` (or ``$JOULEWISE_CPU_TDP``) overrides the table behind the modelled CPU power.
    ``now_ns`` and ``sleep`` are the clock of the CPU and RAM. GPUs that are not numbered by NVML
    are numbered from ``first_gpu``, which discovery sets to the number of those that are. A family
    of devices that has not answered after ``deadline_s`` is missing. With ``energy_first`` a device
    is opened with its power and energy alone, where finding the rest takes time: see
    :class:`joulewise.devices.device.PartlyOpened`. With ``hidden_too`` GPUs that the variables of
    ``environ`` hide from programs are opened, too; see :func:`joulewise.devices.visible_gpus`.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    cpu_tdp_w: float | None = None
    first_gpu: int = 0
    deadline_s: float | None = None
    energy_first: bool = False
    hidden_too: bool = False
    now_ns: Callable[[], int] = time.monotonic_ns
    sleep: Callable[[float], None] = time.sleep

    @property
    def powercap(self) -> Path:
        return Path(self.environ.get("JOULEWISE_POWERCAP", "/sys/class/powercap"))

    @property
    def proc(self) -> Path:
        return Path(self.environ.get("JOULEWISE_PROC", "/proc"))

    @property
    def dmi(self) -> Path:
        return Path(self.environ.get("JOULEWISE_DMI", "/sys/firmware/dmi/tables/DMI"))

    @property
    def hwmon(self) -> Path:
        return Path(self.environ.get("JOULEWISE_HWMON", "/sys/class/hwmon"))

    @property
    def cpus(self) -> Path:
        return Path(self.environ.get("JOULEWISE_CPUS", "/sys/devices/system/cpu"))

    @property
    def kfd(self) -> Path:
        return Path(self.environ.get("JOULEWISE_KFD", "/dev/kfd"))
