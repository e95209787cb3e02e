"""How often each generation of NVIDIA GPUs updates its power readings, and what they average.

Sources:
[1] Z. Yang, K. Adamek, W. Armour, "Part-time Power Measurements: nvidia-smi's Lack of
    Attention", arXiv:2312.02741 (SC 2024): periods and windows, measured on over 70 GPUs.
[2] NVIDIA, NVML API Reference, nvmlDeviceGetPowerUsage: a one-second average from Ampere on,
    GA100 excepted; nvmlDeviceGetTotalEnergyConsumption: from Volta on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from joulewise.data import Quantity


@dataclass(frozen=True)
class GenerationTiming:
    """The time between two new values, and the time that each averages; None where unknown."""

    update_period_s: float | None = None
    window_s: float | None = None


@dataclass(frozen=True)
class Generation:
    """NVML's number of the architecture, and the CUDA capability, (0, 0) where unknown."""

    architecture: int
    capability: tuple[int, int] = (0, 0)


UNKNOWN: Final = GenerationTiming()
_PASCAL: Final = GenerationTiming(0.020, 0.010)  # [1]
_TURING: Final = GenerationTiming(0.100, 0.100)  # [1]
_GA100: Final = GenerationTiming(0.100, 0.025)  # [1], Hopper's instant field too
_SECOND: Final = GenerationTiming(0.100, 1.0)  # window [2], period [1]
_AMPERE_TIMINGS: Final = {
    Quantity.POWER: _SECOND,
    Quantity.POWER_INSTANT: GenerationTiming(0.100),
    Quantity.POWER_AVERAGE: _SECOND,
}

_TIMINGS: Final[dict[str, dict[Quantity, GenerationTiming]]] = {
    "Pascal": {Quantity.POWER: _PASCAL, Quantity.POWER_INSTANT: _PASCAL},
    "Volta": {Quantity.POWER: _PASCAL, Quantity.POWER_INSTANT: _PASCAL},
    "Turing": {Quantity.POWER: _TURING, Quantity.POWER_INSTANT: _TURING},
    "GA100": {**_AMPERE_TIMINGS, Quantity.POWER: _GA100, Quantity.POWER_INSTANT: _GA100},
    "Ampere": _AMPERE_TIMINGS,
    "Ada": _AMPERE_TIMINGS,
    "Hopper": {**_AMPERE_TIMINGS, Quantity.POWER_INSTANT: _GA100},
    # Nobody has published how often these update.
    "Blackwell": {
        Quantity.POWER: GenerationTiming(window_s=1.0),
        Quantity.POWER_AVERAGE: GenerationTiming(window_s=1.0),
    },
}
# NVML's nvmlDeviceArchitecture_t.
_FIRST_KNOWN: Final = 4
_NAMES: Final = ("Pascal", "Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell")
_ARCHITECTURES: Final = dict(enumerate(_NAMES, _FIRST_KNOWN))
VOLTA: Final = 5
AMPERE: Final = 7


def sensor_timing(
    architecture: int, capability: tuple[int, int], quantity: Quantity
) -> GenerationTiming:
    """The timing of a power sensor of this generation; unknown where nobody has published it."""
    name = "GA100" if capability == (8, 0) else _ARCHITECTURES.get(architecture, "")
    return _TIMINGS.get(name, {}).get(quantity, UNKNOWN)
