"""Names of the reasons why a GPU's clocks are below what they could be."""

from __future__ import annotations

from typing import Final

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
