"""A device: what it is, its sensors and controls, and the values that are read from it.

A counter may contain others: ``psys`` contains the CPU packages and their memory, a superchip's
module counter its GPU, CPU and memory. Whoever opens a device says so in ``DeviceInfo.contains``;
``find_contained`` is the one rule by which each joule is then counted once.

Also the names of the reasons why a GPU's clocks are below what they could be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple


class Source(str, Enum):
    """Where a number comes from; a sum over several devices may be ``MIXED``.

    ``SIMULATED`` was read from a sensor of joulewise's simulated GPUs and CPUs: there is no such
    device. Its timing, its noise and its error are treated as those of a measured one.
    """

    MEASURED = "measured"
    SIMULATED = "simulated"
    MODELLED = "modelled"
    ASSUMED = "assumed"
    MIXED = "mixed"

    @property
    def is_sensor(self) -> bool:
        """Whether a sensor measured it, real or simulated, rather than a model or an assumption."""
        return self in {Source.MEASURED, Source.SIMULATED}


class Quantity(str, Enum):
    """What a sensor measures, with its unit in the name."""

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


class ControlKind(str, Enum):
    """A control of a device, with its unit in the name (the names in a sweep's settings)."""

    POWER_LIMIT = "power_limit_w"
    POWER_LIMIT_SHORT = "power_limit_short_w"
    SM_CLOCK = "sm_clock_mhz"
    MEMORY_CLOCK = "mem_clock_mhz"

    @property
    def label(self) -> str:
        """Its name for people."""
        return _LABELS[self]

    @property
    def unit(self) -> str:
        return "MHz" if self.value.endswith("_mhz") else "W"


_LABELS: Final = {
    ControlKind.POWER_LIMIT: "power limit",
    ControlKind.POWER_LIMIT_SHORT: "short-term power limit",
    ControlKind.SM_CLOCK: "SM clock",
    ControlKind.MEMORY_CLOCK: "memory clock",
}


class Kind(str, Enum):
    """What a device is."""

    GPU = "gpu"
    CPU = "cpu"
    DRAM = "dram"
    NODE = "node"


class PowerScope(str, Enum):
    """What the power and the energy of a GPU's device cover.

    ``GPU`` is the board with its memory. ``MODULE`` is all of a superchip (Grace Hopper): GPU, CPU
    and their memory. A part with a sensor of its own (``Quantity.GPU_POWER``,
    ``Quantity.MEMORY_POWER``) is inside it.
    """

    GPU = "gpu"
    MODULE = "module"


@dataclass(frozen=True)
class Unavailable:
    """Stands for a value that could not be read.

    ``reason`` says why, and ``fix`` is the exact command that would change it, empty where there is
    none.
    """

    reason: str
    fix: str = ""


class Reading(NamedTuple):
    """One value, and when (CLOCK_MONOTONIC) it was requested from the device.

    A tuple like ``DriverSample``, because hundreds are made in a second.
    """

    value: float
    t_ns: int


@dataclass(frozen=True)
class SensorInfo:
    """What is known of a sensor without reading it.

    ``update_period_s`` and ``window_s`` are what the vendor or the literature states for this
    generation; None where nobody has said. ``slow`` marks a call that takes milliseconds: it is
    read last in its row.
    """

    quantity: Quantity
    source: Source
    update_period_s: float | None = None
    window_s: float | None = None
    slow: bool = False
    note: str = ""


@dataclass(frozen=True)
class ControlInfo:
    """A control's range, and the value that the device was delivered with.

    ``choices`` lists the only values that can be set, ascending; None where any value in the range
    can. ``readable`` is False where the device does not show what is set (locked clocks).
    ``writable`` is True, or why this process may not set it. ``owner`` is the id of the user who,
    beside root, may set it.
    """

    control: ControlKind
    minimum: float
    maximum: float
    default: float | None
    choices: tuple[float, ...] | None = None
    readable: bool = True
    writable: bool | Unavailable = True
    owner: int = 0


@dataclass(frozen=True)
class DeviceInfo:
    """Which device this is.

    - ``key``: its name in every result, such as ``gpu0``, ``cpu1`` or ``dram0``
    - ``contains``: keys whose energy is already inside this device's (a platform contains its
      packages), so that a total counts each joule once
    - ``note``: what a person must know to read its numbers, such as that a MIG slice is measured
      as its whole GPU
    - ``better``: where there is a better source, what is in the way, and the exact command
    - ``slices``: the MIG instances of a GPU, which may belong to several tenants
    - ``memory_b``: the memory of a GPU in all; None where the driver does not say
    - ``is_simulated``: its driver is joulewise's simulated one, also where it could never be read
    - ``power_scope``: what a GPU's power and energy cover; None where the driver does not say
    - ``limit_scope``: what its power limit covers, where that differs
    - ``module_limit_w``: the most that the driver lets its module draw; None without a module
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

    A tuple, because it is made in a third of the time of a dataclass.
    """

    t_us: int
    value: float


@dataclass(frozen=True)
class Process:
    """A process that uses a device; ``memory_b`` is None where the driver does not say."""

    pid: int
    memory_b: int | None
    kind: str


def listed_keys(keys: Iterable[str]) -> str:
    """Keys in words, with consecutive ones as a range: ``gpu0-gpu2, gpu5``."""
    ranges: list[list[str]] = []
    for key in keys:
        if ranges and key == _next_key(ranges[-1][-1]):
            ranges[-1].append(key)
        else:
            ranges.append([key])
    return ", ".join(
        f"{each[0]}-{each[-1]}" if len(each) > 2 else ", ".join(each) for each in ranges
    )


def _next_key(key: str) -> str:
    word = key.rstrip("0123456789")
    number = key[len(word) :]
    return f"{word}{int(number) + 1}" if number else ""


def find_contained(
    devices: Iterable[DeviceInfo],
    not_counted: Collection[str] = (),
    unread: Collection[str] = (),
) -> dict[str, str]:
    """Map each device that is inside another counted one to that one, by their keys.

    A device of ``not_counted`` contains nothing that counts, and is inside nothing. One that is
    ``unread`` contains nothing either, and may be inside another, which has its joules. Of two that
    contain each other (two GPUs that both report their module's energy) the first counts.
    """
    inside: dict[str, str] = {}
    for device in devices:
        # The first of several that contain each other is not in ``inside`` yet when it is met.
        if device.key in not_counted or device.key in unread or device.key in inside:
            continue
        for key in device.contains:
            if key not in not_counted:
                inside.setdefault(key, device.key)
    return inside


def find_parts_of_uncounted(
    devices: Iterable[DeviceInfo], counted: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """The counted parts of each device that does not count itself, by its key.

    Such is a superchip's module whose GPU was not used: its CPU and memory count.
    """
    parts = {d.key: tuple(key for key in d.contains if key in counted) for d in devices}
    return {key: inside for key, inside in parts.items() if inside and key not in counted}


def find_replaced(
    devices: Iterable[DeviceInfo], unread: Collection[str], contained: Mapping[str, str]
) -> list[str]:
    """Keys of unread devices whose contents were all read: the contents count in their stead.

    A module is never among them: its GPU has no device beside it.
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


# NVML's bits (nvmlClocksEventReasons, nvmlClocksThrottleReasons in older drivers).
_NAMES: Final = {
    0x001: "idle",
    0x002: "application clocks",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "power brake",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliability voltage",
}


def throttle_names(bits: int) -> tuple[str, ...]:
    """The reasons in NVML's ``bits``, lowest first; a bit without a name is given in hex."""
    every_bit = (1 << shift for shift in range(bits.bit_length()))
    return tuple(_NAMES.get(bit, hex(bit)) for bit in every_bit if bits & bit)
