"""What a device is, has and tells.

Which devices' joules are already in another's: the one rule by which each counts once.

A counter may contain others: ``psys`` contains the CPU packages and their memory, a superchip's
module counter its GPU, CPU and memory. What contains what is told by ``DeviceInfo.contains``, by
whoever opens the device; here is what follows from it for a total.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple


class Source(str, Enum):
    """Where a figure comes from; a sum over devices may be of several.

    ``SIMULATED`` is what a sensor of joulewise's simulated GPUs and CPUs told: the device is not
    there. Its timing, its noise and its error are treated as those of a measured one.
    """

    MEASURED = "measured"
    SIMULATED = "simulated"
    MODELLED = "modelled"
    ASSUMED = "assumed"
    MIXED = "mixed"

    @property
    def is_sensor(self) -> bool:
        """Whether a sensor told it, real or simulated, rather than a model or an assumption."""
        return self in {Source.MEASURED, Source.SIMULATED}


class Quantity(str, Enum):
    """What a sensor tells, with its unit in the name."""

    POWER = "power_w"
    POWER_AVERAGE = "power_average_w"
    POWER_INSTANT = "power_instant_w"
    GPU_POWER = "gpu_power_w"
    MEMORY_POWER = "memory_power_w"
    ENERGY = "energy_j"
    ENFORCED_LIMIT = "enforced_limit_w"
    GPU_UTILISATION = "gpu_utilisation_pct"
    MEMORY_UTILISATION = "memory_utilisation_pct"
    ENCODER_UTILISATION = "encoder_utilisation_pct"
    DECODER_UTILISATION = "decoder_utilisation_pct"
    SM_CLOCK = "sm_clock_mhz"
    MEMORY_CLOCK = "memory_clock_mhz"
    PERFORMANCE_STATE = "performance_state"
    TEMPERATURE = "temperature_c"
    FAN = "fan_pct"
    MEMORY_USED = "memory_used_b"
    PCIE_TX = "pcie_tx_mb_s"
    PCIE_RX = "pcie_rx_mb_s"
    THROTTLE = "throttle_reasons"
    LOAD = "load_pct"


class Knob(str, Enum):
    """What can be turned, with its unit in the name (the words of a sweep's settings)."""

    POWER_LIMIT = "power_limit_w"
    POWER_LIMIT_SHORT = "power_limit_short_w"
    SM_CLOCK = "sm_clock_mhz"
    MEMORY_CLOCK = "mem_clock_mhz"

    @property
    def label(self) -> str:
        """What people call it."""
        return _LABELS[self]

    @property
    def unit(self) -> str:
        return "MHz" if self.value.endswith("_mhz") else "W"


_LABELS: Final = {
    Knob.POWER_LIMIT: "power limit",
    Knob.POWER_LIMIT_SHORT: "short-term power limit",
    Knob.SM_CLOCK: "SM clock",
    Knob.MEMORY_CLOCK: "memory clock",
}


class Kind(str, Enum):
    """What a device is."""

    GPU = "gpu"
    CPU = "cpu"
    DRAM = "dram"
    NODE = "node"


class PowerScope(str, Enum):
    """What the power and the energy of a GPU's device are of.

    ``GPU`` is the board with its memory. ``MODULE`` is all of a superchip (Grace Hopper): GPU, CPU
    and their memory. A part that is told besides (``Quantity.GPU_POWER``,
    ``Quantity.MEMORY_POWER``) is inside it.
    """

    GPU = "gpu"
    MODULE = "module"


@dataclass(frozen=True)
class Unavailable:
    """What could not be had, why, and the exact command that would change it (or nothing)."""

    reason: str
    fix: str = ""


class Reading(NamedTuple):
    """One value, and the moment (CLOCK_MONOTONIC) at which it was asked for.

    A tuple, as a sample is one: both come by the hundred.
    """

    value: float
    t_ns: int


@dataclass(frozen=True)
class SensorInfo:
    """What is known of a sensor without reading it.

    ``update_period_s`` and ``window_s`` are what the vendor or the literature states for this
    generation; None where nobody has said. ``slow`` marks a call that takes milliseconds, which
    belongs in a lane of its own.
    """

    quantity: Quantity
    source: Source
    update_period_s: float | None = None
    window_s: float | None = None
    slow: bool = False
    note: str = ""


@dataclass(frozen=True)
class KnobInfo:
    """A knob's range and what it was delivered with.

    ``choices`` lists the only values it takes, ascending; None where any value in the range
    does. ``readable`` is False where the device keeps a setting to itself (locked clocks).
    ``writable`` is True, or why this process may not turn it. ``owner`` is the user id of whom the
    system lets turn it beside root.
    """

    knob: Knob
    minimum: float
    maximum: float
    default: float | None
    choices: tuple[float, ...] | None = None
    readable: bool = True
    writable: bool | Unavailable = True
    owner: int = 0


@dataclass(frozen=True)
class DeviceInfo:
    """Which device this is. ``key`` is its name in every result: ``gpu0``, ``cpu1``, ``dram0``.

    ``contains`` lists keys whose energy is already inside this device's (a platform contains
    its packages), so that a total counts each joule once. ``note`` says what a person must know
    to read its figures, such as a MIG slice that is measured as its whole GPU. ``better`` says
    how a better source can be had where there is one: what is in the way, and the exact command.
    ``slices`` are the MIG instances into which a GPU is cut, which may be several tenants'.
    ``memory_b`` is the memory that a GPU has in all, None where it is not told. ``power_scope`` is
    what a GPU's power and energy are of, None where its driver does not tell, and ``limit_scope``
    what its power limit holds, where these differ; ``module_limit_w`` is the most that the driver
    lets its module draw, None where there is no module or it is not told. ``is_simulated`` says
    that the device is not there, also of one that could never be read: its driver is joulewise's
    simulated one.
    """

    key: str
    kind: Kind
    name: str
    uid: str
    vendor: str
    driver: str = ""
    contains: tuple[str, ...] = ()
    note: str = ""
    better: Unavailable | None = None
    slices: tuple[str, ...] = ()
    memory_b: int | None = None
    is_simulated: bool = False
    power_scope: PowerScope | None = None
    limit_scope: PowerScope | None = None
    module_limit_w: float | None = None


class DriverSample(NamedTuple):
    """One entry of a driver's own buffer, at the driver's own time (microseconds).

    A tuple, since that is made in a third of the time.
    """

    t_us: int
    value: float


@dataclass(frozen=True)
class Process:
    """A process that uses a device; ``memory_b`` is None where the driver does not tell."""

    pid: int
    memory_b: int | None
    kind: str


def listed_keys(keys: Iterable[str]) -> str:
    """``gpu0-gpu2, gpu5`` for gpu0, gpu1, gpu2, gpu5."""
    rows: list[list[str]] = []
    for key in keys:
        if rows and key == _next(rows[-1][-1]):
            rows[-1].append(key)
        else:
            rows.append([key])
    return ", ".join(f"{row[0]}-{row[-1]}" if len(row) > 2 else ", ".join(row) for row in rows)


def _next(key: str) -> str:
    word = key.rstrip("0123456789")
    number = key[len(word) :]
    return f"{word}{int(number) + 1}" if number else ""


def find_contained(
    devices: Iterable[DeviceInfo],
    not_counted: Collection[str] = (),
    unread: Collection[str] = (),
) -> dict[str, str]:
    """The key of each device that is inside another that counts, and the key of that one.

    A device of ``not_counted`` contains nothing that counts, and is inside nothing. One that is
    ``unread`` contains nothing either, and may be inside another, which has its joules. Of two that
    contain each other (two GPUs that both tell their module's energy) the first counts.
    """
    inside: dict[str, str] = {}
    for device in devices:
        if device.key in not_counted or device.key in unread or device.key in inside:
            continue
        for key in device.contains:
            if key not in not_counted:
                inside.setdefault(key, device.key)
    return inside


def find_parts_of_uncounted(
    devices: Iterable[DeviceInfo], counted: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Devices that do not count although something in them does, and what that is, by their keys.

    Such is a superchip's module whose GPU was not used: its CPU and memory count.
    """
    parts = {d.key: tuple(key for key in d.contains if key in counted) for d in devices}
    return {key: inside for key, inside in parts.items() if inside and key not in counted}


def find_replaced(
    devices: Iterable[DeviceInfo], unread: Collection[str], contained: Mapping[str, str]
) -> list[str]:
    """Unread devices whose contents were all read: what is in them counts in their place.

    Not so a module: its GPU is in it and is no device besides.
    """
    return [
        device.key
        for device in devices
        if device.key in unread
        and device.key not in contained
        and device.contains
        and device.power_scope is not PowerScope.MODULE
        and not any(key in unread for key in device.contains)
    ]
