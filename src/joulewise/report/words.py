"""Figures as a person reads them: units, prefixes, ranges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from joulewise.data import Kind, Knob, Quantity
from joulewise.devices.nvidia.throttle import throttle_names

KINDS: Final = {Kind.GPU: "GPU", Kind.CPU: "CPU", Kind.DRAM: "RAM", Kind.NODE: "node"}
LIMITED: Final = {"gpu": "the GPU's, not its module's", "module": "its module's"}
"""What a superchip's power limit holds, by the word in a result."""

# What stands for all GPUs of a driver that did not answer (record.inventory.unanswered_devices).
_DRIVERS: Final = {"nvidia", "amd"}
SENSORS: Final = {
    Quantity.POWER: "power",
    Quantity.POWER_INSTANT: "instant power",
    Quantity.POWER_AVERAGE: "average power",
    Quantity.GPU_POWER: "GPU power",
    Quantity.MEMORY_POWER: "memory power",
    Quantity.ENERGY: "energy",
    Quantity.ENFORCED_LIMIT: "limit in force",
    Quantity.LOAD: "load",
    Quantity.GPU_UTILISATION: "GPU utilisation",
    Quantity.MEMORY_UTILISATION: "memory utilisation",
    Quantity.ENCODER_UTILISATION: "encoder utilisation",
    Quantity.DECODER_UTILISATION: "decoder utilisation",
    Quantity.SM_CLOCK: "SM clock",
    Quantity.MEMORY_CLOCK: "memory clock",
    Quantity.PERFORMANCE_STATE: "performance state",
    Quantity.THROTTLE: "throttled by",
    Quantity.TEMPERATURE: "temperature",
    Quantity.FAN: "fan",
    Quantity.MEMORY_USED: "memory used",
    Quantity.PCIE_TX: "PCIe sent",
    Quantity.PCIE_RX: "PCIe received",
}
# Sensors that are read together stand together: a group's name, and each member's own.
GROUPS: Final[tuple[tuple[str, dict[Quantity, str]], ...]] = (
    (
        "power",
        {
            Quantity.POWER: "",
            Quantity.POWER_INSTANT: "instant",
            Quantity.POWER_AVERAGE: "average",
            Quantity.GPU_POWER: "GPU",
            Quantity.MEMORY_POWER: "memory",
        },
    ),
    ("energy", {Quantity.ENERGY: ""}),
    ("limit in force", {Quantity.ENFORCED_LIMIT: ""}),
    ("load", {Quantity.LOAD: ""}),
    (
        "utilisation",
        {
            Quantity.GPU_UTILISATION: "GPU",
            Quantity.MEMORY_UTILISATION: "memory",
            Quantity.ENCODER_UTILISATION: "encoder",
            Quantity.DECODER_UTILISATION: "decoder",
        },
    ),
    ("clock", {Quantity.SM_CLOCK: "SM", Quantity.MEMORY_CLOCK: "memory"}),
    ("state", {Quantity.PERFORMANCE_STATE: "", Quantity.THROTTLE: "throttled by"}),
    ("temperature", {Quantity.TEMPERATURE: "", Quantity.FAN: "fan"}),
    ("memory used", {Quantity.MEMORY_USED: ""}),
    ("PCIe", {Quantity.PCIE_TX: "sent", Quantity.PCIE_RX: "received"}),
)
KNOBS: Final = {knob: knob.label for knob in Knob}
_SI: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY: Final = ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"))
_UNITS: Final = {"w": "W", "j": "J", "pct": "%", "mhz": "MHz", "c": "°C", "b": "B", "s": "MB/s"}


def figure(quantity: Quantity, value: float, vendor: str = "") -> str:
    """A sensor's value with its unit."""
    if quantity is Quantity.PERFORMANCE_STATE:
        return f"P{value:.0f}"
    if quantity is Quantity.THROTTLE:
        return throttle(value, vendor)
    return with_unit(value, _unit(quantity))


def span(quantity: Quantity, values: Sequence[float], vendor: str = "") -> str:
    """The values of several devices: one where they read alike, else the lowest and highest."""
    if quantity is Quantity.THROTTLE:
        return ", ".join(dict.fromkeys(throttle(value, vendor) for value in values))
    return _between(figure(quantity, min(values), vendor), figure(quantity, max(values), vendor))


def simulated(keys: Iterable[str]) -> str:
    """``GPU simulated``, ``GPU and CPU simulated``; empty without a device, as of real results."""
    kinds = {key.rpartition("/")[2].rstrip("0123456789") for key in keys}
    if kinds & _DRIVERS:
        kinds.add(Kind.GPU.value)
    names = [name for kind, name in KINDS.items() if kind.value in kinds]
    if not names:
        return ""
    first, last = ", ".join(names[:-1]), names[-1]
    return f"{first} and {last} simulated" if first else f"{last} simulated"


def setting(knob: Knob, value: float) -> str:
    return with_unit(value, _unit(knob))


def settings(knob: Knob, low: float, high: float, choices: Sequence[float] | None) -> str:
    """A knob's range: ``135-1530 MHz, 187 steps``."""
    steps = f", {len(choices)} steps" if choices and len(choices) > 1 else ""
    return _between(setting(knob, low), setting(knob, high)) + steps


def throttle(bits: float, vendor: str) -> str:
    if not bits:
        return "nothing"
    # Only NVIDIA's bits have names; for others the sensor's note says what a figure means.
    return ", ".join(throttle_names(int(bits))) if vendor == "nvidia" else f"{bits:g}"


def with_unit(value: float, unit: str) -> str:
    prefixes = {"J": _SI, "B": _BINARY}.get(unit, ())
    for factor, prefix in prefixes:
        if abs(value) >= factor:
            return f"{_short(value / factor)} {prefix}{unit}"
    return f"{_short(value)} {unit}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds >= 1:
        return f"{seconds:g} s"
    return f"{seconds * 1e3:g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:g} µs"


def _unit(name: Quantity | Knob) -> str:
    return _UNITS[name.value.rsplit("_", 1)[-1]]


def _short(value: float) -> str:
    """Three digits that matter, or as many as the integer has."""
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    number = f"{value:.{decimals}f}"
    return number.rstrip("0").rstrip(".") if decimals else number


def _between(low: str, high: str) -> str:
    if low == high:
        return low
    number, _, unit = low.partition(" ")
    return f"{number}-{high}" if unit and high.endswith(f" {unit}") else f"{low} - {high}"
